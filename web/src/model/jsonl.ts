/**
 * A session's events as a file: an envelope a line. Pure.
 *
 * Anybody may have written the file: of a known type is only what has the fields that make it so.
 */

import type { AgentEvent, KnownType } from "./client.js";
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
    const { id, type, timestamp, data } = found as Partial<AgentEvent>;
    if (typeof id !== "string" || placeOf(id) === undefined || typeof type !== "string") return undefined;
    return Number.isFinite(timestamp) && hasFields(type, data) ? (found as AgentEvent) : undefined;
  } catch {
    return undefined;
  }
}

/** What the fields of known types are; more may be there. */
const FIELDS: Record<KnownType, Record<string, "string" | "number" | "boolean">> = {
  session_start: { agentName: "string" },
  session_end: {},
  user_message: {},
  agent_run_start: { turnId: "string" },
  agent_run_end: { turnId: "string", status: "string", elapsedMs: "number" },
  assistant_message_start: { messageId: "string" },
  assistant_message_delta: { messageId: "string", delta: "string" },
  assistant_message: { messageId: "string", content: "string" },
  assistant_thinking_delta: { messageId: "string", delta: "string" },
  assistant_thinking_message: { messageId: "string", content: "string", durationMs: "number" },
  tool_call: { id: "string", name: "string" },
  tool_execution_start: { toolCallId: "string", name: "string" },
  tool_result: { toolCallId: "string", name: "string", success: "boolean", elapsedMs: "number" },
  error: { error: "string", code: "string" },
};

function hasFields(type: string, data: unknown): boolean {
  if (!Object.hasOwn(FIELDS, type)) return true;
  if (typeof data !== "object" || data === null) return false;
  return Object.entries(FIELDS[type as KnownType]).every(([name, kind]) => typeof (data as Record<string, unknown>)[name] === kind);
}
