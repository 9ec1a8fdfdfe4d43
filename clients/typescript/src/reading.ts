/**
 * What a reader has seen, and how it goes on: every event once, in order, over as many connections as it takes. No I/O.
 *
 * A reading says what to open next (`opening`), is given the frames that come (`take`) and says which events are new,
 * and when there is nothing more to come (`isOver`). It remembers the cursor of the last frame, so a new connection
 * goes on after it, and the place of the last event, so what comes twice is dropped.
 */

import type { AgentEvent } from "./events.js";
import { isControl, placeOf, textOf } from "./events.js";
import type { Request } from "./http.js";
import { SESSIONS } from "./http.js";

/** What a connection brings: a cursor to resume from, how long to wait before that, an event; or less. */
export interface Frame {
  cursor?: string;
  event?: AgentEvent;
  retryMs?: number;
}

/** What to say on a socket to follow a session. */
export interface Join {
  join: { type: "join_session"; sessionId: string; after?: string; from?: "now" };
}

export type Opening = Request | Join;

/** A reading of a session's log, or of a part of it. */
export interface Reading {
  readonly isOver: boolean;
  opening(): Opening;
  take(frame: Frame): AgentEvent | undefined;
}

/** Where a reader is in a log. */
class Position {
  #place: number;
  #lastId = "";

  constructor(public cursor?: string) {
    this.#place = (cursor === undefined ? undefined : placeOf(cursor)) ?? 0;
  }

  /** Goes past the frame; returns its event, if that lies ahead of here. */
  passBy(frame: Frame): AgentEvent | undefined {
    if (frame.cursor !== undefined) this.cursor = frame.cursor;
    const { event } = frame;
    return event !== undefined && this.#isNew(event) ? event : undefined;
  }

  #isNew(event: AgentEvent): boolean {
    const place = placeOf(event.id);
    const lastId = this.#lastId;
    this.#lastId = event.id;
    // The event of a server that knows no places can only be compared.
    if (place === undefined) return event.id === "" || event.id !== lastId;
    if (place <= this.#place) return false;
    this.#place = place;
    return true;
  }
}

/** Where a following begins: after a cursor; else now; else at the start. */
export interface Beginning {
  /** An event's id, or a bare place. */
  after?: string | number | undefined;
  from?: "start" | "now" | undefined;
}

/** All of a session, up to its deletion. */
export class Following implements Reading {
  isOver = false;
  readonly #position: Position;

  constructor(
    private readonly sessionId: string,
    private readonly transport: "sse" | "websocket",
    private readonly beginning: Beginning,
  ) {
    const { after } = beginning;
    this.#position = new Position(after === undefined ? undefined : String(after));
  }

  opening(): Opening {
    const { cursor } = this.#position;
    const start = cursor !== undefined ? { after: cursor } : this.beginning.from === "now" ? { from: "now" as const } : {};
    const { sessionId } = this;
    if (this.transport === "websocket") return { join: { type: "join_session", sessionId, ...start } };
    return { path: `${SESSIONS}/events/stream`, params: { sessionId, ...start } };
  }

  take(frame: Frame): AgentEvent | undefined {
    const event = this.#position.passBy(frame);
    if (event?.type === "session_end") this.isOver = true;
    return event;
  }
}

/**
 * One turn, from its query to its ending.
 *
 * Until an event of the turn has come, the query is sent again with the same key, which makes it the same turn; from
 * then on the session's stream is read after the last event. Events that clients add meanwhile are left out. Answers
 * about a turn that waits (`query_queued`, or the `error` of one that was removed) come through as they are.
 */
export class Asking implements Reading {
  isOver = false;
  readonly #position = new Position();
  readonly #answers = new Set<string>();
  #turnId = "";
  #hasBegun = false;

  constructor(
    private readonly sessionId: string,
    private readonly body: Record<string, unknown>,
    private readonly key: string,
  ) {}

  opening(): Request {
    const { sessionId } = this;
    if (this.#hasBegun) {
      return { path: `${SESSIONS}/events/stream`, params: { sessionId, after: this.#position.cursor ?? "0" } };
    }
    const headers = { "Idempotency-Key": this.key };
    return { path: `${SESSIONS}/query/stream`, body: { sessionId, ...this.body }, headers };
  }

  take(frame: Frame): AgentEvent | undefined {
    if (frame.event !== undefined && isControl(frame.event)) return this.#takeAnswer(frame.event);
    const event = this.#position.passBy(frame);
    if (event === undefined || event.metadata?.source === "client") return undefined;
    this.#hasBegun = true;
    if (event.type === "agent_run_start") this.#turnId = textOf(event, "turnId");
    this.isOver = event.type === "session_end" || (event.type === "agent_run_end" && this.#isOurs(event));
    return event;
  }

  #isOurs(end: AgentEvent): boolean {
    return this.#turnId === "" || this.#turnId === textOf(end, "turnId");
  }

  #takeAnswer(event: AgentEvent): AgentEvent | undefined {
    const answer = JSON.stringify([event.type, event.data]);
    if (this.#answers.has(answer)) return undefined;
    this.#answers.add(answer);
    this.isOver = event.type === "error";
    return event;
  }
}
