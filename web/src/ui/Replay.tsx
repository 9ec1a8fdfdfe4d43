/** A recorded session, from the log or from a file: scrubbed, played again, compared, taken along. */

import { useEffect, useMemo, useRef, useState } from "react";
import { download } from "../live/browser.js";
import { client, explain, isStop } from "../live/server.js";
import type { LiveSession } from "../live/session.js";
import type { AgentEvent } from "../model/client.js";
import { fromJsonl, toJsonl } from "../model/jsonl.js";
import { reached, Tape } from "../model/replay.js";
import { count, duration, oneLine, size } from "../model/text.js";
import { turnsOf } from "../model/trace.js";
import { Compare } from "./Compare.js";
import { familyOf } from "./Events.js";
import { Icon } from "./Icons.js";
import { BlockView } from "./Items.js";

const MOST_EVENTS = 50_000;
const MOST_BYTES = 200_000_000;
const SPEEDS = [0.5, 1, 2, 5, 10, 50];
const SILENCES = [500, 2000, 10_000, Infinity];

interface Recording {
  /** Another one for each file. */
  readonly key: string;
  readonly name: string;
  readonly events: readonly AgentEvent[];
  readonly note: string;
}

export function ReplayView({ live }: { live: LiveSession }) {
  const { recording, progress, problem, read, open } = useRecording(live);
  const [mode, setMode] = useState<"play" | "compare">("play");
  const file = useRef<HTMLInputElement>(null);
  return (
    <div className="replay">
      <div className="replay-bar">
        <div className="tabs" role="group" aria-label="What to do">
          <button type="button" aria-pressed={mode === "play"} onClick={() => setMode("play")}>
            Play
          </button>
          <button type="button" aria-pressed={mode === "compare"} onClick={() => setMode("compare")}>
            Compare turns
          </button>
        </div>
        <p className="small" role="status">
          {recording ? `${count(recording.events.length, "event")}${recording.note}` : problem === "" && progress}
        </p>
        <button type="button" className="quiet" onClick={read}>
          Read again
        </button>
        <button type="button" className="quiet" onClick={() => file.current?.click()}>
          <Icon name="open" /> Open JSONL
        </button>
        <input
          ref={file}
          type="file"
          accept=".jsonl,.ndjson,.json,.txt"
          hidden
          aria-label="A file of events"
          onChange={(event) => {
            const chosen = event.target.files?.[0];
            if (chosen) void open(chosen);
            event.target.value = "";
          }}
        />
        <button
          type="button"
          className="quiet"
          disabled={!recording}
          onClick={() => recording && download(`${recording.name}.jsonl`, [toJsonl(recording.events)])}
        >
          <Icon name="save" /> Export JSONL
        </button>
      </div>
      {problem && (
        <p className="notice" role="alert">
          {problem}
        </p>
      )}
      {recording && mode === "play" && <Player key={recording.key} recording={recording} />}
      {recording && mode === "compare" && <Compare key={recording.key} turns={turnsOf(recording.events)} />}
    </div>
  );
}

function useRecording(live: LiveSession) {
  const [recording, setRecording] = useState<Recording>();
  const [progress, setProgress] = useState("Reading…");
  const [problem, setProblem] = useState("");
  const [run, setRun] = useState(0);
  const reading = useRef<AbortController>(undefined);
  const opened = useRef(0);
  useEffect(() => {
    const stop = new AbortController();
    reading.current = stop;
    readAll(live.id, stop.signal, (count, total) => setProgress(`${count.toLocaleString("en")} events read of ${total}…`))
      .then(({ events, isCut }) => {
        const note = isCut ? ", the first of more" : "";
        setRecording({ key: "log", name: live.id, events, note });
        setProblem("");
      })
      .catch((error: unknown) => isStop(error) || setProblem(explain(error)));
    return () => stop.abort();
  }, [live.id, run]);
  const open = async (file: File) => {
    const name = oneLine(file.name, 80);
    if (file.size > MOST_BYTES) {
      setProblem(`${name} is larger than ${size(MOST_BYTES)}: too much to be played here.`);
      return;
    }
    const { events, skipped } = fromJsonl(await file.text());
    if (events.length === 0) {
      setProblem(`${name} has no events: one envelope of JSON a line is expected.`);
      return;
    }
    const left = skipped > 0 ? `; ${count(skipped, "line")} held no event` : "";
    reading.current?.abort(); // what is still being read of the log would take its place
    setProblem("");
    const key = `file ${(opened.current += 1)}`;
    setRecording({ key, name: file.name.replace(/\.\w+$/, ""), events, note: ` from ${name}${left}` });
  };
  return { recording, progress, problem, read: () => setRun(run + 1), open };
}

