/** The raw log: a table of every event, filters, and an inspector that shows one event as each dialect spells it. */

import { useCallback, useEffect, useMemo, useRef, useState } from "react";
import type { Rows, Search } from "../live/rows.js";
import { PagedRows, ScannedRows } from "../live/rows.js";
import { client, explain } from "../live/server.js";
import type { LiveSession } from "../live/session.js";
import { useStore } from "../live/store.js";
import type { AgentEvent } from "../model/client.js";
import { placeOf } from "../model/client.js";
import { curlFrom } from "../model/curl.js";
import { count, oneLine } from "../model/text.js";
import { Icon } from "./Icons.js";
import { Inspector } from "./Inspector.js";
import { copy } from "./Prose.js";
import type { TableHandle } from "./Table.js";
import { Table } from "./Table.js";

const TYPES = [
  "user_message",
  "agent_run_start",
  "agent_run_end",
  "assistant_message_start",
  "assistant_message_delta",
  "assistant_message",
  "assistant_thinking_delta",
  "assistant_thinking_message",
  "tool_call",
  "tool_execution_start",
  "tool_result",
  "error",
  "session_start",
];

interface Filters {
  type: string;
  turnId: string;
  since: string;
  until: string;
  text: string;
  deltas: boolean;
  order: "asc" | "desc";
}

const NONE: Filters = { type: "", turnId: "", since: "", until: "", text: "", deltas: false, order: "asc" };

export function EventsView({ live, target }: { live: LiveSession; target: string | undefined }) {
  const [filters, setFilters] = useState(NONE);
  const [selected, setSelected] = useState<AgentEvent>();
  const [index, setIndex] = useState<number>();
  const [problem, setProblem] = useState("");
  const table = useRef<TableHandle>(null);
  const rows = useRows(live, filters);
  const state = useStore(rows.state);
  const { conversation, details } = useStore(live.state);
  useEffect(() => rows.refresh(), [conversation.lastPlace, rows]);
  useEffect(() => setIndex(undefined), [rows]);
  useEffect(() => {
    if (target === undefined) return;
    const place = placeOf(target);
    if (place === undefined) return;
    const page = client.session(live.id).page({ after: place - 1, limit: 1, deltas: true });
    page.then(({ events }) => setSelected(events[0])).catch((error: unknown) => setProblem(explain(error)));
  }, [target, live.id]);

  const select = (row: number) => {
    setIndex(row);
    const event = rows.at(row);
    if (event) setSelected(event);
  };
  const set = (change: Partial<Filters>) => setFilters({ ...filters, ...change });
  const isFiltered = JSON.stringify({ ...filters, order: "asc" }) !== JSON.stringify(NONE);
  const onSight = useCallback((from: number, to: number) => rows.want(from, to), [rows]);
  const origin = details?.createdAt ?? 0;

  return (
    <div className="events">
      <FilterBar filters={filters} onChange={set} onReset={isFiltered ? () => setFilters(NONE) : undefined} />
      <div className="table-bar">
        <p className="small" role="status">
          {count(state.total, "event")}
          {isFiltered && ` found in ${count(state.scanned, "event")}${state.isComplete ? "" : " so far"}`}
          {!isFiltered && !filters.deltas && " without deltas"}
          {state.isReading && " · reading"}
        </p>
        <button type="button" className="quiet" onClick={() => (table.current?.show(0), setIndex(0))}>
          First
        </button>
        <button type="button" className="quiet" onClick={() => table.current?.show(state.total - 1)}>
          Last
        </button>
      </div>
      {(problem || state.problem) && (
        <p className="notice" role="alert">
          {problem || state.problem}
        </p>
      )}
      <div className="split" data-open={selected !== undefined || undefined}>
        <Table
          label="Events"
          handle={table}
          total={state.total}
          selected={index}
          onSelect={select}
          onSight={onSight}
          head={
            <>
              <span role="columnheader">Place</span>
              <span role="columnheader">Time</span>
              <span role="columnheader">Type</span>
              <span role="columnheader">Data</span>
            </>
          }
          row={(at) => <EventRow event={rows.at(at)} origin={origin} />}
        />
        {selected && (
          <Inspector
            event={selected}
            sessionId={live.id}
            onClose={() => (setSelected(undefined), table.current?.focus())}
            onTurn={(turnId) => set({ turnId, deltas: true })}
            onCurl={() => copy(curlFrom(location.origin, live.id, selected.id))}
          />
        )}
      </div>
    </div>
  );
}

