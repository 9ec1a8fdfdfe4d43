/** Words for what is measured, and foreign text made harmless. Pure. */

const ESCAPES = /\u001b(?:\[[0-?]*[ -/]*[@-~]|\][^\u0007\u001b]*(?:\u0007|\u001b\\)|[@-Z\\-_])/g;
const CONTROLS = /[\u0000-\u0008\u000b-\u001f\u007f]/g;
/** Marks that would pile up over the lines above: no writing puts more than a few on a sign. */
const PILES = /(\p{M}{8})\p{M}+/gu;
const DIRECTIONS = /[\u202a-\u202e\u2066-\u2069]/g;

/** Text without a terminal's colours; other control characters and turns of direction become visible, marks stay low. */
export function visible(text: string): string {
  return text
    .replace(/\r\n/g, "\n")
    .replace(ESCAPES, "")
    .replace(CONTROLS, (sign) => (sign === "\u007f" ? "\u2421" : String.fromCharCode(0x2400 + sign.charCodeAt(0))))
    .replace(DIRECTIONS, "\u25a1")
    .replace(PILES, "$1");
}

/** A line that names something: one line, no longer than `longest` signs. */
export function oneLine(text: string, longest = 200): string {
  const start = visible(text.slice(0, longest * 4)).replace(/\s+/g, " ").trim();
  const signs = [...start];
  return signs.length > longest ? `${signs.slice(0, longest).join("")}…` : start;
}

/** A time span: "240 ms", "3.2 s", "4 min 10 s", "3 h 5 min". */
export function duration(ms: number | undefined): string {
  if (ms === undefined || !(ms >= 0)) return "a while";
  if (ms < 1000) return `${Math.round(ms)} ms`;
  const seconds = ms / 1000;
  if (seconds < 59.95) return `${seconds.toFixed(1)} s`;
  const minutes = Math.floor(Math.round(seconds) / 60);
  if (minutes < 60) return `${minutes} min ${Math.round(seconds) % 60} s`;
  return `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

/** How long ago, roughly: "now", "5 min", "3 h", "2 d". */
export function age(ms: number): string {
  const minutes = ms / 60_000;
  if (minutes < 1) return "now";
  if (minutes < 60) return `${Math.floor(minutes)} min`;
  if (minutes < 24 * 60) return `${Math.floor(minutes / 60)} h`;
  return `${Math.floor(minutes / (24 * 60))} d`;
}

/** A number of things: "1 event", "1,200 events". */
export function count(number: number, what: string): string {
  return `${number.toLocaleString("en")} ${what}${number === 1 ? "" : "s"}`;
}

/** A size: "512 B", "1.4 kB", "5.0 MB". */
export function size(bytes: number): string {
  if (bytes < 1000) return `${Math.round(bytes)} B`;
  if (bytes < 1_000_000) return `${(bytes / 1000).toFixed(1)} kB`;
  if (bytes < 1_000_000_000) return `${(bytes / 1_000_000).toFixed(1)} MB`;
  return `${(bytes / 1_000_000_000).toFixed(1)} GB`;
}

/** A figure short enough for a tile. */
export function figure(value: number): string {
  if (!Number.isFinite(value)) return "–";
  if (value >= 10_000) return `${(value / 1000).toFixed(value >= 100_000 ? 0 : 1)} k`;
  if (value >= 100 || Number.isInteger(value)) return String(Math.round(value));
  return value.toFixed(value >= 10 ? 1 : 2);
}

/** Text as it is, anything else as indented JSON. */
export function pretty(data: unknown): string {
  return typeof data === "string" ? data : (JSON.stringify(data, null, 2) ?? "");
}

/** A session's name out of what was asked in it first. */
export function nameFrom(text: string, longest = 60): string {
  return oneLine(text.replace(/[\p{C}\s]+/gu, " "), longest);
}
