/** Two turns side by side: their figures, and how their answers differ. */

import { diffWordsWithSpace } from "diff";
import { useMemo, useState } from "react";
import type { AgentEvent } from "../model/client.js";
import { EMPTY, fold } from "../model/conversation.js";
import { duration, figure, oneLine, visible } from "../model/text.js";
import type { Trace } from "../model/trace.js";
import { trace } from "../model/trace.js";

const MOST_COMPARED = 20_000;

export function Compare({ turns }: { turns: readonly (readonly AgentEvent[])[] }) {
  const traces = useMemo(() => turns.map(trace), [turns]);
  const [left, setLeft] = useState(Math.max(0, turns.length - 2));
  const [right, setRight] = useState(Math.max(0, turns.length - 1));
  const texts = useMemo(() => [answerOf(turns[left]), answerOf(turns[right])] as const, [turns, left, right]);
  const parts = useMemo(() => diffWordsWithSpace(texts[0], texts[1], { timeout: 500 }), [texts]);
  const [one, other] = [traces[left], traces[right]];
  if (!one || !other || turns.length < 2) return <p className="empty">It takes two turns to compare.</p>;
  return (
    <div className="compare" tabIndex={0} role="region" aria-label="Comparison">
      <table>
        <thead>
          <tr>
            <th scope="col">Figure</th>
            <th scope="col">
              <Pick label="First turn" traces={traces} value={left} onChange={setLeft} />
            </th>
            <th scope="col">
              <Pick label="Second turn" traces={traces} value={right} onChange={setRight} />
            </th>
          </tr>
        </thead>
        <tbody>
          {FIGURES.map(([name, read]) => (
            <tr key={name}>
              <th scope="row">{name}</th>
              <td>{read(one)}</td>
              <td>{read(other)}</td>
            </tr>
          ))}
        </tbody>
      </table>
      <h2>The answers</h2>
      <p className="small">
        <del>only in the first</del> <ins>only in the second</ins>
      </p>
      {parts ? (
        <p className="plain diff" dir="auto">
          {parts.map((part, at) => {
            const text = visible(part.value);
            if (part.removed) return <del key={at}>{text}</del>;
            return part.added ? <ins key={at}>{text}</ins> : <span key={at}>{text}</span>;
          })}
        </p>
      ) : (
        <p className="small">They differ too much to be laid side by side.</p>
      )}
    </div>
  );
}

const FIGURES: [string, (found: Trace) => string][] = [
  ["Question", ({ prompt }) => oneLine(prompt, 200)],
  ["Status", ({ status }) => status],
  ["First text after", ({ firstTextMs }) => (firstTextMs === undefined ? "–" : duration(firstTextMs))],
  ["Total", ({ totalMs }) => duration(totalMs)],
  ["Queue wait", ({ queueMs }) => (queueMs < 20 ? "none" : duration(queueMs))],
  ["Tools", ({ spans }) => spans.filter(({ kind }) => kind === "tool").map(({ label }) => oneLine(label, 40)).join(", ") || "none"],
  ["Characters", ({ characters }) => figure(characters)],
  ["Deltas", ({ beats }) => String(beats.length)],
];

function answerOf(events: readonly AgentEvent[] = []): string {
  const items = fold(EMPTY, events).blocks.flatMap((block) => block.items);
  const text = items.map((item) => (item.kind === "message" ? item.text : "")).filter(Boolean).join("\n\n");
  return text.slice(0, MOST_COMPARED);
}

interface PickProps {
  label: string;
  traces: readonly Trace[];
  value: number;
  onChange: (value: number) => void;
}

function Pick({ label, traces, value, onChange }: PickProps) {
  return (
    <select aria-label={label} value={value} onChange={(event) => onChange(Number(event.target.value))}>
      {traces.map(({ prompt, origin }, at) => (
        <option key={at} value={at}>
          {at + 1} · {new Date(origin).toLocaleTimeString()} · {oneLine(prompt, 40)}
        </option>
      ))}
    </select>
  );
}
