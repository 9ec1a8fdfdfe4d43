/** How each kind of item of a conversation looks. */

import type { ReactNode } from "react";
import { memo, useState } from "react";
import type { Block, EndingItem, ErrorItem, Item, ThinkingItem, ToolItem } from "../model/conversation.js";
import { duration, oneLine } from "../model/text.js";
import { Icon } from "./Icons.js";
import { Data, Markdown, Pictures, picturesOf, Plain } from "./Prose.js";

export const BlockView = memo(function BlockView({ block }: { block: Block }) {
  return (
    <section className="turn" data-turn={block.turnId}>
      {block.items.map((item) => (
        <ItemView key={item.key} item={item} />
      ))}
    </section>
  );
});

const ItemView = memo(function ItemView({ item }: { item: Item }) {
  switch (item.kind) {
    case "user":
      return <User content={item.content} />;
    case "message":
      return item.text === "" ? null : (
        <article className="message" aria-label="Assistant" aria-busy={item.isOpen} data-open={item.isOpen || undefined}>
          <Markdown text={item.text} />
        </article>
      );
    case "thinking":
      return <Thinking item={item} />;
    case "tool":
      return <Tool item={item} />;
    case "retry":
      return <Retry data={item.data} />;
    case "question":
      return (
        <article className="question" aria-label="Question">
          <p className="small">The agent asks</p>
          <Plain text={item.text} />
        </article>
      );
    case "error":
      return <Failure item={item} />;
    case "ending":
      return <Ending item={item} />;
    case "other":
      return (
        <Folded className="other" summary={<span className="chip">{oneLine(item.type, 80)}</span>}>
          <Data value={item.data} />
        </Folded>
      );
  }
});

interface FoldedProps {
  className: string;
  summary: ReactNode;
  children: ReactNode;
  state?: string;
  isGrowing?: boolean;
}

/** What is put on the page only when somebody unfolds it: a result may have megabytes. */
function Folded({ className, summary, children, state, isGrowing = false }: FoldedProps) {
  const [isOpen, setOpen] = useState(false);
  return (
    <details
      className={className}
      data-state={state}
      data-open={isGrowing || undefined}
      onToggle={(event) => setOpen(event.currentTarget.open)}
    >
      <summary>{summary}</summary>
      {isOpen && children}
    </details>
  );
}

function User({ content }: { content: unknown }) {
  const parts: unknown[] = Array.isArray(content) ? content : [content];
  const texts = parts.map((part) => (typeof part === "string" ? part : (part as { text?: unknown } | null)?.text));
  return (
    <article className="user" aria-label="You">
      <Pictures urls={picturesOf(content)} />
      {texts.map((text, at) => (typeof text === "string" ? <Plain key={at} text={text} /> : null))}
    </article>
  );
}

function Thinking({ item }: { item: ThinkingItem }) {
  const summary = (
    <>
      <Icon name="bulb" />
      <span>{item.isOpen ? "Thinking…" : `Thought for ${duration(item.durationMs)}`}</span>
    </>
  );
  return (
    <Folded className="thinking" summary={summary} isGrowing={item.isOpen}>
      <Plain text={item.text} />
    </Folded>
  );
}

function Tool({ item }: { item: ToolItem }) {
  const state = item.isOpen ? "running" : item.error === undefined ? "done" : "failed";
  const took = duration(item.elapsedMs);
  const said = { running: "running", done: `done in ${took}`, failed: `failed after ${took}` };
  const summary = (
    <>
      <Icon name={state === "failed" ? "warning" : "wrench"} />
      <code>{oneLine(item.name, 80)}</code>
      <span className="hint">{hintOf(item.arguments)}</span>
      <span className="state">{said[state]}</span>
    </>
  );
  return (
    <>
      <Folded className="tool" summary={summary} state={state}>
        <ToolBody item={item} />
      </Folded>
      <Pictures urls={picturesOf(item.content)} />
    </>
  );
}

function ToolBody({ item }: { item: ToolItem }) {
  return (
    <div className="tool-body">
      <p className="label">Arguments</p>
      <Data value={item.arguments} />
      {item.content !== "" && item.content !== item.error && (
        <>
          <p className="label">Result</p>
          <Data value={item.content} />
        </>
      )}
      {item.error !== undefined && (
        <>
          <p className="label">Error</p>
          <Data value={item.error} />
        </>
      )}
    </div>
  );
}

/** The first argument that is a word, to tell calls apart at a glance. */
function hintOf(args: unknown): string {
  if (typeof args !== "object" || args === null) return "";
  const word = Object.values(args).find((value) => typeof value === "string" || typeof value === "number");
  return word === undefined ? "" : oneLine(String(word), 60);
}

function Retry({ data }: { data: unknown }) {
  const { reason, details, delayMs, attempt } = (data ?? {}) as Record<string, unknown>;
  const why = typeof reason === "string" ? reason : typeof details === "string" ? details : "";
  return (
    <Folded
      className="retry"
      summary={
        <>
          <Icon name="warning" />
          <span>
            Trying again{attempt === undefined ? "" : `, attempt ${oneLine(String(attempt), 10)}`}
            {typeof delayMs === "number" ? ` in ${duration(delayMs)}` : ""}
            {why === "" ? "" : `: ${oneLine(why)}`}
          </span>
        </>
      }
    >
      <Data value={data} />
    </Folded>
  );
}

function Failure({ item }: { item: ErrorItem }) {
  return (
    <article className="error" aria-label="Error">
      <Plain text={item.error} />
      <p className="small">
        <code>{oneLine(item.code, 80)}</code>
        {item.isRecoverable ? " Trying again may help." : ""}
      </p>
    </article>
  );
}

const ENDINGS = { completed: "Completed", failed: "Failed", aborted: "Stopped", interrupted: "Interrupted" };

function Ending({ item }: { item: EndingItem }) {
  return (
    <div className="ending" data-status={item.status}>
      <p>
        {ENDINGS[item.status] ?? item.status} after {duration(item.elapsedMs)}
      </p>
      {item.data !== undefined && (
        <Folded className="other" summary={<span className="chip">Result</span>}>
          <Data value={item.data} />
        </Folded>
      )}
    </div>
  );
}
