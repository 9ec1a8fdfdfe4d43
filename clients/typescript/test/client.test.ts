import assert from "node:assert/strict";
import type { IncomingMessage, ServerResponse } from "node:http";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import type { TestContext } from "node:test";
import { test } from "node:test";
import { Client } from "../src/client.js";
import { ConnectionLost, NotTarko, Refused } from "../src/errors.js";
import type { ConnectionState } from "../src/link.js";

type Asked = { method: string; url: string; headers: IncomingMessage["headers"]; body: unknown };
type Reply = (answer: ServerResponse) => void;

/** A server that gives these replies, one to each request. */
async function serve(context: TestContext, ...replies: Reply[]) {
  const asked: Asked[] = [];
  const server = createServer(async (request, answer) => {
    let text = "";
    for await (const chunk of request) text += chunk;
    const { method = "", url = "", headers } = request;
    asked.push({ method, url: decodeURIComponent(url), headers, body: text && JSON.parse(text) });
    replies.shift()?.(answer);
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  context.after(() => {
    server.closeAllConnections();
    server.close();
  });
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  return { asked, client: new Client({ url: `${url}/`, token: "a-token", backoff: { baseMs: 1 } }) };
}

const says = (body: unknown, status = 200, headers = {}): Reply => (answer) =>
  answer.writeHead(status, headers).end(typeof body === "string" ? body : JSON.stringify(body));
const cuts: Reply = (answer) => answer.writeHead(200).write("{", () => answer.destroy());
const waits: Reply = (answer) => {
  answer.writeHead(200, { "Content-Type": "text/event-stream" });
  answer.write("id: evt_s_1\n\n");
};

test("each call is the protocol's", async (context) => {
  const { asked, client } = await serve(
    context,
    says({ sessionId: "sess_s" }, 201),
    says({ sessions: [] }),
    says({ session: { id: "sess_s" } }),
    says({ status: { state: "idle" } }),
    says({ queue: [] }),
    says({ session: { name: "new" } }),
    says({ id: "evt_s_3" }, 201),
    says({ success: true }),
    says({ events: [], total: 0, hasMore: false }),
    says({ success: true }),
  );
  const session = await client.create({ name: "mine" });
  await client.sessions({ limit: 3 });
  assert.deepEqual(await session.details(), { id: "sess_s" });
  assert.deepEqual(await session.status(), { state: "idle" });
  assert.deepEqual(await session.queue(), { queue: [] });
  assert.deepEqual(await session.update({ name: "new" }), { name: "new" });
  assert.equal(await session.append("user_feedback", { rating: 5 }), "evt_s_3");
  assert.deepEqual(await session.abort("t"), { success: true });
  await session.page({ types: ["a", "b"], deltas: true });
  await session.delete();
  const at = "/api/v1/sessions";
  assert.deepEqual(asked.map(({ method, url, body }) => [method, url, body]), [
    ["POST", `${at}/create`, { name: "mine" }],
    ["GET", `${at}?limit=3`, ""],
    ["GET", `${at}/details?sessionId=sess_s`, ""],
    ["GET", `${at}/status?sessionId=sess_s`, ""],
    ["GET", `${at}/queue?sessionId=sess_s`, ""],
    ["POST", `${at}/update`, { sessionId: "sess_s", name: "new" }],
    ["POST", `${at}/events`, { sessionId: "sess_s", type: "user_feedback", data: { rating: 5 } }],
    ["POST", `${at}/abort`, { sessionId: "sess_s", turnId: "t" }],
    ["GET", `${at}/events?sessionId=sess_s&deltas=true&types=a,b`, ""],
    ["POST", `${at}/delete`, { sessionId: "sess_s" }],
  ]);
  assert.ok(asked.every(({ headers }) => headers.authorization === "Bearer a-token"));
});

test("a refusal keeps the server's words; a stranger is told from a server", async (context) => {
  const { client } = await serve(
    context,
    says({ error: "A turn runs.", code: "session_busy", details: { turnId: "t" } }, 409, { "Retry-After": "3" }),
    says("", 401),
    says("<h1>", 502),
    says("<html>", 404),
    says("<html>"),
    says({ other: 1 }),
    cuts,
  );
  const details = () => client.session("s").details();
  await assert.rejects(details(), (error) => {
    assert.ok(error instanceof Refused);
    const { message, code, httpStatus, retryAfterMs, details } = error;
    assert.deepEqual([message, code, httpStatus, retryAfterMs, details], ["A turn runs.", "session_busy", 409, 3000, { turnId: "t" }]);
    return true;
  });
  await assert.rejects(details(), { code: "unauthenticated" });
  await assert.rejects(details(), { code: "bad_gateway", isTemporary: true });
  for (let n = 0; n < 3; n++) await assert.rejects(details(), NotTarko);
  await assert.rejects(details(), ConnectionLost);
});

test("pages are asked for again until they come, and may not lead to themselves", async (context) => {
  const page = (id: string, hasMore: boolean) => says({ events: [{ id, type: "x" }], total: 2, hasMore, nextAfter: id });
  const { asked, client } = await serve(context, page("evt_s_1", true), cuts, page("evt_s_2", false), page("0", true));
  const ids = [];
  for await (const event of client.session("s").events()) ids.push(event.id);
  assert.deepEqual(ids, ["evt_s_1", "evt_s_2"]);
  assert.deepEqual(asked.map(({ url }) => /after=(\w+)/.exec(url)?.[1]), ["0", "evt_s_1", "evt_s_1"]);
  await assert.rejects(async () => {
    for await (const _ of client.session("s").pages()) continue;
  }, /leads to itself/);
});

test("a signal stops a reader that waits, with its reason, and an onlooker learns it", async (context) => {
  const { client } = await serve(context, waits);
  const stop = new AbortController();
  const states: ConnectionState["name"][] = [];
  const events = client.session("s").follow({
    signal: stop.signal,
    onState: ({ name }) => {
      states.push(name);
      if (name === "live") stop.abort(new Error("enough"));
    },
  });
  await assert.rejects(events.next(), /enough/);
  assert.equal(events.state.name, "closed");
  assert.deepEqual(states, ["connecting", "live", "closed"]);
});

test("what came before a signal is not told after it", async (context) => {
  const two: Reply = (answer) => {
    answer.writeHead(200, { "Content-Type": "text/event-stream" });
    answer.write('data: {"id":"evt_s_1","type":"x"}\n\ndata: {"id":"evt_s_2","type":"x"}\n\n');
  };
  const { client } = await serve(context, two);
  const stop = new AbortController();
  const events = client.session("s").follow({ signal: stop.signal });
  assert.equal((await events.next()).value?.id, "evt_s_1");
  stop.abort(new Error("enough"));
  await assert.rejects(events.next(), /enough/);
});

test("a signal stops a reader that is between two connections", async () => {
  const stop = new AbortController();
  const client = new Client({ url: "http://127.0.0.1:1", backoff: { baseMs: 1e9, longestMs: 1e9 } });
  const onState = ({ name }: ConnectionState) => {
    if (name === "waiting") setImmediate(() => stop.abort(new Error("enough")));
  };
  await assert.rejects(client.session("s").follow({ signal: stop.signal, onState }).next(), /enough/);
});

test("a server that falls silent in mid-answer is lost, a reader that takes its time is not", async (context) => {
  const begins: Reply = (answer) => answer.writeHead(200).write('{"session":');
  const speaks: Reply = (answer) => {
    answer.writeHead(200, { "Content-Type": "text/event-stream" });
    answer.write('data: {"id":"evt_s_1","type":"x"}\n\n');
    setImmediate(() => answer.write('data: {"id":"evt_s_2","type":"x"}\n\n'));
  };
  const { asked, client } = await serve(context, begins, speaks);
  context.mock.timers.enable({ apis: ["setTimeout"] });
  const silent = assert.rejects(client.session("s").details(), /gone silent/);
  while (asked.length === 0) await new Promise(setImmediate);
  context.mock.timers.tick(60_000);
  await silent;
  const states: string[] = [];
  const events = client.session("s").follow({ onState: ({ name }) => states.push(name) });
  await events.next();
  context.mock.timers.tick(600_000);
  assert.equal((await events.next()).value?.id, "evt_s_2");
  assert.deepEqual(states, ["connecting", "live"]);
  await events.return();
});

test("a redirect is no answer of a Tarko server, and not waited out", async (context) => {
  const { client } = await serve(context, says("", 302, { Location: "/login" }));
  await assert.rejects(client.session("s").follow({ backoff: { tries: 0 } }).next(), NotTarko);
});

test("a page is no event stream", async (context) => {
  const { client } = await serve(context, says("<html>"));
  await assert.rejects(client.session("s").follow().next(), NotTarko);
});

test("what is no address and no token is refused at once", () => {
  for (const url of ["localhost:1234", "ftp://host", "http://", "http://host:65536", "//host", "no address", "", "http://me:secret@host"]) {
    assert.throws(() => new Client({ url }), (error) => error instanceof TypeError && !error.message.includes("secret"), url);
  }
  for (const token of ["a b", "a\nb", "\u00e9"]) assert.throws(() => new Client({ url: "http://host", token }), TypeError);
  assert.equal(new Client({ url: "HTTP://Host:8000/behind/a/proxy//?a#b" }).url, "http://host:8000/behind/a/proxy");
});

test("what JSON cannot spell is thrown as it is, and asked once", async (context) => {
  const { asked, client } = await serve(context);
  const session = client.session("sess_s");
  const circle: unknown[] = [];
  circle.push(circle);
  await assert.rejects(session.append("mine", circle), TypeError);
  await assert.rejects(session.stream([{ type: "text", text: 1n }]).next(), TypeError);
  assert.deepEqual(asked, []);
});

test("an empty token is none", async (context) => {
  const { asked, client } = await serve(context, says({ sessions: [] }));
  await new Client({ url: client.url, token: "" }).sessions();
  assert.equal(asked[0]?.headers.authorization, undefined);
});
