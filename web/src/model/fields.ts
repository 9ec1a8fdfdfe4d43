/** Fields of events whose shape is not known. Pure. */

import type { AgentEvent } from "./client.js";

/** A field of an event's data as text; empty where there is none. */
export function fieldText(event: AgentEvent, name: string): string {
  const { data } = event;
  if (typeof data !== "object" || data === null) return "";
  const value = (data as Record<string, unknown>)[name];
  return typeof value === "string" ? value : "";
}
