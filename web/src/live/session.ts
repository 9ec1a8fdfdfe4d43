/**
 * One session, live: a window of its log that ends with its newest event, and the conversation it folds to.
 *
 * Opening costs a few requests however long the log is: its newest lasting events, then everything from there on —
 * from the running turn's first event, deltas included, if one runs. Earlier events are read when somebody scrolls up
 * to them. A hidden page holds no connection, because browsers allow only six to a server; the log gives back what was
 * missed. Nothing that is sent is shown before the log has it.
 */

import type { AgentEvent, ConnectionState, Query, Session, SessionItem } from "../model/client.js";
import { isPassing, placeOf, Refused } from "../model/client.js";
import type { WaitingTurn } from "../model/client.js";
import type { Conversation } from "../model/conversation.js";
import { EMPTY, fold } from "../model/conversation.js";
import { client, explain, isStop } from "./server.js";
import { Store } from "./store.js";

export type Transport = "sse" | "websocket";

export type Connection = "connecting" | "live" | "reconnecting" | "paused" | "closed";

export interface SessionState {
  readonly conversation: Conversation;
  readonly connection: Connection;
  /** Why the connection is not there. */
  readonly trouble: string;
  readonly details: SessionItem | undefined;
  readonly queue: readonly WaitingTurn[];
  readonly hasEarlier: boolean;
  readonly isReadingEarlier: boolean;
  /** What makes this session unusable. */
  readonly problem: string;
}

const TAIL = 300;
const EARLIER = 500;
/** Events in memory before the deltas of ended turns are let go: the messages that close them repeat them. */
const MOST_EVENTS = 20_000;

export class LiveSession {
  readonly state = new Store<SessionState>({
    conversation: EMPTY,
    connection: "connecting",
    trouble: "",
    details: undefined,
    queue: [],
    hasEarlier: false,
    isReadingEarlier: false,
    problem: "",
  });
  readonly #session: Session;
  #events: AgentEvent[] = [];
  #pending: AgentEvent[] = [];
  #cursor: string | undefined;
  #hasOpened = false;
  #wasLive = false;
  #frame = 0;
  #stop: AbortController | undefined;
  #lastKey: { asked: string; key: string } | undefined;

  constructor(
    readonly id: string,
    private transport: Transport,
  ) {
    this.#session = client.session(id);
  }

  /** The events in memory, in the log's order. */
  get events(): readonly AgentEvent[] {
    return this.#events;
  }

