/** A session's events as a file: an envelope a line. Pure. */

import type { AgentEvent } from "./client.js";
import { placeOf } from "./client.js";

/** What a file holds, in the log's order; `skipped` counts the lines that are no events. */
export interface Imported {
  readonly events: AgentEvent[];
  readonly skipped: number;
}

export function fromJsonl(text: string): Imported {
  const events: AgentEvent[] = [];
  let skipped = 0;
  for (const line of text.split("\n")) {
    if (line.trim() === "") continue;
    const event = eventOf(line);
    if (event === undefined) skipped += 1;
    else events.push(event);
  }
  events.sort((one, other) => (placeOf(one.id) ?? 0) - (placeOf(other.id) ?? 0));
  return { events, skipped };
}

export function toJsonl(events: readonly AgentEvent[]): string {
  return events.map((event) => `${JSON.stringify(event)}\n`).join("");
}

function eventOf(line: string): AgentEvent | undefined {
  try {
    const found: unknown = JSON.parse(line);
    if (typeof found !== "object" || found === null) return undefined;
    const { id, type, timestamp } = found as Partial<AgentEvent>;
    const isEvent = typeof id === "string" && placeOf(id) !== undefined && typeof type === "string";
    return isEvent && typeof timestamp === "number" ? (found as AgentEvent) : undefined;
  } catch {
    return undefined;
  }
}
