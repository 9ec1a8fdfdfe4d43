/** The list of sessions: newest first. It is read again every few seconds while somebody looks, and on every change. */

import type { SessionItem } from "../model/client.js";
import { oneLine } from "../model/text.js";
import { client, explain } from "./server.js";
import { Store } from "./store.js";

export interface SessionsState {
  readonly sessions: readonly SessionItem[];
  readonly hasMore: boolean;
  readonly isLoaded: boolean;
  readonly problem: string;
}

const PAGE = 50;
/** What a search goes through at most. */
const MOST_SEARCHED = 2000;
const INTERVAL_MS = 4000;

export class Sessions {
  readonly state = new Store<SessionsState>({ sessions: [], hasMore: false, isLoaded: false, problem: "" });
  #wanted = PAGE;
  #isReading = false;
  #isStale = false;
  #timer: ReturnType<typeof setInterval> | undefined;

  watch(): () => void {
    const look = () => {
      if (!document.hidden) void this.refresh();
    };
    look();
    this.#timer = setInterval(look, INTERVAL_MS);
    document.addEventListener("visibilitychange", look);
    return () => {
      clearInterval(this.#timer);
      document.removeEventListener("visibilitychange", look);
    };
  }

  more(): void {
    this.#wanted += PAGE;
    void this.refresh();
  }

  /** Reads so many that a search finds what it looks for. */
  deepen(): void {
    if (this.#wanted >= MOST_SEARCHED) return;
    this.#wanted = MOST_SEARCHED;
    void this.refresh();
  }

  /** Back to the newest ones. */
  shallow(): void {
    this.#wanted = PAGE;
  }

  /** Reads the list; a call that comes meanwhile makes it be read once more. */
  async refresh(): Promise<void> {
    this.#isStale = true;
    if (this.#isReading) return;
    this.#isReading = true;
    try {
      while (this.#isStale) {
        this.#isStale = false;
        await this.#read();
      }
    } catch (error) {
      this.state.set({ problem: explain(error), isLoaded: true });
    } finally {
      this.#isReading = false;
    }
  }

  async #read(): Promise<void> {
    const sessions: SessionItem[] = [];
    let after: string | undefined;
    do {
      const limit = Math.min(1000, this.#wanted - sessions.length);
      const page = await client.sessions({ limit, ...(after === undefined ? {} : { after }) });
      sessions.push(...page.sessions);
      after = page.nextAfter;
    } while (after !== undefined && sessions.length < this.#wanted);
    this.state.set({ sessions, hasMore: after !== undefined, isLoaded: true, problem: "" });
  }
}

/** A session's name, made harmless, or a word for none. */
export function titleOf(session: Pick<SessionItem, "name">): string {
  return oneLine(session.name ?? "") || "Untitled";
}
