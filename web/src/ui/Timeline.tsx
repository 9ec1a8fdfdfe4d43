/** A turn as a waterfall: what happened when, how long it took, and how fast it spoke. */

import { useEffect, useMemo, useRef, useState } from "react";
import { client, clockOffset, explain, isStop } from "../live/server.js";
import type { LiveSession } from "../live/session.js";
import { useStore } from "../live/store.js";
import type { AgentEvent } from "../model/client.js";
import { hashOf } from "../model/route.js";
import { duration, figure, oneLine } from "../model/text.js";
import type { Trace } from "../model/trace.js";
import { pace, promptOf, ticks, trace, turnsOf } from "../model/trace.js";
import { fieldText } from "../model/fields.js";
import { Area } from "./Chart.js";

const MOST_EVENTS = 20_000;
const MOST_SPANS = 400;
const ZOOMS = [1, 2, 4, 8, 16, 32];

interface Listed {
  turnId: string;
  prompt: string;
  at: number;
}

export function TimelineView({ live, target }: { live: LiveSession; target: string | undefined }) {
  const { conversation } = useStore(live.state);
  const turns = useMemo(() => listed(live.events), [conversation, live]);
  const newest = conversation.runningTurn ?? turns.at(-1)?.turnId;
  const turnId = target ?? newest;
  const { events, problem, isReading } = useTurn(live, turnId, conversation.lastPlace);
  const found = useMemo(() => trace(events), [events]);
  const now = useNow(found.status === "running" && events.length > 0);

  if (turnId === undefined) return <p className="empty">No turn has begun in this session yet.</p>;
  const shown = turns.some((turn) => turn.turnId === turnId) ? turns : [{ turnId, prompt: found.prompt, at: found.origin }, ...turns];
  return (
    <div className="timeline" tabIndex={0} role="region" aria-label="Timeline">
      <label className="pick">
        <span>Turn</span>
        <select value={turnId} onChange={(event) => (location.hash = hashOf(live.id, "timeline", event.target.value))}>
          {shown.toReversed().map((turn) => (
            <option key={turn.turnId} value={turn.turnId}>
              {new Date(turn.at).toLocaleTimeString()} · {oneLine(turn.prompt, 60) || "without words"}
            </option>
          ))}
        </select>
        {isReading && <span className="small">Reading…</span>}
      </label>
      {problem && (
        <p className="notice" role="alert">
          {problem}
        </p>
      )}
      {events.length > 0 && (
        <>
          <Figures found={found} now={now} />
          <Waterfall found={found} sessionId={live.id} now={now} />
        </>
      )}
    </div>
  );
}

function listed(events: readonly AgentEvent[]): Listed[] {
  const found: Listed[] = [];
  for (const turn of turnsOf(events)) {
    const start = turn.find(({ type }) => type === "agent_run_start");
    const [first] = turn;
    if (!start || !first) continue;
    const { content } = first.data as { content: unknown };
    found.push({ turnId: fieldText(start, "turnId"), prompt: promptOf(content), at: start.timestamp });
  }
  return found;
}

/** A turn's events: those in memory while it runs, else those of the log, deltas included as long as they are kept. */
function useTurn(live: LiveSession, turnId: string | undefined, lastPlace: number) {
  const [read, setRead] = useState<{ turnId: string; events: AgentEvent[] }>();
  const [problem, setProblem] = useState("");
  const isRunning = turnId !== undefined && live.state.get().conversation.runningTurn === turnId;
  const inMemory = useMemo(
    () => turnsOf(live.events).find((turn) => turn.some((event) => fieldText(event, "turnId") === turnId)),
    [live, turnId, lastPlace],
  );
  useEffect(() => {
    if (turnId === undefined || isRunning) return;
    const stop = new AbortController();
    setProblem("");
    readTurn(live.id, turnId, stop.signal)
      .then((events) => setRead({ turnId, events }))
      .catch((error: unknown) => isStop(error) || setProblem(explain(error)));
    return () => stop.abort();
  }, [live.id, turnId, isRunning]);
  const whole = read?.turnId === turnId ? read?.events : undefined;
  const events = isRunning ? (inMemory ?? []) : (whole ?? inMemory ?? []);
  return { events, problem, isReading: !isRunning && whole === undefined && problem === "" };
}

async function readTurn(sessionId: string, turnId: string, signal: AbortSignal): Promise<AgentEvent[]> {
  const events: AgentEvent[] = [];
  for await (const page of client.session(sessionId).pages({ turnId, deltas: true }, { signal })) {
    events.push(...page.events);
    if (events.length >= MOST_EVENTS) break;
  }
  return events;
}

/** The server's time, whose clock wrote the events; before anything until it is known. */
function useNow(isRunning: boolean): number {
  const [now, setNow] = useState(-Infinity);
  useEffect(() => {
    if (!isRunning) return;
    const stop = new AbortController();
    let timer: ReturnType<typeof setInterval> | undefined;
    const begin = (offset: number) => {
      if (!stop.signal.aborted) timer = setInterval(() => setNow(Date.now() + offset), 250);
    };
    clockOffset(stop.signal).then(begin, () => {}); // unreachable: it stands at the last event
    return () => {
      stop.abort();
      clearInterval(timer);
    };
  }, [isRunning]);
  return now;
}

