/**
 * Rows of a table over a log, read when they come into sight.
 *
 * `PagedRows` jumps anywhere in the list of lasting events by offset; `ScannedRows` goes through the log with a filter,
 * a page at a time, and looks for text here because the server does not.
 */

import type { AgentEvent, Filter, Session } from "../model/client.js";
import { mentions } from "../model/fields.js";
import { explain, isStop } from "./server.js";
import { Store } from "./store.js";

export interface RowsState {
  /** Grows with each change, so that onlookers draw again. */
  readonly version: number;
  readonly total: number;
  readonly isReading: boolean;
  readonly isComplete: boolean;
  readonly scanned: number;
  readonly problem: string;
}

export interface Rows {
  readonly state: Store<RowsState>;
  at(index: number): AgentEvent | undefined;
  /** These are in sight. */
  want(from: number, to: number): void;
  /** There may be new events. */
  refresh(): void;
  close(): void;
}

const NOTHING: RowsState = { version: 0, total: 0, isReading: false, isComplete: false, scanned: 0, problem: "" };
const PAGE = 200;
const MOST_PAGES = 40;
const REFRESH_MS = 700;

export class PagedRows implements Rows {
  readonly state = new Store<RowsState>({ ...NOTHING, isComplete: true });
  readonly #pages = new Map<number, AgentEvent[]>();
  #wanted: [number, number] = [0, 1];
  #isReading = false;
  #refreshing: ReturnType<typeof setTimeout> | undefined;
  readonly #stop = new AbortController();

  constructor(private readonly session: Session) {
    void this.#read();
  }

  at(index: number): AgentEvent | undefined {
    return this.#pages.get(Math.floor(index / PAGE))?.[index % PAGE];
  }

  want(from: number, to: number): void {
    this.#wanted = [Math.floor(from / PAGE), Math.floor(Math.max(from, to) / PAGE)];
    void this.#read();
  }

  refresh(): void {
    this.#refreshing ??= setTimeout(() => {
      this.#refreshing = undefined;
      const last = Math.floor(Math.max(0, this.state.get().total - 1) / PAGE);
      void this.#readPage(last).catch(() => {});
    }, REFRESH_MS);
  }

  close(): void {
    clearTimeout(this.#refreshing);
    this.#stop.abort();
  }

  /** One page at a time, always one that is wanted now: whoever scrolls fast skips what lies in between. */
  async #read(): Promise<void> {
    if (this.#isReading) return;
    this.#isReading = true;
    this.state.set({ isReading: true });
    try {
      for (let page = this.#missing(); page !== undefined; page = this.#missing()) await this.#readPage(page);
      this.state.set({ problem: "" });
    } catch (error) {
      if (!isStop(error)) this.state.set({ problem: explain(error) });
    } finally {
      this.#isReading = false;
      this.state.set({ isReading: false });
    }
  }

  #missing(): number | undefined {
    const [from, to] = this.#wanted;
    const { total, version } = this.state.get();
    for (let page = from; page <= to; page += 1) {
      if (!this.#pages.has(page) && (version === 0 || page * PAGE < total)) return page;
    }
    return undefined;
  }

  async #readPage(page: number): Promise<void> {
    const { signal } = this.#stop;
    const { events, total } = await this.session.page({ offset: page * PAGE, limit: PAGE }, { signal });
    this.#pages.delete(page);
    this.#pages.set(page, events);
    for (const old of this.#pages.keys()) {
      if (this.#pages.size <= MOST_PAGES) break;
      if (old < this.#wanted[0] || old > this.#wanted[1]) this.#pages.delete(old);
    }
    const { version } = this.state.get();
    this.state.set({ total, version: version + 1, scanned: total });
  }
}

export interface Search extends Filter {
  readonly order: "asc" | "desc";
  readonly text: string;
}

const ENOUGH = 400;

export class ScannedRows implements Rows {
  readonly state = new Store<RowsState>(NOTHING);
  readonly #found: AgentEvent[] = [];
  readonly #stop = new AbortController();
  #wanted = ENOUGH;
  #isReading = false;
  #cursor: string | undefined;
  #refreshing: ReturnType<typeof setTimeout> | undefined;

  constructor(
    private readonly session: Session,
    private readonly search: Search,
  ) {
    void this.#read();
  }

  at(index: number): AgentEvent | undefined {
    return this.#found[index];
  }

  want(_from: number, to: number): void {
    if (to + ENOUGH / 2 <= this.#wanted) return;
    this.#wanted = to + ENOUGH;
    if (!this.state.get().isComplete) void this.#read();
  }

  refresh(): void {
    if (this.search.order === "desc") return;
    this.#refreshing ??= setTimeout(() => {
      this.#refreshing = undefined;
      if (this.state.get().isComplete) void this.#read();
    }, REFRESH_MS);
  }

  close(): void {
    clearTimeout(this.#refreshing);
    this.#stop.abort();
  }

  async #read(): Promise<void> {
    if (this.#isReading) return;
    this.#isReading = true;
    this.state.set({ isReading: true });
    try {
      do await this.#readPage();
      while (this.#found.length < this.#wanted && !this.state.get().isComplete);
      this.state.set({ problem: "" });
    } catch (error) {
      if (!isStop(error)) this.state.set({ problem: explain(error) });
    } finally {
      this.#isReading = false;
      this.state.set({ isReading: false });
    }
  }

  async #readPage(): Promise<void> {
    const { order, text, ...filter } = this.search;
    const cursor = this.#cursor;
    const from = order === "asc" ? { after: cursor ?? "0" } : cursor === undefined ? {} : { before: cursor };
    const asked = { ...filter, order, limit: 1000, ...from };
    const page = await this.session.page(asked, { signal: this.#stop.signal });
    const wanted = text.toLowerCase();
    for (const event of page.events) if (wanted === "" || mentions(event, wanted)) this.#found.push(event);
    this.#cursor = (order === "asc" ? page.nextAfter : page.nextBefore) ?? page.events.at(-1)?.id ?? cursor;
    const { version, scanned } = this.state.get();
    this.state.set({
      version: version + 1,
      total: this.#found.length,
      scanned: scanned + page.events.length,
      isComplete: !page.hasMore,
    });
  }
}
