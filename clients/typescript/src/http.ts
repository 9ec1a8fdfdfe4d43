/** Requests over `fetch`, and what the answers mean. */

import type { ClientError } from "./errors.js";
import { ConnectionLost, NotTarko, Refused } from "./errors.js";
import { isObject } from "./events.js";

export const SESSIONS = "/api/v1/sessions";
/** The server speaks far more often than this: a connection that has been silent for so long is lost. */
const SILENCE_MS = 60_000;
const BETWEEN = new Set([429, 502, 503, 504]);

/** A request. With a body it is a POST of JSON. */
export interface Request {
  path: string;
  params?: Record<string, string | number | boolean | undefined>;
  body?: Record<string, unknown>;
  headers?: Record<string, string>;
}

/**
 * One request and its answer. It ends with the caller's signal, or as lost when the server says nothing for too long
 * while somebody waits for it. Its methods throw ConnectionLost, Refused, NotTarko, or the signal's reason.
 */
export class Exchange {
  readonly #end = new AbortController();
  readonly #stop: () => void;
  #body: ReadableStreamDefaultReader<Uint8Array> | undefined;

  constructor(
    private readonly base: string,
    private readonly signal: AbortSignal | undefined,
  ) {
    signal?.throwIfAborted();
    this.#stop = () => this.#end.abort(signal?.reason);
    signal?.addEventListener("abort", this.#stop, { once: true });
  }

  /** Asks, and returns an answer that is a success. */
  async ask(request: Request, headers: Record<string, string>): Promise<Response> {
    const asked = asFetched(this.base, request, headers, this.#end.signal); // what JSON can't spell is not a loss
    const answer = await this.#heard(() => fetch(...asked));
    this.#body = answer.body?.getReader();
    if (!answer.ok) throw refusal(this.base, answer.status, answer.headers.get("Retry-After"), await this.text());
    return answer;
  }

  /** The next bytes of the answer; undefined at its end. */
  async bytes(): Promise<Uint8Array | undefined> {
    const body = this.#body;
    return body && (await this.#heard(() => body.read())).value;
  }

  /** The rest of the answer. */
  async text(): Promise<string> {
    const decoder = new TextDecoder();
    let text = "";
    for (let bytes = await this.bytes(); bytes; bytes = await this.bytes()) text += decoder.decode(bytes, { stream: true });
    return text + decoder.decode();
  }

  /** Lets the connection go. */
  close(): void {
    this.signal?.removeEventListener("abort", this.#stop);
    this.#end.abort();
  }

  async #heard<T>(work: () => Promise<T>): Promise<T> {
    const silent = () => this.#end.abort(lost(this.base, "the server has gone silent"));
    const watch = setTimeout(silent, SILENCE_MS);
    try {
      return await work();
    } catch (cause) {
      if (this.#end.signal.aborted) throw this.#end.signal.reason;
      throw lost(this.base, reasonOf(cause), cause);
    } finally {
      clearTimeout(watch);
    }
  }
}

function asFetched(
  base: string,
  request: Request,
  headers: Record<string, string>,
  signal: AbortSignal,
): [string, RequestInit] {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(request.params ?? {})) {
    if (value !== undefined) query.set(name, String(value));
  }
  const url = `${base}${request.path}${query.size > 0 ? `?${query}` : ""}`;
  return [
    url,
    {
      method: request.body === undefined ? "GET" : "POST",
      headers: {
        ...(request.body === undefined ? {} : { "Content-Type": "application/json" }),
        ...headers,
        ...request.headers,
      },
      body: request.body === undefined ? null : JSON.stringify(request.body),
      credentials: "same-origin",
      cache: "no-store",
      redirect: "manual", // no Tarko server sends one: it is an answer like any other that is not its
      signal,
    },
  ];
}

export function lost(base: string, reason: string, cause?: unknown): ConnectionLost {
  return new ConnectionLost(`The connection to ${base || "the server"} was lost: ${reason}.`, { cause });
}

function reasonOf(cause: unknown): string {
  if (!(cause instanceof Error)) return String(cause);
  return cause.cause instanceof Error && cause.cause.message ? cause.cause.message : cause.message;
}

/** What an answer that is no success means. */
export function refusal(base: string, httpStatus: number, retryAfter: string | null, body: string): ClientError {
  const retryAfterMs = retryAfter !== null && /^[0-9]+$/.test(retryAfter.trim()) ? Number(retryAfter) * 1000 : undefined;
  const said = parsed(body);
  if (isObject(said) && typeof said["error"] === "string" && typeof said["code"] === "string") {
    const details = isObject(said["details"]) ? said["details"] : undefined;
    return new Refused(said["error"], { code: said["code"], httpStatus, retryAfterMs, details });
  }
  if (httpStatus === 401) return new Refused("The server asks who you are.", { code: "unauthenticated", httpStatus });
  if (BETWEEN.has(httpStatus)) {
    // A proxy's own answer: the server behind it may be restarting.
    return new Refused(`${base} answers ${httpStatus}.`, { code: "bad_gateway", httpStatus, retryAfterMs });
  }
  const answers = httpStatus === 0 ? "with a redirect" : httpStatus; // a browser hides its status
  return new NotTarko(`${base} answers ${answers} without the JSON of a Tarko server: is the address right?`);
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/** The object that is answered. Throws NotTarko when it is none, or has not this field. */
export function objectOf(base: string, text: string, field?: string): Record<string, unknown> {
  const found = parsed(text);
  if (!isObject(found) || (field !== undefined && !(field in found))) {
    throw new NotTarko(`The answer of ${base} is not that of a Tarko server: is the address right?`);
  }
  return found;
}