function Figures({ found, now }: { found: Trace; now: number }) {
  const total = found.totalMs ?? Math.max(now - found.origin, found.lastAt) - found.queueMs;
  const spoken = found.beats.length > 1 ? (found.beats.at(-1) ?? 0) - (found.beats[0] ?? 0) : 0;
  const tiles: [string, string][] = [
    ["Status", found.status === "aborted" ? "stopped" : found.status],
    ["Queue wait", found.queueMs < 20 ? "none" : duration(found.queueMs)],
    ["First text after", found.firstTextMs === undefined ? "–" : duration(found.firstTextMs)],
    ["Total", duration(total)],
    ["Tools", String(found.tools)],
    ["Characters", figure(found.characters)],
    ["Deltas/s", spoken > 0 ? figure(((found.beats.length - 1) / spoken) * 1000) : "–"],
  ];
  return (
    <dl className="tiles">
      {tiles.map(([name, value]) => (
        <div key={name} data-status={name === "Status" ? found.status : undefined}>
          <dt>{name}</dt>
          <dd>{value}</dd>
        </div>
      ))}
    </dl>
  );
}

function Waterfall({ found, sessionId, now }: { found: Trace; sessionId: string; now: number }) {
  const [zoom, setZoom] = useState(1);
  const axis = useRef<HTMLDivElement>(null);
  const until = Math.max(1, found.status === "running" ? Math.max(now - found.origin, found.lastAt) : found.lastAt);
  const percent = (ms: number) => `${(Math.min(ms, until) / until) * 100}%`;
  const spans = found.spans.slice(0, MOST_SPANS);
  const parts = Math.min(60, Math.max(8, Math.floor(found.beats.length / 4)));
  const paces = useMemo(() => pace(found.beats, until, parts), [found.beats.length, until, parts]);
  const step = (by: number) => setZoom(ZOOMS[Math.min(ZOOMS.length - 1, Math.max(0, ZOOMS.indexOf(zoom) + by))] ?? 1);
  const goTo = (eventId: string | undefined) => eventId && (location.hash = hashOf(sessionId, "events", eventId));
  return (
    <section className="waterfall" aria-label="Spans">
      <div className="waterfall-bar">
        <h2>What happened when</h2>
        <ul className="legend">
          {["queue", "thinking", "text", "tool"].map((kind) => (
            <li key={kind} data-kind={kind}>
              {kind}
            </li>
          ))}
        </ul>
        <div className="zoom">
          <button type="button" className="quiet" aria-label="Zoom out" disabled={zoom === 1} onClick={() => step(-1)}>
            −
          </button>
          <output>{zoom}×</output>
          <button type="button" className="quiet" aria-label="Zoom in" disabled={zoom === ZOOMS.at(-1)} onClick={() => step(1)}>
            +
          </button>
        </div>
      </div>
      <div className="lanes">
        <div className="lane-names" aria-hidden="true">
          <div className="axis" />
          {spans.map((span) => (
            <div key={span.key} className="lane-name" data-kind={span.kind}>
              {oneLine(span.label, 40)}
            </div>
          ))}
          {found.marks.length > 0 && <div className="lane-name">events</div>}
          <div className="lane-name pace-name">deltas/s</div>
        </div>
        <div className="lane-scroll" ref={axis} tabIndex={0} role="region" aria-label="Time axis">
          <div className="lane-wide" style={{ width: `${zoom * 100}%` }}>
            <div className="axis" aria-hidden="true">
              {ticks(0, until, (matchMedia("(max-width: 760px)").matches ? 3 : 7) * zoom).map((at) => (
                <span key={at} className="tick if-it-fits" style={{ left: percent(at) }}>
                  <span>{at === 0 ? "0" : duration(at)}</span>
                </span>
              ))}
            </div>
            {spans.map((span) => {
              const end = span.end ?? until;
              const says = `${span.kind}${span.kind === "tool" ? ` ${oneLine(span.label, 40)}` : ""}, from ${duration(span.start)}, ${
                span.end === undefined ? "still running" : `for ${duration(end - span.start)}`
              }${span.hasFailed ? ", failed" : ""}`;
              return (
                <div key={span.key} className="lane">
                  <button
                    type="button"
                    className="span"
                    data-kind={span.kind}
                    data-open={span.end === undefined || undefined}
                    data-failed={span.hasFailed || undefined}
                    style={{ left: `min(${percent(span.start)}, 100% - 6px)`, width: `max(6px, ${percent(end - span.start)})` }}
                    aria-label={`${says}. Show its event.`}
                    title={says}
                    onClick={() => goTo(span.eventId)}
                  />
                  <span
                    className="span-time if-it-fits"
                    style={end > until * 0.8 ? { left: 0, right: `calc(100% - ${percent(span.start)} + 6px)` } : { left: `calc(${percent(end)} + 6px)` }}
                    data-side={end > until * 0.8 ? "left" : "right"}
                  >
                    <span>{duration(end - span.start)}</span>
                  </span>
                </div>
              );
            })}
            {found.marks.length > 0 && (
              <div className="lane">
                {found.marks.slice(0, MOST_SPANS).map((mark) => (
                  <button
                    key={mark.eventId}
                    type="button"
                    className="mark"
                    data-failed={mark.type === "error" || undefined}
                    style={{ left: `clamp(6px, ${percent(mark.at)}, 100% - 8px)` }}
                    aria-label={`${oneLine(mark.type, 60)} at ${duration(mark.at)}. Show it.`}
                    title={`${oneLine(mark.type, 60)} at ${duration(mark.at)}`}
                    onClick={() => goTo(mark.eventId)}
                  />
                ))}
              </div>
            )}
            <div className="lane pace">
              <Area values={paces} label={`Deltas per second, at most ${figure(Math.max(0, ...paces))}`} height={48} />
            </div>
          </div>
        </div>
      </div>
      {found.spans.length > MOST_SPANS && <p className="small">The first {MOST_SPANS} of {found.spans.length} spans.</p>}
    </section>
  );
}
