/** Requests over `fetch`, and what the answers mean. */

import { ClientError, ConnectionLost, NotTarko, Refused } from "./errors.js";
import { isObject } from "./events.js";

export const SESSIONS = "/api/v1/sessions";
/** The server speaks far more often than this: a connection that has been silent for so long is lost. */
export const SILENCE_MS = 60_000;
const BETWEEN = new Set([429, 502, 503, 504]);

/** A request. With a body it is a POST of JSON. */
export interface Request {
  path: string;
  params?: Record<string, string | number | boolean | undefined>;
  body?: Record<string, unknown>;
  headers?: Record<string, string>;
}

/** Asks, and returns an answer that is a success. Throws ConnectionLost, Refused, NotTarko, or the signal's reason. */
export async function ask(
  base: string,
  request: Request,
  headers: Record<string, string>,
  signal: AbortSignal,
): Promise<Response> {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(request.params ?? {})) {
    if (value !== undefined) query.set(name, String(value));
  }
  const url = `${base}${request.path}${query.size > 0 ? `?${query}` : ""}`;
  const answer = await withoutLoss(base, signal, () =>
    fetch(url, {
      method: request.body === undefined ? "GET" : "POST",
      headers: {
        ...(request.body === undefined ? {} : { "Content-Type": "application/json" }),
        ...headers,
        ...request.headers,
      },
      body: request.body === undefined ? null : JSON.stringify(request.body),
      credentials: "same-origin",
      cache: "no-store",
      redirect: "error",
      signal,
    }),
  );
  if (!answer.ok) {
    const body = await withoutLoss(base, signal, () => answer.text());
    throw refusal(base, answer.status, answer.headers.get("Retry-After"), body);
  }
  return answer;
}

/** What a promise of `fetch` gives; what it throws is a lost connection, unless the signal asked for it. */
export async function withoutLoss<T>(base: string, signal: AbortSignal, work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (cause) {
    if (signal.aborted || cause instanceof ClientError) throw cause;
    throw lost(base, reasonOf(cause), cause);
  }
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
  return new NotTarko(`${base} answers ${httpStatus} without the JSON of a Tarko server: is the address right?`);
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/** The object that is answered. Throws NotTarko when it is none, or has not this field. */
export async function objectOf(
  base: string,
  answer: Response,
  signal: AbortSignal,
  field?: string,
): Promise<Record<string, unknown>> {
  const found = parsed(await withoutLoss(base, signal, () => answer.text()));
  if (!isObject(found) || (field !== undefined && !(field in found))) {
    throw new NotTarko(`The answer of ${base} is not that of a Tarko server: is the address right?`);
  }
  return found;
}
