/** Fields of events whose shape is not known. Pure. */

import type { AgentEvent } from "./client.js";

/** Whether the event's type or data hold these words, which are in small letters: as they are read, or as JSON spells them. */
export function mentions(event: AgentEvent, words: string): boolean {
  if (event.type.toLowerCase().includes(words)) return true;
  const text = JSON.stringify(event.data ?? null).toLowerCase();
  return text.includes(words) || text.includes(JSON.stringify(words).slice(1, -1));
}

/** A field of an event's data as text; empty where there is none. */
export function fieldText(event: AgentEvent, name: string): string {
  const { data } = event;
  if (typeof data !== "object" || data === null) return "";
  const value = (data as Record<string, unknown>)[name];
  return typeof value === "string" ? value : "";
}
