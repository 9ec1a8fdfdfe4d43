/**
 * A session followed over `EventSource`. The browser reconnects by itself with the last id it saw; only when it gives
 * up, after an answer that is no stream, is it started anew from here.
 *
 * A link tells its owner: `on.event(event)`, `on.state("live" | "reconnecting")`, `on.gone(problem)` when the session
 * can't be followed any more, `on.refused(text, problem)` for a query that did not start, `on.restart()` before it
 * begins from the start again. It asks `on.after()` for the id to resume from.
 */

import { abortTurn, startTurn, streamUrl } from "./api.js";
import { Recovery } from "./recovery.js";

export class Stream {
  #sessionId;
  #on;
  #source = null;
  #recovery;

  constructor(sessionId, on) {
    this.#sessionId = sessionId;
    this.#on = on;
    this.#recovery = new Recovery(sessionId, on, () => this.#open());
    this.#open();
  }

  close() {
    this.#recovery.close();
    this.#source.close();
  }

  async query(text) {
    try {
      await startTurn(this.#sessionId, text);
    } catch (problem) {
      this.#on.refused(text, problem);
    }
  }

  async abort(turnId) {
    await abortTurn(this.#sessionId, turnId);
  }

  #open() {
    const source = new EventSource(streamUrl(this.#sessionId, this.#on.after()));
    this.#source = source;
    source.onopen = () => this.#recovery.succeeded();
    source.onmessage = (message) => this.#on.event(JSON.parse(message.data));
    source.onerror = () => {
      if (source.readyState === EventSource.CLOSED) this.#recovery.begin();
      else this.#on.state("reconnecting");
    };
  }
}
