/** A server, and how it is asked. */

import { ClientError } from "./errors.js";
import type { AgentEvent } from "./events.js";
import type { Created, CreateSession, SessionItem } from "./generated.js";
import type { Request } from "./http.js";
import { Exchange, SESSIONS, lost, objectOf } from "./http.js";
import type { Backoff, OnState } from "./link.js";
import { Link } from "./link.js";
import type { Frame, Opening, Reading } from "./reading.js";
import { Session } from "./session.js";
import type { OpenSocket } from "./socket.js";
import { openSocket, socketFrames } from "./socket.js";
import { streamFrames } from "./stream.js";

export interface ClientOptions {
  /** Where the server is: `https://host:port`. Default: where the page comes from. */
  url?: string;
  /** Who asks, where the server wants to know and no cookie says it. */
  token?: string;
  backoff?: Backoff;
  /** Default: the runtime's own WebSocket. Node has one from version 22 on. */
  openSocket?: OpenSocket;
}

/** Stops waiting: the signal's reason is thrown. It stops nothing on the server. */
export interface Stoppable {
  signal?: AbortSignal | undefined;
}

/** How to read over connections that break. */
export interface ReadOptions extends Stoppable {
  backoff?: Backoff | undefined;
  /** Told each change of the connection's state. */
  onState?: OnState | undefined;
}

/** A page of sessions, newest first; `nextAfter` is undefined on the last one. */
export interface SessionPage {
  sessions: SessionItem[];
  nextAfter?: string;
}

/** A Tarko server. Calls throw ConnectionLost, Refused or NotTarko; only what can be repeated without harm is. */
export class Client {
  readonly url: string;
  readonly #headers: Record<string, string>;
  readonly #backoff: Backoff;
  readonly #openSocket: OpenSocket;

  /** Throws TypeError for what is no address or no token, and when it is not said where the server is. */
  constructor(options: ClientOptions = {}) {
    this.url = options.url ? addressOf(options.url) : "";
    if (this.url === "" && globalThis.location === undefined) {
      throw new TypeError("Outside of a page a client needs the `url` of its server.");
    }
    this.#headers = options.token ? { Authorization: `Bearer ${checked(options.token)}` } : {};
    this.#backoff = options.backoff ?? {};
    this.#openSocket = options.openSocket ?? openSocket;
  }

  /** A new session. */
  async create(wanted: CreateSession = {}, options: Stoppable = {}): Promise<Session> {
    const body = { ...wanted };
    const made = await this.call<Created>({ path: `${SESSIONS}/create`, body }, options, "sessionId");
    return this.session(made.sessionId);
  }

  /** The session of that id; nothing is asked of the server. */
  session(id: string): Session {
    return new Session(this, id);
  }

  /** A page of sessions. */
  sessions(page: { limit?: number; after?: string } = {}, options: Stoppable = {}): Promise<SessionPage> {
    return this.call<SessionPage>({ path: SESSIONS, params: { ...page } }, options, "sessions");
  }

  /** Asks once; the answer is an object, in which `field` is there. */
  async call<T>(request: Request, { signal }: Stoppable, field?: string): Promise<T> {
    const exchange = new Exchange(this.url, signal);
    try {
      await exchange.ask(request, this.#headers);
      return objectOf(this.url, await exchange.text(), field) as T;
    } finally {
      exchange.close();
    }
  }

  /** Asks until there is an answer, or no hope of one. */
  async patiently<T>(link: Link, signal: AbortSignal | undefined, once: () => Promise<T>): Promise<T> {
    for (;;) {
      try {
        const answer = await once();
        link.heard();
        return answer;
      } catch (error) {
        if (!(error instanceof ClientError)) throw error;
        await pause(link.lost(error), signal);
      }
    }
  }

  /** A link that comes back as this client does, or as said. */
  link({ backoff, onState }: ReadOptions): Link {
    return new Link(backoff ?? this.#backoff, onState);
  }

  /** The events of a reading, over as many connections as it takes. */
  async *read(
    reading: Reading,
    link: Link,
    signal: AbortSignal | undefined,
  ): AsyncGenerator<AgentEvent, void, undefined> {
    let end: unknown;
    try {
      for (;;) {
        link.connecting();
        let loss: ClientError = lost(this.url, "the server closed the stream");
        try {
          for await (const frame of this.#open(reading.opening(), signal)) {
            link.take(frame);
            const event = reading.take(frame);
            if (event !== undefined) yield event;
            if (reading.isOver) return;
            signal?.throwIfAborted(); // what came before the signal is not told after it
          }
        } catch (error) {
          if (!(error instanceof ClientError)) throw error;
          loss = error;
        }
        await pause(link.lost(loss), signal);
      }
    } catch (error) {
      end = error;
      throw error;
    } finally {
      link.closed(end);
    }
  }

  #open(opening: Opening, signal: AbortSignal | undefined): AsyncGenerator<Frame, void, undefined> {
    if (!("join" in opening)) return streamFrames(this.url, opening, this.#headers, signal);
    const base = this.url === "" ? globalThis.location.origin : this.url;
    const open = () => this.#openSocket(`${base.replace(/^http/, "ws")}/ws`, this.#headers);
    const probe = () => this.session(opening.join.sessionId).details({ signal });
    return socketFrames(this.url, open, opening, probe, signal);
  }
}

/** The address, whole and without a slash at its end; a page may name its server by a path. Throws TypeError for none. */
function addressOf(url: string): string {
  let found: URL | undefined;
  try {
    found = new URL(url, globalThis.location?.href);
  } catch {
    // told below
  }
  if (!found || !/^https?:$/.test(found.protocol) || found.username || found.password) {
    throw new TypeError(`${JSON.stringify(url.replace(/\/\/.*@/s, "//…@"))} is no address of a server: write http://host:port.`);
  }
  return (found.origin + found.pathname).replace(/\/+$/, "");
}

/** The token. Throws TypeError for what no header can hold: asking again would not help. */
function checked(token: string): string {
  if (!/^[!-~]+$/.test(token)) throw new TypeError("A token is printable ASCII without spaces; this one is not.");
  return token;
}

/** Waits; throws the signal's reason when that comes first. */
function pause(ms: number, signal: AbortSignal | undefined): Promise<void> {
  return new Promise((resolve, reject) => {
    signal?.throwIfAborted();
    const stop = () => {
      clearTimeout(timer);
      reject(signal?.reason);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", stop);
      resolve();
    }, ms);
    signal?.addEventListener("abort", stop, { once: true });
  });
}
