import assert from "node:assert/strict";
import { test } from "node:test";
import { Answering } from "../src/answer.js";
import { NotTarko, TurnFailed } from "../src/errors.js";
import type { AgentEvent } from "../src/events.js";
import { isEvent, placeOf, readEvent } from "../src/events.js";
import type { Frame } from "../src/reading.js";
import { Asking, Following } from "../src/reading.js";

const END = { turnId: "t", status: "completed", elapsedMs: 1 };

function event(place: number | string, type = "x", data: unknown = null, source: "agent" | "client" = "agent"): AgentEvent {
  return { id: `evt_s_${place}`, type, timestamp: 1, sessionId: "sess_s", data, metadata: { source } };
}

function frame(...said: Parameters<typeof event>): Frame {
  return { cursor: `evt_s_${said[0]}`, event: event(...said) };
}

test("the place of a cursor", () => {
  const places = ["7", "evt_abc_12", "evt_abc_12~3", "ctl_4", "evt_abc", "", "abc7"].map(placeOf);
  assert.deepEqual(places, [7, 12, 12, 4, undefined, undefined, undefined]);
});

test("every place is given once and in order", () => {
  const reading = new Following("sess_s", "sse", {});
  const given = [1, 2, 2, 1, 5, 3, 6].map((place) => reading.take(frame(place)) && place);
  assert.deepEqual(given, [1, 2, undefined, undefined, 5, undefined, 6]);
});

test("events of a server without places are compared with the last", () => {
  const reading = new Following("sess_s", "sse", {});
  const foreign = ["a", "a", "b", "a", "", ""].map((id) => reading.take({ event: { ...event(1), id } }) !== undefined);
  assert.deepEqual(foreign, [true, false, true, true, true, true]);
});

test("a following goes on after the last cursor, also one that came without an event", () => {
  const reading = new Following("sess_s", "sse", { from: "now" });
  const path = "/api/v1/sessions/events/stream";
  assert.deepEqual(reading.opening(), { path, params: { sessionId: "sess_s", from: "now" } });
  reading.take({ cursor: "evt_s_9" });
  reading.take({ retryMs: 5 });
  assert.deepEqual(reading.opening(), { path, params: { sessionId: "sess_s", after: "evt_s_9" } });
  const socket = new Following("sess_s", "websocket", { after: 3 });
  assert.deepEqual(socket.opening(), { join: { type: "join_session", sessionId: "sess_s", after: "3" } });
  socket.take(frame(4, "session_end"));
  assert.ok(socket.isOver);
});

test("a query is sent again with its key until the turn speaks, then the log is read on", () => {
  const reading = new Asking("sess_s", { query: "Hi" }, "key-1");
  const first = reading.opening();
  assert.deepEqual(first.headers, { "Idempotency-Key": "key-1" });
  reading.take({ cursor: "evt_s_4" });
  assert.equal(reading.take(frame("4~1", "query_queued", { position: 1 }))?.type, "query_queued");
  assert.equal(reading.take(frame("4~2", "query_queued", { position: 1 })), undefined);
  assert.equal(reading.take(frame(5, "user_feedback", null, "client")), undefined);
  assert.deepEqual(reading.opening(), first);
  reading.take(frame(6, "agent_run_start", { turnId: "t" }));
  assert.deepEqual(reading.opening().params, { sessionId: "sess_s", after: "evt_s_6" });
  reading.take(frame(7, "agent_run_end", { ...END, turnId: "another" }));
  assert.ok(!reading.isOver);
  reading.take(frame(8, "agent_run_end", END));
  assert.ok(reading.isOver);
});

test("an answer is the turn's text and its lasting events; a failed turn is thrown with what it said", () => {
  const said = [
    event("1~1", "query_queued"),
    event(2, "assistant_message_delta", { delta: "Hel" }),
    event(3, "assistant_message", { content: "Hel" }),
    event(4, "assistant_message", { content: "lo" }),
  ];
  const whole = new Answering();
  for (const each of [...said, event(5, "agent_run_end", { ...END, data: 7 })]) whole.take(each);
  const { response, events, data } = whole.answer();
  assert.deepEqual([response, events.length, data], ["Hello", 3, 7]);
  const failed = new Answering();
  for (const each of [
    ...said,
    event(5, "error", { error: "It broke.", code: "agent_exception", recoverable: true }),
    event(6, "agent_run_end", { ...END, status: "failed" }),
  ]) failed.take(each);
  assert.throws(() => failed.answer(), (error) => {
    assert.ok(error instanceof TurnFailed);
    assert.deepEqual([error.code, error.status, error.response, error.isRecoverable], ["agent_exception", "failed", "Hello", true]);
    return true;
  });
  assert.throws(() => new Answering().answer(), /ended removed/);
});

test("a type narrows the data", () => {
  const call = event(1, "tool_call", { id: "c", name: "f", arguments: {}, type: "function", messageId: "m" });
  assert.ok(isEvent(call, "tool_call"));
  const name: string = call.data.name; // which only compiles because it is narrowed
  assert.equal(name, "f");
});

test("what is no event is refused", () => {
  for (const text of ["", "7", "[]", "{}", '{"type":7}', "{"]) assert.throws(() => readEvent(text), NotTarko);
});
