/**
 * What becomes of a broken link: find out why, then try again after a while, or give up for good.
 *
 * The reason is asked of the stream's own route, because a page is told neither the status of a refused `EventSource`
 * nor that of a refused handshake.
 */

import { probe } from "./api.js";

const FIRST_PAUSE = 500;
const LONGEST_PAUSE = 8000;

export class Recovery {
  isClosed = false;
  #sessionId;
  #on;
  #open;
  #attempt = 0;
  #timer;

  /** `open` makes the next attempt. */
  constructor(sessionId, on, open) {
    this.#sessionId = sessionId;
    this.#on = on;
    this.#open = open;
  }

  succeeded() {
    this.#attempt = 0;
    this.#on.state("live");
  }

  close() {
    this.isClosed = true;
    clearTimeout(this.#timer);
  }

  async begin() {
    this.#on.state("reconnecting");
    const problem = await probe(this.#sessionId, this.#on.after()).catch((refused) => refused);
    if (this.isClosed) return;
    if (problem?.status === 404 || problem?.status === 401) {
      this.close();
      this.#on.gone(problem);
      return;
    }
    // The log was restored from an older backup and has not come this far: what we know is not what it says.
    if (problem?.code === "cursor_ahead") this.#on.restart();
    this.#timer = setTimeout(this.#open, pause(this.#attempt++));
  }
}

/** Longer each time, and not the same for everybody. */
function pause(attempt) {
  return Math.min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** attempt) * (0.5 + Math.random() / 2);
}
