/** One session of a server. */

import type { Answer } from "./answer.js";
import { Answering } from "./answer.js";
import type { Client, ReadOptions, Stoppable } from "./client.js";
import { NotTarko } from "./errors.js";
import type { AgentEvent } from "./events.js";
import type { AbortReceipt, Queue, SessionItem, TurnOptions, TurnStatus, UpdateSession } from "./generated.js";
import { SESSIONS } from "./http.js";
import type { ConnectionState, Link } from "./link.js";
import type { Beginning, Reading } from "./reading.js";
import { Asking, Following } from "./reading.js";

/** Text, or content parts: `text` and `image_url` with a data URL. */
export type Query = string | Record<string, unknown>[];

export interface FollowOptions extends Beginning, ReadOptions {
  /** Default: `sse`. Only an event stream slows down the server when events are read slowly. */
  transport?: "sse" | "websocket";
}

export interface QueryOptions extends TurnOptions, ReadOptions {
  /** Queries with the same key are the same turn. Default: a new key for each call. */
  key?: string;
}

/** Which events: of these types, since and until when (epoch ms), of this turn; `deltas`: also those still kept. */
export interface Filter {
  types?: string[];
  since?: number;
  until?: number;
  turnId?: string;
  deltas?: boolean;
}

/** Which page: by cursor; or, without any filter, by `offset`. */
export interface Where extends Filter {
  limit?: number;
  offset?: number;
  after?: string | number;
  before?: string | number;
  order?: "asc" | "desc";
}

/** A page of the log. `total` counts the session's lasting events. */
export interface EventPage {
  events: AgentEvent[];
  total: number;
  hasMore: boolean;
  nextAfter?: string;
  nextBefore?: string;
}

/**
 * Events as they come: iterate over it once. `state` is the connection's, at any time.
 *
 * To stop from elsewhere use the signal: `return()` waits for the event that is being waited for.
 */
export class EventStream implements AsyncIterableIterator<AgentEvent> {
  readonly #events: AsyncGenerator<AgentEvent, void, undefined>;
  readonly #link: Link;

  constructor(client: Client, reading: Reading, options: ReadOptions) {
    this.#link = client.link(options);
    this.#events = client.read(reading, this.#link, options.signal);
  }

  get state(): ConnectionState {
    return this.#link.state;
  }

  next(): Promise<IteratorResult<AgentEvent, void>> {
    return this.#events.next();
  }

  return(): Promise<IteratorResult<AgentEvent, void>> {
    return this.#events.return();
  }

  [Symbol.asyncIterator](): this {
    return this;
  }
}

export class Session {
  constructor(
    private readonly client: Client,
    readonly id: string,
  ) {}

  /** What the server knows of it. */
  async details(options: Stoppable = {}): Promise<SessionItem> {
    return (await this.#get<{ session: SessionItem }>("details", options, "session")).session;
  }

  /** Whether a turn runs, and how many wait. */
  async status(options: Stoppable = {}): Promise<TurnStatus> {
    return (await this.#get<{ status: TurnStatus }>("status", options, "status")).status;
  }

  /** The turns that wait. */
  queue(options: Stoppable = {}): Promise<Queue> {
    return this.#get<Queue>("queue", options, "queue");
  }

  /** Changes what is given; `metadata` is merged. */
  async update(change: Omit<UpdateSession, "sessionId">, options: Stoppable = {}): Promise<SessionItem> {
    return (await this.#post<{ session: SessionItem }>("update", change, options, "session")).session;
  }

  /** Deletes it: its turn is aborted, its readers are told. */
  async delete(options: Stoppable = {}): Promise<void> {
    await this.#post("delete", {}, options);
  }

  /** Ends the running turn, or only the one named; answers when its ending is stored. */
  abort(turnId?: string, options: Stoppable = {}): Promise<AbortReceipt> {
    return this.#post<AbortReceipt>("abort", turnId === undefined ? {} : { turnId }, options, "success");
  }

  /** Adds an event of one's own, such as `user_feedback`; answers its id. */
  async append(type: string, data: unknown = null, options: Stoppable = {}): Promise<string> {
    return (await this.#post<{ id: string }>("events", { type, data }, options, "id")).id;
  }

  /** One page of the history. */
  page(where: Where = {}, options: Stoppable = {}): Promise<EventPage> {
    const { types, ...others } = where;
    const params = { sessionId: this.id, ...others, types: types?.join(",") };
    return this.client.call<EventPage>({ path: `${SESSIONS}/events`, params }, options, "events");
  }

  /** Every page of the history after a cursor, oldest first; a page that was lost is asked for again. */
  async *pages(
    where: Filter & { after?: string | number; limit?: number } = {},
    options: ReadOptions = {},
  ): AsyncGenerator<EventPage, void, undefined> {
    const link = this.client.link(options);
    let after: string | undefined = String(where.after ?? 0);
    while (after !== undefined) {
      const asked: Where = { limit: 1000, ...where, after };
      const page = await this.client.patiently(link, options.signal, () => this.page(asked, options));
      yield page;
      const next = page.hasMore ? page.nextAfter : undefined;
      if (next === after) throw new NotTarko(`The server's page after ${after} leads to itself.`);
      after = next;
    }
  }

  /** Every event of the history, oldest first. */
  async *events(where: Filter = {}, options: ReadOptions = {}): AsyncGenerator<AgentEvent, void, undefined> {
    for await (const page of this.pages(where, options)) yield* page.events;
  }

  /**
   * Every event once, in order, as it happens, over as many connections as it takes; ends with the session.
   *
   * Begins after the cursor; else now; else at the start, where ended turns are told without their deltas. Throws what
   * coming back won't mend, such as Refused (404) for a session that is gone, and the signal's reason.
   */
  follow(options: FollowOptions = {}): EventStream {
    return new EventStream(this.client, new Following(this.id, options.transport ?? "sse", options), options);
  }

  /**
   * Starts a turn when it is first read; its events, each once, up to its ending, over as many connections as it takes.
   *
   * The signal stops the reading, not the turn: `abort` does that. Throws Refused when the turn is not accepted.
   */
  stream(query: Query, options: QueryOptions = {}): EventStream {
    const { key, signal, backoff, onState, ...turn } = options;
    const asking = new Asking(this.id, { ...turn, query }, key ?? newKey());
    return new EventStream(this.client, asking, { signal, backoff, onState });
  }

  /** Starts a turn and answers what it said. Throws TurnFailed for a turn that neither completed nor was aborted. */
  async query(query: Query, options: QueryOptions = {}): Promise<Answer> {
    const answering = new Answering();
    for await (const event of this.stream(query, options)) answering.take(event);
    return answering.answer();
  }

  #get<T>(name: string, options: Stoppable, field: string): Promise<T> {
    return this.client.call<T>({ path: `${SESSIONS}/${name}`, params: { sessionId: this.id } }, options, field);
  }

  #post<T>(name: string, body: object, options: Stoppable, field?: string): Promise<T> {
    const request = { path: `${SESSIONS}/${name}`, body: { sessionId: this.id, ...body } };
    return this.client.call<T>(request, options, field);
  }
}

/** A key that nobody else has. `crypto.randomUUID` is missing on pages that came over plain HTTP. */
function newKey(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}
