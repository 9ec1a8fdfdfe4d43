import assert from "node:assert/strict";
import { test } from "node:test";
import { Client } from "../src/client.js";
import { ConnectionLost } from "../src/errors.js";
import type { SocketLike } from "../src/socket.js";
import { openSocket, socketFrames } from "../src/socket.js";

const JOIN = { join: { type: "join_session" as const, sessionId: "sess_s" } };
const spelled = (place: number, data: unknown = null) =>
  JSON.stringify({ id: `evt_s_${place}`, type: "x", timestamp: 1, sessionId: "sess_s", data, metadata: {} });

class FakeSocket implements SocketLike {
  sent: string[] = [];
  isClosed = false;
  onopen: SocketLike["onopen"] = null;
  onmessage: SocketLike["onmessage"] = null;
  onclose: SocketLike["onclose"] = null;
  onerror: SocketLike["onerror"] = null;

  send(text: string): void {
    this.sent.push(text);
  }

  close(): void {
    this.isClosed = true;
  }
}

function follow(signal?: AbortSignal) {
  const socket = new FakeSocket();
  const frames = socketFrames("http://a", () => socket, JOIN, async () => {}, signal);
  return { socket, frames };
}

test("more than can be held is not held: the socket is closed, and what came is still read", async () => {
  const { socket, frames } = follow();
  const first = frames.next();
  socket.onopen?.({} as never);
  assert.deepEqual(socket.sent.map((text) => JSON.parse(text)), [JOIN.join]);
  const big = "x".repeat(40 * 1024 * 1024);
  socket.onmessage?.({ data: spelled(1, big) });
  assert.equal((await first).value?.cursor, "evt_s_1");
  socket.onmessage?.({ data: spelled(2, big) });
  assert.ok(!socket.isClosed, "one event is taken, however big");
  socket.onmessage?.({ data: spelled(3, big) });
  assert.ok(socket.isClosed);
  assert.equal(socket.onmessage, null);
  assert.equal((await frames.next()).value?.cursor, "evt_s_2");
  assert.equal((await frames.next()).value?.cursor, "evt_s_3");
  await assert.rejects(frames.next(), /faster than they were read/);
});

test("messages that lie unread come in order, and those after them", async () => {
  const { socket, frames } = follow();
  const first = frames.next();
  socket.onopen?.({} as never);
  const count = 1000;
  for (let place = 1; place <= count; place += 1) socket.onmessage?.({ data: spelled(place) });
  assert.equal((await first).value?.cursor, "evt_s_1");
  for (let place = 2; place <= count; place += 1) {
    assert.equal((await frames.next()).value?.cursor, `evt_s_${place}`);
  }
  socket.onmessage?.({ data: spelled(count + 1) });
  assert.equal((await frames.next()).value?.cursor, `evt_s_${count + 1}`);
  await frames.return();
});

test("a silent server is asked for a sign of life, then given up", async (context) => {
  context.mock.timers.enable({ apis: ["setTimeout"] });
  const { socket, frames } = follow();
  const next = frames.next();
  const rejected = assert.rejects(next, (error) => error instanceof ConnectionLost && /gone silent/.test(error.message));
  socket.onopen?.({} as never);
  context.mock.timers.tick(20_000);
  assert.deepEqual(socket.sent.slice(1), ['{"type":"ping"}']);
  context.mock.timers.tick(10_000);
  await rejected;
  assert.ok(socket.isClosed);
});

test("a signal ends the wait with its reason", async () => {
  const stop = new AbortController();
  const { socket, frames } = follow(stop.signal);
  const next = frames.next();
  stop.abort(new Error("enough"));
  await assert.rejects(next, /enough/);
  assert.ok(socket.isClosed);
  await assert.rejects(follow(stop.signal).frames.next(), /enough/);
});

test("what a runtime can't do is said", () => {
  const found = globalThis.WebSocket;
  Reflect.deleteProperty(globalThis, "WebSocket");
  assert.throws(() => openSocket("ws://a", {}), /has no WebSocket/);
  globalThis.WebSocket = found;
  assert.throws(() => new Client(), /needs the `url`/);
});
