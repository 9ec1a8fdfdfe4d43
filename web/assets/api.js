/** The HTTP routes this page uses. Whoever is not logged in is led to the login, and back to where they were. */

export class Refused extends Error {
  constructor(status, code, message) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

export const createSession = (name) => post("/api/v1/sessions/create", { name });
export const deleteSession = (sessionId) => post("/api/v1/sessions/delete", { sessionId });
export const abortTurn = (sessionId, turnId) => post("/api/v1/sessions/abort", { sessionId, turnId });

export function listSessions(after) {
  const query = new URLSearchParams({ limit: "50", ...(after ? { after } : {}) });
  return call(`/api/v1/sessions?${query}`).then((response) => response.json());
}

/** Start a turn. Its events come over the link, so the answer's own stream is let go; that stops nothing. */
export async function startTurn(sessionId, query) {
  const response = await call("/api/v1/sessions/query/stream", json({ sessionId, query }));
  await response.body.cancel();
}

/** Where a session's events stream from: after an event, or from the start. */
export function streamUrl(sessionId, after) {
  const query = new URLSearchParams({ sessionId, ...(after ? { after } : {}) });
  return `/api/v1/sessions/events/stream?${query}`;
}

/** Ask why a link broke that gives no reason. Raises `Refused`; returns when nothing speaks against it. */
export async function probe(sessionId, after) {
  const response = await call(streamUrl(sessionId, after));
  await response.body.cancel();
}

async function post(path, body) {
  const response = await call(path, json(body));
  return response.json();
}

function json(body) {
  return { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) };
}

async function call(path, options) {
  let response;
  try {
    response = await fetch(path, options);
  } catch {
    throw new Refused(0, "unreachable", "The server can't be reached. Try again in a moment.");
  }
  if (response.ok) return response;
  if (response.status === 401) logIn();
  const answer = await response.json().catch(() => ({}));
  throw new Refused(response.status, answer.code ?? "", answer.error ?? `The server answered ${response.status}.`);
}

function logIn() {
  const here = location.pathname + location.search + location.hash;
  location.assign(`/login?next=${encodeURIComponent(here)}`);
}
