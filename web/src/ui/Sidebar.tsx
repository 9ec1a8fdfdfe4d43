/** The sessions, newest first, to be searched, opened, renamed and deleted; below them the way to the server's view. */

import { useEffect, useRef, useState } from "react";
import { nextTheme, theme } from "../live/browser.js";
import { client, explain, logOut } from "../live/server.js";
import type { Sessions } from "../live/sessions.js";
import { titleOf } from "../live/sessions.js";
import { useStore } from "../live/store.js";
import type { SessionItem } from "../model/client.js";
import { Refused } from "../model/client.js";
import { hashOf } from "../model/route.js";
import { age, count } from "../model/text.js";
import { Icon } from "./Icons.js";

interface Props {
  sessions: Sessions;
  current: string | undefined;
  isServer: boolean;
  onDeleted: (id: string) => void;
  /** Who is logged in. */
  principal: string | null | undefined;
}

export function Sidebar({ sessions, current, isServer, onDeleted, principal }: Props) {
  const { sessions: all, hasMore, isLoaded, problem } = useStore(sessions.state);
  const [search, setSearch] = useState("");
  const [asked, setAsked] = useState<SessionItem>();
  const [trouble, setTrouble] = useState("");
  const words = search.toLowerCase().split(/\s+/).filter(Boolean);
  const found = all.filter((session) => words.every((word) => wordsOf(session).includes(word)));

  const remove = async ({ id }: SessionItem) => {
    try {
      await client.session(id).delete();
    } catch (error) {
      if (!(error instanceof Refused && error.httpStatus === 404)) {
        setTrouble(explain(error));
        return;
      }
    }
    onDeleted(id);
    await sessions.refresh();
  };

  return (
    <nav id="sidebar" aria-label="Sessions">
      <div className="sidebar-head">
        <p className="brand">
          <img src="/assets/favicon.svg" alt="" width="24" height="24" /> Tarko
        </p>
        <button type="button" className="quiet" onClick={() => (location.hash = "")}>
          <Icon name="plus" /> New session
        </button>
      </div>
      <label className="search">
        <Icon name="search" />
        <input
          type="search"
          aria-label="Search sessions"
          placeholder="Search name, tag, agent"
          value={search}
          onChange={(event) => {
            setSearch(event.target.value);
            if (event.target.value) sessions.deepen();
            else sessions.shallow();
          }}
        />
      </label>
      <ul id="sessions">
        {found.map((session) => (
          <Row key={session.id} session={session} isCurrent={session.id === current} onRemove={() => setAsked(session)} />
        ))}
      </ul>
      {isLoaded && found.length === 0 && (all.length > 0 || problem === "") && (
        <p className="none">{words.length > 0 ? nothingFound(hasMore, all.length) : "No session yet."}</p>
      )}
      {hasMore && words.length === 0 && (
        <button type="button" className="quiet older" onClick={() => sessions.more()}>
          Show older
        </button>
      )}
      {(trouble || problem) && (
        <p className="none" role="alert">
          {trouble || problem}
        </p>
      )}
      <div className="sidebar-foot">
        <a href="#server" aria-current={isServer ? "page" : undefined}>
          <Icon name="pulse" /> Server
        </a>
        {principal && <LogOutButton principal={principal} onTrouble={setTrouble} />}
        <ThemeButton />
      </div>
      {asked && <Question session={asked} onAnswer={(yes) => (setAsked(undefined), yes && void remove(asked))} />}
    </nav>
  );
}

function nothingFound(hasMore: boolean, searched: number): string {
  return hasMore ? `None of the newest ${count(searched, "session")} has these words.` : "No session has these words.";
}

function wordsOf({ name, agent, tags, id, status }: SessionItem): string {
  return `${name ?? "untitled"} ${agent} ${tags.join(" ")} ${id} ${stateOf(status)}`.toLowerCase();
}

/** What a session is doing, as its row says. */
function stateOf(status: SessionItem["status"]): "running" | "queued" | "failed" | "idle" {
  if (status.isProcessing) return "running";
  if (status.queued > 0) return "queued";
  return "lastEnding" in status && (status.lastEnding === "failed" || status.lastEnding === "interrupted") ? "failed" : "idle";
}

function Row({ session, isCurrent, onRemove }: { session: SessionItem; isCurrent: boolean; onRemove: () => void }) {
  const state = stateOf(session.status);
  const title = titleOf(session);
  return (
    <li data-state={state}>
      <a
        href={hashOf(session.id)}
        aria-current={isCurrent ? "page" : undefined}
        aria-keyshortcuts="Delete"
        onKeyDown={(event) => event.key === "Delete" && onRemove()}
      >
        <span className="name">
          <bdi>{title}</bdi>
        </span>
        <span className="facts">
          {state !== "idle" && (
            <span className="state">
              {state}
              {session.status.queued > 0 && state === "running" ? ` +${session.status.queued}` : ""}
            </span>
          )}
          <span>{session.agent}</span>
          <time dateTime={new Date(session.createdAt).toISOString()} title={new Date(session.createdAt).toLocaleString()}>
            {age(Date.now() - session.createdAt)}
          </time>
          {session.tags.slice(0, 3).map((tag, at) => (
            <span key={at} className="tag">
              <bdi>{tag}</bdi>
            </span>
          ))}
        </span>
      </a>
      <button type="button" className="bare remove" tabIndex={isCurrent ? 0 : -1} aria-label={`Delete ${title}`} onClick={onRemove}>
        <Icon name="trash" />
      </button>
    </li>
  );
}

function LogOutButton({ principal, onTrouble }: { principal: string; onTrouble: (trouble: string) => void }) {
  const says = `Log out ${principal}`;
  return (
    <button type="button" className="bare" aria-label={says} title={says} onClick={() => void logOut().catch((error: unknown) => onTrouble(explain(error)))}>
      <Icon name="leave" />
    </button>
  );
}

function ThemeButton() {
  const { theme: chosen } = useStore(theme);
  const icon = { system: "half", light: "sun", dark: "moon" } as const;
  return (
    <button type="button" className="bare" aria-label={`Colours: ${chosen}`} title={`Colours: ${chosen}`} onClick={nextTheme}>
      <Icon name={icon[chosen]} size={18} />
    </button>
  );
}

function Question({ session, onAnswer }: { session: SessionItem; onAnswer: (yes: boolean) => void }) {
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => dialog.current?.showModal(), []);
  return (
    <dialog ref={dialog} aria-labelledby="confirm-title" onClose={(event) => onAnswer(event.currentTarget.returnValue === "delete")}>
      <form method="dialog">
        <h2 id="confirm-title">Delete this session?</h2>
        <p className="what">
          <bdi>{titleOf(session)}</bdi>
        </p>
        <p>What runs in it is stopped, and its history is gone for good.</p>
        <menu>
          <button value="" autoFocus className="quiet">
            Keep
          </button>
          <button value="delete" className="danger">
            Delete
          </button>
        </menu>
      </form>
    </dialog>
  );
}
