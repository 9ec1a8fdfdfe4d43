/** A recorded session, to be seen as it stood at any of its events. Pure. */

import type { AgentEvent } from "./client.js";
import type { Conversation } from "./conversation.js";
import { EMPTY, fold } from "./conversation.js";

const STRIDE = 500;

/** Folds prefixes of a log; every so many events it keeps what it has, so that going back costs little. */
export class Tape {
  readonly #kept: Conversation[] = [EMPTY];

  constructor(readonly events: readonly AgentEvent[]) {}

  /** The conversation after the first `count` events. */
  after(count: number): Conversation {
    const wanted = Math.min(Math.max(count, 0), this.events.length);
    let kept = Math.min(Math.floor(wanted / STRIDE), this.#kept.length - 1);
    let conversation = this.#kept[kept] ?? EMPTY;
    while ((kept + 1) * STRIDE <= wanted) {
      conversation = fold(conversation, this.events.slice(kept * STRIDE, (kept + 1) * STRIDE));
      this.#kept[++kept] = conversation;
    }
    return fold(conversation, this.events.slice(kept * STRIDE, wanted));
  }

  /** How long after the first event this one came; longer silences than `most` are cut to it. Milliseconds. */
  schedule(most: number): number[] {
    const times: number[] = [];
    let at = 0;
    let last = this.events[0]?.timestamp ?? 0;
    for (const { timestamp } of this.events) {
      at += Math.min(Math.max(0, timestamp - last), most);
      last = timestamp;
      times.push(at);
    }
    return times;
  }
}

/** How many of the times are reached at `at`. `times` grow. */
export function reached(times: readonly number[], at: number): number {
  let low = 0;
  let high = times.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((times[middle] ?? 0) <= at) low = middle + 1;
    else high = middle;
  }
  return low;
}