async function readAll(sessionId: string, signal: AbortSignal, tell: (count: number, total: number) => void) {
  const events: AgentEvent[] = [];
  let isCut = false;
  for await (const page of client.session(sessionId).pages({ deltas: true }, { signal })) {
    events.push(...page.events);
    isCut = events.length >= MOST_EVENTS && page.hasMore;
    tell(events.length, page.total);
    if (isCut) break;
  }
  return { events, isCut };
}

function Player({ recording }: { recording: Recording }) {
  const { events } = recording;
  const tape = useMemo(() => new Tape(events), [events]);
  const [at, setAt] = useState(events.length);
  const [isPlaying, setPlaying] = useState(false);
  const [speed, setSpeed] = useState(1);
  const [silence, setSilence] = useState(2000);
  const times = useMemo(() => tape.schedule(silence), [tape, silence]);
  const conversation = useMemo(() => tape.after(at), [tape, at]);
  const scroller = useRef<HTMLDivElement>(null);
  const event = events[at - 1];
  const end = times.at(-1) ?? 0;

  useEffect(() => {
    if (!isPlaying) return;
    let frame = 0;
    const began = performance.now();
    const from = times[at - 1] ?? 0;
    const step = () => {
      const reach = reached(times, from + (performance.now() - began) * speed);
      setAt(reach);
      if (reach >= events.length) setPlaying(false);
      else frame = requestAnimationFrame(step);
    };
    frame = requestAnimationFrame(step);
    return () => cancelAnimationFrame(frame);
    // It goes on from where it is when the speed changes, not with every event.
  }, [isPlaying, speed, times]);
  useEffect(() => {
    if (scroller.current) scroller.current.scrollTop = scroller.current.scrollHeight;
  }, [conversation]);

  return (
    <div className="player">
      <div className="player-stage" ref={scroller} tabIndex={0} role="region" aria-label="The conversation as it stood">
        {conversation.blocks.length === 0 && <p className="over">Nothing has been said yet.</p>}
        {conversation.blocks.map((block) => (
          <BlockView key={block.key} block={block} />
        ))}
      </div>
      <div className="player-controls">
        <p className="player-event">
          <span className="chip type" data-family={familyOf(event?.type ?? "")}>
            {event ? oneLine(event.type, 60) : "the beginning"}
          </span>
          <span className="small">
            {at.toLocaleString("en")} of {events.length.toLocaleString("en")} · {duration(times[at - 1] ?? 0)} of {duration(end)}
            {event ? ` · ${new Date(event.timestamp).toLocaleString()}` : ""}
          </span>
        </p>
        <input
          type="range"
          min={0}
          max={events.length}
          value={at}
          aria-label="Event"
          aria-valuetext={`${at} of ${events.length}: ${event?.type ?? "the beginning"}`}
          onChange={(change) => (setPlaying(false), setAt(Number(change.target.value)))}
        />
        <div className="player-buttons">
          <button
            type="button"
            className="primary"
            onClick={() => {
              if (!isPlaying && at >= events.length) setAt(0);
              setPlaying(!isPlaying);
            }}
          >
            <Icon name={isPlaying ? "pause" : "play"} /> {isPlaying ? "Pause" : "Play"}
          </button>
          <button type="button" className="quiet" disabled={at === 0} onClick={() => setAt(at - 1)}>
            Back
          </button>
          <button type="button" className="quiet" disabled={at === events.length} onClick={() => setAt(at + 1)}>
            Next
          </button>
          <label>
            <span>Speed</span>
            <select value={speed} onChange={(change) => setSpeed(Number(change.target.value))}>
              {SPEEDS.map((each) => (
                <option key={each} value={each}>
                  {each === 1 ? "as recorded" : `${each}×`}
                </option>
              ))}
            </select>
          </label>
          <label>
            <span>Silences</span>
            <select value={silence} onChange={(change) => setSilence(Number(change.target.value))}>
              {SILENCES.map((each) => (
                <option key={each} value={each}>
                  {each === Infinity ? "as recorded" : `at most ${duration(each)}`}
                </option>
              ))}
            </select>
          </label>
        </div>
      </div>
    </div>
  );
}
