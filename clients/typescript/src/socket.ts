/**
 * Frames of a session over `/ws`.
 *
 * A socket neither notices that its other end has vanished nor can it be slowed down. So after a silence the server is
 * asked for a `pong`; and when more lies here unread than `MOST_UNREAD`, the socket is closed: what was missed is in
 * the log, and the next connection goes on after the last event that was read. A refused handshake tells no reason, so
 * that is asked over HTTP (`probe`).
 */

import type { ClientError } from "./errors.js";
import { Refused } from "./errors.js";
import { isControl, readEvent, textOf } from "./events.js";
import { lost } from "./http.js";
import type { Frame, Join } from "./reading.js";

/** What this needs of a WebSocket: the browser's, Node's, or that of a package such as `ws`. */
export interface SocketLike {
  send(text: string): void;
  close(): void;
  onopen: ((event: never) => void) | null;
  onmessage: ((event: { data: unknown }) => void) | null;
  onclose: ((event: { code: number; reason: string }) => void) | null;
  onerror: ((event: never) => void) | null;
}

/** Opens a socket that sends these headers with its handshake. */
export type OpenSocket = (url: string, headers: Record<string, string>) => SocketLike;

const SILENCE_MS = 20_000;
const PATIENCE_MS = 10_000;
/** Characters. */
const MOST_UNREAD = 32 * 1024 * 1024;

/** Opens the runtime's own WebSocket. */
export const openSocket: OpenSocket = (url, headers) => {
  if (typeof WebSocket === "undefined") {
    throw new TypeError("This runtime has no WebSocket: give the client an `openSocket`, or use the transport `sse`.");
  }
  if (Object.keys(headers).length === 0) return new WebSocket(url) as SocketLike;
  if (typeof document !== "undefined") {
    throw new TypeError("A browser sends no token on a socket: log in at /login, or use the transport `sse`.");
  }
  return new WebSocket(url, { headers } as unknown as string[]) as SocketLike; // as Node's takes them
};

/** The frames of one connection. Throws ConnectionLost, Refused, NotTarko, or the signal's reason. */
export async function* socketFrames(
  base: string,
  open: () => SocketLike,
  { join }: Join,
  probe: () => Promise<unknown>,
  signal: AbortSignal | undefined,
): AsyncGenerator<Frame, void, undefined> {
  signal?.throwIfAborted();
  const inbox = new Inbox(base, open(), JSON.stringify(join));
  const stop = () => inbox.end(signal?.reason);
  signal?.addEventListener("abort", stop, { once: true });
  try {
    for (let text = await inbox.next(); text !== undefined; text = await inbox.next()) {
      const frame = frameOf(text);
      if (frame !== undefined) yield frame;
    }
  } finally {
    signal?.removeEventListener("abort", stop);
    inbox.end();
  }
  if (!inbox.wasOpen) await probe();
  throw inbox.loss;
}

function frameOf(text: string): Frame | undefined {
  const event = readEvent(text);
  if (!isControl(event)) return { cursor: event.id, event };
  if (event.type === "error") throw new Refused(textOf(event, "error"), { code: textOf(event, "code") });
  return event.id.includes("~") ? { cursor: event.id } : undefined;
}

/** The messages of a socket that nobody has read yet. */
class Inbox {
  wasOpen = false;
  /** Why the socket ended. */
  loss: ClientError;
  #unread: string[] = [];
  /** How many of them have been read: taking the first out of a long list moves all the others. */
  #read = 0;
  #size = 0;
  #isOver = false;
  #reason: unknown;
  #wake = () => {};
  #watch: ReturnType<typeof setTimeout> | undefined;

  constructor(
    private readonly base: string,
    private readonly socket: SocketLike,
    hello: string,
  ) {
    this.loss = lost(base, "no socket could be opened");
    this.#keepWatch();
    socket.onopen = () => {
      this.wasOpen = true;
      socket.send(hello);
    };
    socket.onmessage = ({ data }) => this.#put(String(data));
    socket.onclose = ({ code, reason }) => {
      if (this.wasOpen) this.#lose(`the socket was closed (${code}${reason && ` ${reason}`})`);
      this.end();
    };
    // A close follows, but not in Node 20 when the handshake failed.
    socket.onerror = () => {
      if (!this.wasOpen) this.end();
    };
  }

  /** The next message; undefined when there will be none. Throws the reason that `end` was given. */
  async next(): Promise<string | undefined> {
    while (this.#read === this.#unread.length && !this.#isOver) {
      this.#unread = [];
      this.#read = 0;
      await new Promise<void>((wake) => {
        this.#wake = wake;
      });
    }
    if (this.#reason !== undefined) throw this.#reason;
    const text = this.#unread[this.#read];
    if (text === undefined) return undefined;
    this.#unread[this.#read++] = ""; // it is not held any longer
    this.#size -= text.length;
    return text;
  }

  /** Closes the socket. What was received can still be read, unless there is a reason to throw. */
  end(reason?: unknown): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#reason = reason;
    clearTimeout(this.#watch);
    this.socket.onmessage = null;
    this.socket.close();
    this.#wake();
  }

  #put(text: string): void {
    this.#keepWatch();
    this.#unread.push(text);
    this.#size += text.length;
    this.#wake();
    if (this.#size > MOST_UNREAD && this.#unread.length - this.#read > 1) this.#lose("events came faster than they were read");
  }

  #keepWatch(): void {
    clearTimeout(this.#watch);
    this.#watch = setTimeout(() => {
      if (this.wasOpen) this.socket.send('{"type":"ping"}');
      this.#watch = setTimeout(() => this.#lose("the server has gone silent"), PATIENCE_MS);
    }, SILENCE_MS);
  }

  #lose(why: string): void {
    this.loss = lost(this.base, why);
    this.end();
  }
}
