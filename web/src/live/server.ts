/** The server that this page comes from, and what to do with its refusals. */

import { useEffect, useState } from "react";
import { Client, ClientError, Refused } from "../model/client.js";
import { drafts } from "./browser.js";

export const client = new Client({ backoff: { baseMs: 500, longestMs: 8000 } });

/** Which server this is, and to whom: null when it asks for no token. The first agent is that of new sessions. */
export interface Overview {
  principal: string | null;
  version: string;
  agents: string[];
  replicas: { id: string; beatAgeMs: number; isThis: boolean }[];
  settings: { name: string; value: string; description: string; isDefault: boolean }[];
}

/** What went wrong, for people. Whoever is not logged in is led to the login, and back to where they were. */
export function explain(error: unknown): string {
  if (error instanceof Refused && error.httpStatus === 401) logIn();
  if (error instanceof Refused) return error.message;
  if (error instanceof ClientError) return "The server can't be reached. Try again in a moment.";
  return error instanceof Error ? error.message : String(error);
}

export function isStop(error: unknown): boolean {
  return error instanceof DOMException && error.name === "AbortError";
}

/** Asks for something that is no session's. Throws what `fetch` throws. */
export async function look(path: string, signal?: AbortSignal): Promise<Response> {
  const answer = await fetch(path, { cache: "no-store", ...(signal ? { signal } : {}) });
  if (answer.status === 401) logIn();
  return answer;
}

/** What the server first said of itself; undefined until then. */
export function useOverview(): Overview | undefined {
  const [overview, setOverview] = useState<Overview>();
  useEffect(() => {
    const stop = new AbortController();
    const { signal } = stop;
    const ask = () => client.call<Overview>({ path: "/api/v1/overview" }, { signal }, "agents");
    client.patiently(client.link({}), signal, ask).then(setOverview, explain);
    return () => stop.abort();
  }, []);
  return overview;
}

/** How far the server's clock is ahead of this machine's, in milliseconds. */
export async function clockOffset(signal: AbortSignal): Promise<number> {
  const asked = Date.now();
  const { timestamp } = (await (await look("/api/v1/health", signal)).json()) as { timestamp: number };
  return timestamp - (asked + Date.now()) / 2;
}

const tabs = new BroadcastChannel("logged out");
tabs.addEventListener("message", leave);

/** Forgets the login in this browser, and in every tab of it what was written and not sent. */
export async function logOut(): Promise<void> {
  await client.call({ path: "/logout", body: {} }, {});
  tabs.postMessage(null);
  leave();
}

function leave(): void {
  drafts.clear();
  addEventListener("pageshow", () => location.reload()); // the way back would lead to this page as it was
  location.assign("/login");
}

function logIn(): void {
  const here = location.pathname + location.search + location.hash;
  location.assign(`/login?next=${encodeURIComponent(here)}`);
}
