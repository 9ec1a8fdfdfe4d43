/**
 * The life of a link that breaks and comes back, without I/O: when to try again, and what to tell an onlooker.
 *
 * How long to wait after a loss: the server's `retry:`, doubled with each failure in a row, with jitter; never sooner
 * than `retry:` or a `Retry-After` asks, the latter with jitter on top because it is the same for everybody; and within
 * an hour, whatever they ask: a timer that is set to more than 24 days goes off at once.
 */

import type { ClientError } from "./errors.js";
import { Refused } from "./errors.js";
import type { Frame } from "./reading.js";

/** How to come back. */
export interface Backoff {
  /** Doubled with each failure; a server's `retry:` replaces it. Default: 1000. */
  baseMs?: number;
  /** The longest pause. Default: 30000. */
  longestMs?: number;
  /** After so many failures in a row the loss is thrown. Default: never. */
  tries?: number;
}

/** How a link is. `live` from the first byte on; `waiting` to try again; `closed` for good. */
export type ConnectionState =
  | { name: "connecting" }
  | { name: "live" }
  | { name: "waiting"; error: ClientError; ms: number }
  | { name: "closed"; error?: unknown };

/** The longest pause that a server can ask for. */
const LONGEST_ASKED_MS = 3_600_000;

export type OnState = (state: ConnectionState) => void;

/** How long to wait after so many failures in a row, in milliseconds; `jitter` lies between 0 and 1. */
export function delay(
  baseMs: number,
  failures: number,
  jitter: number,
  asked: { longestMs: number; retryMs?: number; retryAfterMs?: number | undefined },
): number {
  const grown = Math.min(baseMs * 2 ** Math.min(failures, 16), asked.longestMs);
  const within = (ms = 0) => Math.min(ms, LONGEST_ASKED_MS);
  return Math.max(within(asked.retryAfterMs) + grown * (0.5 + jitter / 2), within(asked.retryMs));
}

/** One reader's link. Tells each change of its state once. */
export class Link {
  #state: ConnectionState = { name: "connecting" };
  readonly #onState: OnState;
  readonly #jitter: () => number;
  readonly #longestMs: number;
  readonly #tries: number;
  #baseMs: number;
  #retryMs = 0;
  #failures = 0;

  constructor(backoff: Backoff = {}, onState: OnState = () => {}, jitter: () => number = Math.random) {
    this.#baseMs = backoff.baseMs ?? 1000;
    this.#longestMs = backoff.longestMs ?? 30_000;
    this.#tries = backoff.tries ?? Infinity;
    this.#onState = onState;
    this.#jitter = jitter;
  }

  /** How the link is now. */
  get state(): ConnectionState {
    return this.#state;
  }

  /** A connection is being opened. */
  connecting(): void {
    this.#tell({ name: "connecting" });
  }

  /** A frame came. One that only says when to come back is no sign of life: a server without its database says so. */
  take(frame: Frame): void {
    if (frame.retryMs !== undefined) this.#baseMs = this.#retryMs = frame.retryMs;
    if (frame.cursor !== undefined || frame.event !== undefined) this.heard();
  }

  /** The server speaks. */
  heard(): void {
    this.#failures = 0;
    if (this.#state.name !== "live") this.#tell({ name: "live" });
  }

  /** How long to wait before the next try, in milliseconds. Throws the loss when coming back won't help, or has not. */
  lost(loss: ClientError): number {
    if (!loss.isTemporary || this.#failures >= this.#tries) throw loss;
    const ms = delay(this.#baseMs, this.#failures, this.#jitter(), {
      longestMs: this.#longestMs,
      retryMs: this.#retryMs,
      retryAfterMs: loss instanceof Refused ? loss.retryAfterMs : undefined,
    });
    this.#failures += 1;
    this.#tell({ name: "waiting", error: loss, ms });
    return ms;
  }

  /** It is over. */
  closed(error?: unknown): void {
    this.#tell(error === undefined ? { name: "closed" } : { name: "closed", error });
  }

  #tell(state: ConnectionState): void {
    this.#state = state;
    this.#onState(state);
  }
}
