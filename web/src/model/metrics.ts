/** Prometheus' text, and what the difference of two scrapes says. Pure. */

/** Figures by name; those with labels by `name{labels}`, as they came. */
export type Figures = ReadonlyMap<string, number>;

export function parseMetrics(text: string): Figures {
  const figures = new Map<string, number>();
  for (const line of text.split("\n")) {
    const found = /^([a-zA-Z_:][\w:]*(?:\{[^}]*\})?)\s+(\S+)/.exec(line);
    if (found?.[1] !== undefined) figures.set(found[1], Number(found[2]));
  }
  return figures;
}

/** One look at a server. `at` is epoch ms. */
export interface Scrape {
  readonly at: number;
  readonly figures: Figures;
}

/** What a server does, at one moment or between two. */
export interface Pulse {
  readonly at: number;
  readonly eventsPerSecond: number;
  readonly commitMs: number;
  readonly readers: number;
  readonly turnsRunning: number;
  readonly waiting: number;
  readonly connections: number;
}

/** The pulse between two scrapes; undefined when the server was restarted in between. */
export function pulse(before: Scrape, now: Scrape): Pulse | undefined {
  const seconds = (now.at - before.at) / 1000;
  const grown = (name: string) => value(now, `tarko_${name}_total`) - value(before, `tarko_${name}_total`);
  const events = grown("events_stored");
  if (!(seconds > 0) || events < 0) return undefined;
  const commits = grown("commits");
  return {
    at: now.at,
    eventsPerSecond: events / seconds,
    commitMs: commits > 0 ? (grown("commit_seconds") / commits) * 1000 : 0,
    readers: value(now, "tarko_readers"),
    turnsRunning: value(now, "tarko_turns_running"),
    waiting: value(now, "tarko_events_waiting"),
    connections: value(now, "tarko_database_connections_busy"),
  };
}

/** How many turns ended how, since the server started. */
export function endings(figures: Figures): Record<string, number> {
  const found: Record<string, number> = {};
  for (const [name, count] of figures) {
    const status = /^tarko_turns_ended_total\{status="(\w+)"\}$/.exec(name)?.[1];
    if (status !== undefined) found[status] = count;
  }
  return found;
}

function value({ figures }: Scrape, name: string): number {
  return figures.get(name) ?? 0;
}
