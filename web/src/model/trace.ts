/**
 * A turn as spans on a time axis. Pure.
 *
 * Times are milliseconds since the turn was accepted where its id says when that was (a UUIDv7 begins with it), else
 * since it began. A span that has not ended ends at `now`.
 */

import type { AgentEvent } from "./client.js";
import { isEvent, placeOf } from "./client.js";
import type { TurnStatus } from "./conversation.js";

export interface Span {
  readonly key: string;
  readonly kind: "queue" | "thinking" | "text" | "tool";
  readonly label: string;
  readonly start: number;
  readonly end: number | undefined;
  readonly hasFailed: boolean;
  readonly eventId: string | undefined;
}

/** A moment worth a mark: an error, a retry, an event of the agent's own. */
export interface Mark {
  readonly at: number;
  readonly type: string;
  readonly eventId: string;
}

export interface Trace {
  readonly turnId: string | undefined;
  readonly prompt: string;
  /** Epoch ms of 0 on the axis. */
  readonly origin: number;
  readonly spans: readonly Span[];
  readonly marks: readonly Mark[];
  readonly queueMs: number;
  /** From the start of the run to the first piece of text; undefined without any. */
  readonly firstTextMs: number | undefined;
  /** From the start of the run to its ending. */
  readonly totalMs: number | undefined;
  /** On the axis: where the last known event is. */
  readonly lastAt: number;
  readonly status: TurnStatus | "running";
  /** When each delta came, on the axis. */
  readonly beats: readonly number[];
  readonly characters: number;
  readonly tools: number;
}

interface Open {
  key: string;
  kind: Span["kind"];
  label: string;
  start: number;
  end: number | undefined;
  hasFailed: boolean;
  eventId: string | undefined;
}

/** The trace of one turn's events, in the log's order. */
export function trace(events: readonly AgentEvent[]): Trace {
  const tracing = new Tracing(events);
  for (const event of events) tracing.take(event);
  return tracing.result();
}

class Tracing {
  readonly #spans: Open[] = [];
  readonly #marks: Mark[] = [];
  readonly #beats: number[] = [];
  readonly #origin: number;
  readonly #began: number;
  readonly #turnId: string | undefined;
  #prompt = "";
  #firstText: number | undefined;
  #totalMs: number | undefined;
  #status: Trace["status"] = "running";
  #characters = 0;
  #tools = 0;
  #last = 0;

  constructor(events: readonly AgentEvent[]) {
    const start = events.find((event) => isEvent(event, "agent_run_start"));
    this.#began = start?.timestamp ?? events[0]?.timestamp ?? 0;
    this.#turnId = start && isEvent(start, "agent_run_start") ? start.data.turnId : undefined;
    const accepted = this.#turnId === undefined ? undefined : acceptedAt(this.#turnId);
    // Another machine's clock may have written the start: a wait below nothing is none.
    this.#origin = accepted === undefined ? this.#began : Math.min(accepted, this.#began);
    const waited = this.#began - this.#origin;
    if (waited >= 20) {
      const queue = { key: "queue", kind: "queue" as const, label: "waited in the queue", start: 0, end: waited };
      this.#spans.push({ ...queue, hasFailed: false, eventId: start?.id });
    }
  }

  take(event: AgentEvent): void {
    const at = Math.max(0, event.timestamp - this.#origin);
    this.#last = Math.max(this.#last, at);
    if (event.metadata?.source === "client") this.#marks.push({ at, type: event.type, eventId: event.id });
    else if (isEvent(event, "user_message")) this.#prompt = promptOf(event.data.content);
    else if (isEvent(event, "assistant_message_delta")) this.#piece("text", event, event.data.delta, at);
    else if (isEvent(event, "assistant_thinking_delta")) this.#piece("thinking", event, event.data.delta, at);
    else if (isEvent(event, "assistant_thinking_message")) this.#thought(event, at);
    else if (isEvent(event, "assistant_message")) this.#said(event, at);
    else if (isEvent(event, "tool_call")) this.#called(event, at);
    else if (isEvent(event, "tool_result")) this.#returned(event, at);
    else if (isEvent(event, "agent_run_end")) this.#ended(event, at);
    else if (!QUIET.has(event.type)) this.#marks.push({ at, type: event.type, eventId: event.id });
  }

  result(): Trace {
    return {
      turnId: this.#turnId,
      prompt: this.#prompt,
      origin: this.#origin,
      spans: this.#spans.toSorted((one, other) => one.start - other.start),
      marks: this.#marks,
      queueMs: this.#began - this.#origin,
      firstTextMs: this.#firstText,
      totalMs: this.#totalMs,
      lastAt: this.#last,
      status: this.#status,
      beats: this.#beats,
      characters: this.#characters,
      tools: this.#tools,
    };
  }

  /** A piece of speech: it lengthens the last span of its kind unless something else came in between. */
  #piece(kind: "text" | "thinking", event: AgentEvent, delta: string, at: number): void {
    this.#beats.push(at);
    if (kind === "text") {
      this.#characters += delta.length;
      this.#firstText ??= event.timestamp - this.#began;
    }
    const last = this.#spans.findLast((span) => span.kind !== "tool");
    if (last?.kind === kind && last.end === undefined) return;
    this.#closeSpeech(at);
    this.#open(kind, kind === "text" ? "text" : "thinking", event, at);
  }

