/** Folds a turn's events into its answer, as the protocol's blocking query does. No I/O. */

import { TurnFailed } from "./errors.js";
import type { AgentEvent } from "./events.js";
import { fieldOf, isControl, isPassing, textOf } from "./events.js";

/** What a turn said: all its text, its lasting events, its ending, and the agent's structured result, if any. */
export interface Answer {
  response: string;
  events: AgentEvent[];
  status: "completed" | "aborted";
  turnId: string;
  data: unknown;
}

/** Takes a turn's events one by one. */
export class Answering {
  readonly #texts: string[] = [];
  readonly #events: AgentEvent[] = [];
  #error: AgentEvent | undefined;
  #end: AgentEvent | undefined;

  take(event: AgentEvent): void {
    if (!isControl(event) && !isPassing(event)) this.#events.push(event);
    if (event.type === "assistant_message") this.#texts.push(textOf(event, "content"));
    else if (event.type === "error") this.#error = event;
    else if (event.type === "agent_run_end") this.#end = event;
  }

  /** Throws TurnFailed for a turn that neither completed nor was aborted. */
  answer(): Answer {
    const status = this.#end ? textOf(this.#end, "status") : "removed";
    const turnId = this.#end ? textOf(this.#end, "turnId") : "";
    const response = this.#texts.join("");
    if (this.#end && (status === "completed" || status === "aborted")) {
      return { response, events: this.#events, status, turnId, data: fieldOf(this.#end, "data") };
    }
    const error = this.#error;
    throw new TurnFailed(error ? textOf(error, "error") : `The turn ended ${status}.`, {
      code: error ? textOf(error, "code") : "agent_failed",
      status,
      response,
      turnId,
      isRecoverable: error !== undefined && fieldOf(error, "recoverable") === true,
    });
  }
}