function useRows(live: LiveSession, filters: Filters): Rows {
  const { text } = filters;
  const [settled, setSettled] = useState(text);
  useEffect(() => {
    const timer = setTimeout(() => setSettled(text), 250);
    return () => clearTimeout(timer);
  }, [text]);
  const { type, turnId, since, until, deltas, order } = filters;
  const rows = useMemo(() => {
    const session = client.session(live.id);
    const search: Search = {
      order,
      text: settled,
      ...(type === "" ? {} : { types: [type] }),
      ...(turnId === "" ? {} : { turnId }),
      ...(since === "" ? {} : { since: timeOf(since) }),
      ...(until === "" ? {} : { until: timeOf(until) }),
      ...(deltas || type.endsWith("_delta") ? { deltas: true } : {}),
    };
    const isPlain = Object.keys(search).length === 2 && settled === "" && order === "asc";
    return isPlain ? new PagedRows(session) : new ScannedRows(session, search);
  }, [live.id, settled, type, turnId, since, until, deltas, order]);
  useEffect(() => () => rows.close(), [rows]);
  return rows;
}

/** Epoch ms. While a year is being written it is the year 2, or 20: before the epoch there is no event. */
function timeOf(written: string): number {
  return Math.max(0, new Date(written).getTime());
}

function EventRow({ event, origin }: { event: AgentEvent | undefined; origin: number }) {
  if (!event) return <span role="gridcell" className="blank" aria-label="Being read" />;
  return (
    <>
      <span role="gridcell" className="place">
        {placeOf(event.id)}
      </span>
      <span role="gridcell" className="when" title={new Date(event.timestamp).toLocaleString()}>
        {origin > 0 ? `+${((event.timestamp - origin) / 1000).toFixed(3)}` : event.timestamp}
      </span>
      <span role="gridcell" className="type" data-family={familyOf(event.type)}>
        {oneLine(event.type, 60)}
      </span>
      <span role="gridcell" className="summary">
        <bdi>{summaryOf(event.data)}</bdi>
      </span>
    </>
  );
}

export function familyOf(type: string): string {
  if (type.startsWith("assistant_thinking")) return "thinking";
  if (type.startsWith("assistant_message")) return "text";
  if (type.startsWith("tool")) return "tool";
  if (type === "user_message") return "user";
  if (type === "error") return "error";
  if (type.startsWith("agent_run") || type.startsWith("session_")) return "frame";
  return "other";
}

/** The first words of what an event says, however large it is. */
function summaryOf(data: unknown, longest = 160): string {
  if (typeof data === "string") return oneLine(data, longest);
  if (typeof data !== "object" || data === null) return String(data);
  const parts: string[] = [];
  let length = 0;
  for (const [name, value] of Object.entries(data)) {
    if (length > longest) break;
    const word = typeof value === "object" && value !== null ? (Array.isArray(value) ? "[…]" : "{…}") : String(value).slice(0, 400);
    parts.push(`${name}: ${word}`);
    length += word.length;
  }
  return oneLine(parts.join(" · "), longest);
}

interface BarProps {
  filters: Filters;
  onChange: (change: Partial<Filters>) => void;
  onReset: (() => void) | undefined;
}

function FilterBar({ filters, onChange, onReset }: BarProps) {
  const [isOpen, setOpen] = useState(false);
  return (
    <form className="filters" data-open={isOpen || undefined} role="search" aria-label="Filter events" onSubmit={(event) => event.preventDefault()}>
      <label>
        <span>Text</span>
        <input type="search" value={filters.text} onChange={(event) => onChange({ text: event.target.value })} />
      </label>
      <button type="button" className="quiet more" aria-expanded={isOpen} onClick={() => setOpen(!isOpen)}>
        Filters
      </button>
      <label>
        <span>Type</span>
        <input list="types" value={filters.type} placeholder="any" onChange={(event) => onChange({ type: event.target.value })} />
        <datalist id="types">
          {TYPES.map((type) => (
            <option key={type} value={type} />
          ))}
        </datalist>
      </label>
      <label>
        <span>Turn</span>
        <input value={filters.turnId} placeholder="any" onChange={(event) => onChange({ turnId: event.target.value.trim() })} />
      </label>
      <label>
        <span>Since</span>
        <input type="datetime-local" step="1" value={filters.since} onChange={(event) => onChange({ since: event.target.value })} />
      </label>
      <label>
        <span>Until</span>
        <input type="datetime-local" step="1" value={filters.until} onChange={(event) => onChange({ until: event.target.value })} />
      </label>
      <label>
        <span>Order</span>
        <select value={filters.order} onChange={(event) => onChange({ order: event.target.value as "asc" | "desc" })}>
          <option value="asc">Oldest first</option>
          <option value="desc">Newest first</option>
        </select>
      </label>
      <label className="check">
        <input type="checkbox" checked={filters.deltas} onChange={(event) => onChange({ deltas: event.target.checked })} />
        <span>Deltas</span>
      </label>
      {onReset && (
        <button type="button" className="quiet" onClick={onReset}>
          <Icon name="close" size={14} /> Clear
        </button>
      )}
    </form>
  );
}
