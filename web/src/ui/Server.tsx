/** How the server is: health, replicas, what it does, how it is set up. */

import { useEffect, useRef, useState } from "react";
import type { Overview } from "../live/server.js";
import { look } from "../live/server.js";
import type { Figures, Pulse, Scrape } from "../model/metrics.js";
import { endings, parseMetrics, pulse } from "../model/metrics.js";
import { duration, figure, size } from "../model/text.js";
import { Area } from "./Chart.js";

const INTERVAL_MS = 1000;
const MOST = 120;

interface Health {
  uptime: number;
  memory: { used: number; total: number };
}

interface Seen {
  pulses: Pulse[];
  figures: Figures;
  health: Health | undefined;
  problems: Record<string, string>;
  overview: Overview | undefined;
  isReachable: boolean;
}

const NOTHING: Seen = { pulses: [], figures: new Map(), health: undefined, problems: {}, overview: undefined, isReachable: true };

export function ServerView({ isHidden }: { isHidden: boolean }) {
  const seen = useServer(isHidden);
  const last = seen.pulses.at(-1);
  const isReady = seen.isReachable && Object.keys(seen.problems).length === 0;
  const ended = endings(seen.figures);
  return (
    <div className="server" tabIndex={0} role="region" aria-label="Server">
      <p className="health" data-state={isReady ? "ready" : "not-ready"} role="status">
        {!seen.isReachable
          ? "The server can't be reached."
          : isReady
            ? "Ready"
            : `Not ready: ${Object.entries(seen.problems).map(([part, what]) => `${part} ${what}`).join(", ")}`}
      </p>
      <dl className="tiles">
        <Tile name="Version" value={seen.overview?.version ?? "–"} />
        <Tile name="Up for" value={seen.health ? duration(seen.health.uptime * 1000) : "–"} />
        <Tile name="Memory" value={seen.health ? size(seen.health.memory.used) : "–"} />
        <Tile name="Replicas" value={seen.overview ? String(seen.overview.replicas.length) : "–"} />
        <Tile name="Turns run here" value={figure(Object.values(ended).reduce((sum, each) => sum + each, 0))} />
        <Tile name="Events stored" value={figure(seen.figures.get("tarko_events_stored_total") ?? NaN)} />
      </dl>
      <div className="charts">
        <Figure name="Events per second" pulses={seen.pulses} read={(each) => each.eventsPerSecond} least={5} />
        <Figure name="Commit latency" unit=" ms" pulses={seen.pulses} read={(each) => each.commitMs} least={2} />
        <Figure name="Turns running" pulses={seen.pulses} read={(each) => each.turnsRunning} least={2} />
        <Figure name="Readers" pulses={seen.pulses} read={(each) => each.readers} least={2} />
        <Figure name="Events not stored yet" pulses={seen.pulses} read={(each) => each.waiting} least={10} />
        <Figure name="Database connections in use" pulses={seen.pulses} read={(each) => each.connections} least={4} />
      </div>
      {last === undefined && <p className="small">The charts begin with the second look, a second from now.</p>}
      <section>
        <h2>Turns by ending</h2>
        {Object.keys(ended).length === 0 ? (
          <p className="small">None has ended since the server started.</p>
        ) : (
          <ul className="endings">
            {Object.entries(ended).map(([status, number]) => (
              <li key={status} data-status={status}>
                {status} <strong>{number}</strong>
              </li>
            ))}
          </ul>
        )}
      </section>
      <section>
        <h2>Replicas</h2>
        <ul className="replicas">
          {seen.overview?.replicas.map((replica) => (
            <li key={replica.id}>
              <code>{replica.id}</code> {replica.isThis && <span className="tag">this one</span>}
              <span className="small"> last sign of life {duration(replica.beatAgeMs)} ago</span>
            </li>
          ))}
        </ul>
      </section>
      <section>
        <h2>More</h2>
        <ul className="links">
          <li>
            <a href="/docs">The API, as OpenAPI</a>
          </li>
          <li>
            <a href="/ui/">The official Tarko UI</a>
          </li>
          <li>
            <a href="/metrics">Metrics for Prometheus</a>
          </li>
          <li>
            <a href="/.well-known/agent-card.json">The agent's A2A card</a>
          </li>
        </ul>
      </section>
      <section>
        <h2>What is configured</h2>
        <div className="wide" tabIndex={0} role="region" aria-label="Settings">
          <table className="settings">
            <thead>
              <tr>
                <th scope="col">Setting</th>
                <th scope="col">Value</th>
                <th scope="col">Meaning</th>
              </tr>
            </thead>
            <tbody>
              {seen.overview?.settings.map((setting) => (
                <tr key={setting.name} data-set={!setting.isDefault || undefined}>
                  <th scope="row">
                    <code>{setting.name}</code>
                  </th>
                  <td>
                    <code>{setting.value}</code>
                  </td>
                  <td>{setting.description}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      </section>
    </div>
  );
}

function useServer(isHidden: boolean): Seen {
  const [seen, setSeen] = useState(NOTHING);
  const before = useRef<Scrape>(undefined);
  useEffect(() => {
    if (isHidden) return;
    const stop = new AbortController();
    let timer: ReturnType<typeof setTimeout>;
    let turn = 0;
    const tick = async () => {
      const slow = turn++ % 5 === 0;
      try {
        const found = await scrape(stop.signal, slow);
        const now: Scrape = { at: Date.now(), figures: found.figures };
        const next = before.current && pulse(before.current, now);
        before.current = now;
        setSeen((old) => ({
          ...old,
          ...found,
          overview: found.overview ?? old.overview,
          pulses: next ? [...old.pulses, next].slice(-MOST) : old.pulses,
          isReachable: true,
        }));
      } catch {
        if (!stop.signal.aborted) setSeen((old) => ({ ...old, isReachable: false }));
      }
      if (!stop.signal.aborted) timer = setTimeout(() => void tick(), INTERVAL_MS);
    };
    void tick();
    return () => {
      stop.abort();
      clearTimeout(timer);
    };
  }, [isHidden]);
  return seen;
}

async function scrape(signal: AbortSignal, isWhole: boolean) {
  const told = async <T,>(path: string) => {
    const answer = await look(path, signal);
    return answer.ok ? ((await answer.json()) as T) : undefined; // a refusal: without its database the server has no overview
  };
  const [metrics, health, ready, overview] = await Promise.all([
    look("/metrics", signal).then((answer) => answer.text()),
    told<Health>("/api/v1/health"),
    look("/readyz", signal).then(async (answer) => (await answer.json()) as { problems?: Record<string, string> }),
    isWhole ? told<Overview>("/api/v1/overview") : undefined,
  ]);
  return { figures: parseMetrics(metrics), health, problems: ready.problems ?? {}, overview };
}

function Tile({ name, value }: { name: string; value: string }) {
  return (
    <div>
      <dt>{name}</dt>
      <dd>{value}</dd>
    </div>
  );
}

interface FigureProps {
  name: string;
  unit?: string;
  pulses: readonly Pulse[];
  read: (pulse: Pulse) => number;
  least: number;
}

function Figure({ name, unit = "", pulses, read, least }: FigureProps) {
  const values = pulses.map(read);
  const now = values.at(-1);
  return (
    <figure className="chart">
      <figcaption>
        <span>{name}</span>
        <strong>{now === undefined ? "–" : `${figure(now)}${unit}`}</strong>
      </figcaption>
      <Area values={values} label={`${name} in the last two minutes`} least={least} />
      <p className="small">at most {values.length === 0 ? "–" : `${figure(Math.max(...values))}${unit}`}</p>
    </figure>
  );
}