  #thought(event: AgentEvent, at: number): void {
    const last = this.#spans.findLast((span) => span.kind === "thinking" && span.end === undefined);
    if (last) {
      last.end = at;
      return;
    }
    const durationMs = isEvent(event, "assistant_thinking_message") ? event.data.durationMs : 0;
    this.#open("thinking", "thinking", event, Math.max(0, at - durationMs)).end = at;
  }

  /** A message closes. Where its deltas are gone, its metadata tell when its text began. */
  #said(event: AgentEvent, at: number): void {
    const last = this.#spans.findLast((span) => span.kind === "text" && span.end === undefined);
    this.#closeSpeech(at);
    const content = isEvent(event, "assistant_message") ? event.data.content : "";
    if (last || content === "" || this.#beats.length > 0) return;
    const { ttftMs, ttltMs } = event.metadata ?? {}; // a file may leave them out
    const length = typeof ttftMs === "number" && typeof ttltMs === "number" ? Math.max(0, ttltMs - ttftMs) : 0;
    const start = Math.max(0, at - length);
    this.#characters += content.length;
    this.#firstText ??= this.#origin + start - this.#began;
    this.#open("text", "text", event, start).end = at;
  }

  #called(event: AgentEvent, at: number): void {
    if (!isEvent(event, "tool_call")) return;
    this.#closeSpeech(at);
    this.#tools += 1;
    this.#open("tool", event.data.name, event, at).key = `tool ${event.data.id}`;
  }

  #returned(event: AgentEvent, at: number): void {
    if (!isEvent(event, "tool_result")) return;
    const span = this.#spans.findLast((each) => each.key === `tool ${event.data.toolCallId}`);
    if (!span) return;
    span.end = at;
    span.hasFailed = !event.data.success;
  }

  #ended(event: AgentEvent, at: number): void {
    if (!isEvent(event, "agent_run_end")) return;
    this.#status = event.data.status;
    this.#totalMs = event.data.elapsedMs;
    for (const span of this.#spans) span.end ??= at;
  }

  #open(kind: Span["kind"], label: string, event: AgentEvent, start: number): Open {
    const span = { key: event.id, kind, label, start, end: undefined, hasFailed: false, eventId: event.id };
    this.#spans.push(span);
    return span;
  }

  #closeSpeech(at: number): void {
    for (const span of this.#spans) if (span.kind !== "tool") span.end ??= at;
  }
}

const QUIET = new Set([
  "agent_run_start",
  "assistant_message_start",
  "tool_execution_start",
  "session_start",
  "session_end",
]);

const BASE32 = "abcdefghijklmnopqrstuvwxyz234567";

/** When a turn was accepted, in epoch ms: its id is a UUIDv7 in base32. Undefined for other ids. */
export function acceptedAt(turnId: string): number | undefined {
  const part = /^turn_([a-z2-7]{26})$/.exec(turnId)?.[1];
  if (part === undefined) return undefined;
  let value = 0; // the first ten digits are 50 bits; the time is the first 48
  for (const digit of part.slice(0, 10)) value = value * 32 + BASE32.indexOf(digit);
  return Math.floor(value / 4);
}

/** The text of what the user said. */
export function promptOf(content: unknown): string {
  if (typeof content === "string") return content;
  if (!Array.isArray(content)) return "";
  return content
    .map((part: unknown) => (part as { text?: unknown } | null)?.text)
    .filter((text) => typeof text === "string")
    .join(" ");
}

/** How many beats fall into each of `buckets` equal parts of the axis, per second. */
export function pace(beats: readonly number[], until: number, buckets: number): number[] {
  const counts = new Array<number>(buckets).fill(0);
  if (!(until > 0)) return counts;
  for (const beat of beats) {
    const at = Math.min(buckets - 1, Math.floor((beat / until) * buckets));
    counts[at] = (counts[at] ?? 0) + 1;
  }
  const seconds = until / buckets / 1000;
  return counts.map((count) => count / seconds);
}

/** Round steps for an axis of that length, at most `most` of them. */
export function ticks(from: number, to: number, most = 8): number[] {
  const wanted = (to - from) / most;
  if (!(wanted > 0)) return [];
  const power = 10 ** Math.floor(Math.log10(wanted));
  const step = [1, 2, 5, 10].map((each) => each * power).find((each) => each >= wanted) ?? power * 10;
  const found: number[] = [];
  for (let at = Math.ceil(from / step) * step; at <= to; at += step) found.push(at);
  return found;
}

/** The events of each turn of a log, oldest first; what lies beside turns is left out. */
export function turnsOf(events: readonly AgentEvent[]): AgentEvent[][] {
  const turns: AgentEvent[][] = [];
  let open: AgentEvent[] | undefined;
  for (const event of events) {
    if (placeOf(event.id) === undefined) continue;
    if (isEvent(event, "user_message")) turns.push((open = []));
    open?.push(event);
    if (isEvent(event, "agent_run_end")) open = undefined;
  }
  return turns;
}