  /** Connects, unless it is connected or there is nothing more to come. */
  connect(): void {
    const { conversation, problem } = this.state.get();
    if (this.#stop || conversation.isOver || problem !== "") return;
    const stop = new AbortController();
    this.#stop = stop;
    this.#run(stop.signal)
      .catch((error: unknown) => this.#failed(error, stop))
      .finally(() => {
        if (this.#stop === stop) this.#stop = undefined;
      });
  }

  /** Lets the connection go. */
  pause(): void {
    this.#stop?.abort();
    this.#stop = undefined;
    if (this.state.get().connection !== "closed") this.state.set({ connection: "paused", trouble: "" });
  }

  reconnect(transport: Transport = this.transport): void {
    this.transport = transport;
    if (this.state.get().connection === "paused") return;
    this.pause();
    this.connect();
  }

  /** Asks; returns when the log, or the queue, has it. The same words and pictures after a failure are the same query. */
  async send(query: Query): Promise<void> {
    const asked = JSON.stringify(query);
    const key = this.#lastKey?.asked === asked ? this.#lastKey.key : newKey();
    this.#lastKey = { asked, key };
    const backoff = { tries: 2, baseMs: 300, longestMs: 1000 };
    const hangUp = new AbortController();
    const stream = this.#session.stream(query, { key, onBusy: "queue", backoff, signal: hangUp.signal });
    try {
      const { value } = await stream.next();
      this.#lastKey = undefined;
      if (value?.type === "query_queued") await this.readQueue();
    } catch (error) {
      if (error instanceof Refused) this.#lastKey = undefined;
      throw error;
    } finally {
      hangUp.abort();
      void stream.return().catch(() => {});
    }
  }

  /** Stops the running turn, or takes the named one out of the queue. */
  async abort(turnId: string | undefined): Promise<void> {
    await this.#session.abort(turnId);
    if (this.state.get().queue.some((waiting) => waiting.turnId === turnId)) await this.readQueue();
  }

  async readQueue(): Promise<void> {
    const { queue } = await this.#session.queue();
    this.state.set({ queue });
  }

  async readDetails(): Promise<void> {
    this.state.set({ details: await this.#session.details() });
  }

  async readEarlier(): Promise<void> {
    const { hasEarlier, isReadingEarlier } = this.state.get();
    const first = this.#events[0];
    if (!hasEarlier || isReadingEarlier || !first) return;
    this.state.set({ isReadingEarlier: true });
    try {
      const page = await this.#session.page({ order: "desc", limit: EARLIER, before: first.id });
      this.#events = [...page.events.toReversed(), ...this.#events];
      this.state.set({ conversation: fold(EMPTY, this.#events), hasEarlier: page.hasMore, isReadingEarlier: false });
    } catch (error) {
      this.state.set({ isReadingEarlier: false, trouble: explain(error) });
    }
  }

  async #run(signal: AbortSignal): Promise<void> {
    const onState = (state: ConnectionState) => this.#tell(state, signal);
    this.state.set({ connection: this.#wasLive ? "reconnecting" : "connecting" });
    if (!this.#hasOpened) await this.#open(signal, onState);
    // What is on its way to the screen counts as seen.
    const after = (this.#pending.at(-1) ?? this.#events.at(-1))?.id ?? this.#cursor;
    const stream = this.#session.follow({ after, signal, onState, transport: this.transport });
    for await (const event of stream) {
      this.#pending.push(event);
      this.#frame ||= requestAnimationFrame(() => this.#flush());
    }
    this.#flush();
    this.state.set({ connection: "closed" });
  }

  /** Reads the newest part of the log and finds out where to go on from. */
  async #open(signal: AbortSignal, onState: (state: ConnectionState) => void): Promise<void> {
    const link = client.link({ onState });
    const ask = <T>(once: () => Promise<T>) => client.patiently(link, signal, once);
    const page = await ask(() => this.#session.page({ order: "desc", limit: TAIL }, { signal }));
    const details = await ask(() => this.#session.details({ signal }));
    const events = page.events.toReversed();
    let known = placeOf(events.at(-1)?.id ?? "") ?? 0;
    const { turnId } = details.status;
    if (turnId) {
      const turn = await ask(() => this.#session.page({ turnId, limit: 1 }, { signal }));
      const first = placeOf(turn.events[0]?.id ?? "");
      if (first !== undefined) known = Math.min(known, first - 1);
    }
    this.#events = events.filter(({ id }) => (placeOf(id) ?? 0) <= known);
    this.#cursor = String(known);
    this.#hasOpened = true;
    this.state.set({ details, hasEarlier: page.hasMore, conversation: fold(EMPTY, this.#events) });
    if (details.status.queued > 0) void this.readQueue().catch(() => {});
  }

  #flush(): void {
    cancelAnimationFrame(this.#frame);
    this.#frame = 0;
    const pending = this.#pending;
    if (pending.length === 0) return;
    this.#pending = [];
    const before = this.state.get().conversation;
    const conversation = fold(before, pending);
    for (const event of pending) if ((placeOf(event.id) ?? 0) > before.lastPlace) this.#events.push(event);
    if (conversation.runningTurn !== before.runningTurn) this.#turned(conversation);
    this.state.set({ conversation });
  }

  #turned(conversation: Conversation): void {
    if (this.state.get().queue.length > 0) void this.readQueue().catch(() => {});
    if (conversation.runningTurn === undefined && this.#events.length > MOST_EVENTS) {
      this.#events = this.#events.filter((event) => !isPassing(event));
    }
  }

  #tell(state: ConnectionState, signal: AbortSignal): void {
    if (signal.aborted) return;
    if (state.name === "live") {
      this.#wasLive = true;
      this.state.set({ connection: "live", trouble: "" });
    } else if (state.name === "waiting") {
      this.state.set({ connection: "reconnecting", trouble: state.error.message });
    }
  }

  #failed(error: unknown, stop: AbortController): void {
    if (stop.signal.aborted || isStop(error)) return;
    if (error instanceof Refused && error.code === "cursor_ahead") {
      // The log was restored from an older backup and has not come this far: what is known here is not what it says.
      this.#stop = undefined;
      this.#hasOpened = false;
      this.#events = [];
      this.#pending = [];
      this.state.set({ conversation: EMPTY });
      this.connect();
      return;
    }
    this.state.set({ connection: "closed", problem: explain(error) });
  }
}

/** A key that nobody else has. */
function newKey(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}
