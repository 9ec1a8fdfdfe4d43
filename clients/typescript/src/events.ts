/** Events: the types of their data are generated, what every event has is written here. */

import { NotTarko } from "./errors.js";
import type { EventData } from "./generated.js";

/** Where an event comes from; `traceId` is the trace of the request that caused it. */
export interface EventMetadata {
  source?: "user" | "agent" | "server" | "client";
  version?: string;
  traceId?: string;
  [name: string]: unknown;
}

/** An event of a session's log. `id` is also the cursor to resume from; `timestamp` is epoch milliseconds. */
export interface Envelope<Type extends string, Data> {
  id: string;
  type: Type;
  timestamp: number;
  sessionId: string;
  data: Data;
  metadata: EventMetadata;
}

/** The types that the server itself writes. */
export type KnownType = keyof EventData;

/** The event of a type. */
export type EventOf<Type extends KnownType> = { [Each in Type]: Envelope<Each, EventData[Each]> }[Type];

/** Every event that the server itself writes. */
export type KnownEvent = EventOf<KnownType>;

/** An agent's or a client's own event, or an answer such as `query_queued`. */
export type CustomEvent = Envelope<string, unknown>;

/** Anything that a session's log holds. Narrow it with `isEvent`. */
export type AgentEvent = KnownEvent | CustomEvent;

/** Whether the event is of this type, whose data is then known. */
export function isEvent<Type extends KnownType>(event: AgentEvent, type: Type): event is EventOf<Type> {
  return event.type === type;
}

/** The place that an event id or a cursor names; undefined when it names none. */
export function placeOf(cursor: string): number | undefined {
  const found = /(?:^|_)([0-9]+)(?:~[0-9]+)?$/.exec(cursor);
  return found ? Number(found[1]) : undefined;
}

/** Whether the event is an answer of the server that is not in the log, such as `query_queued`. */
export function isControl(event: AgentEvent): boolean {
  return event.id.includes("~") || event.id.startsWith("ctl_");
}

/** Whether the log keeps the event for a while only: a delta, which the message that closes it repeats. */
export function isPassing(event: AgentEvent): boolean {
  return event.type.endsWith("_delta");
}

/** A field of an event's data; undefined where there is none. */
export function fieldOf(event: AgentEvent, name: string): unknown {
  const { data } = event;
  return isObject(data) ? data[name] : undefined;
}

/** A field of an event's data as text; empty where there is none. */
export function textOf(event: AgentEvent, name: string): string {
  const value = fieldOf(event, name);
  return typeof value === "string" ? value : "";
}

/** Reads an envelope. Throws NotTarko when it is none. */
export function readEvent(text: string): AgentEvent {
  let event: unknown;
  try {
    event = JSON.parse(text);
  } catch (cause) {
    throw new NotTarko(`The server sent an event that isn't JSON: ${text.slice(0, 80)}`, { cause });
  }
  if (!isObject(event) || typeof event["type"] !== "string") {
    throw new NotTarko(`The server sent an event without a type: ${text.slice(0, 80)}`);
  }
  if (typeof event["id"] !== "string") event["id"] = "";
  return event as unknown as AgentEvent;
}

export function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
