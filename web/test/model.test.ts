import assert from "node:assert/strict";
import { test } from "node:test";
import { curlFrom } from "../src/model/curl.js";
import { EMPTY, fold } from "../src/model/conversation.js";
import { fromJsonl, toJsonl } from "../src/model/jsonl.js";
import { endings, parseMetrics, pulse } from "../src/model/metrics.js";
import { mentions } from "../src/model/fields.js";
import { reached, Tape } from "../src/model/replay.js";
import { hashOf, routeOf } from "../src/model/route.js";
import { age, duration, nameFrom, oneLine, size, visible } from "../src/model/text.js";
import { acceptedAt, pace, ticks, trace, turnsOf } from "../src/model/trace.js";
import { everything, Log } from "./making.js";

test("a terminal's colours go, other controls and turns of direction become visible", () => {
  assert.equal(visible("\u001b[31mred\u001b[0m \u001b]0;title\u0007\u0007\r\nnext\tline\u202egnp"), "red ␇\nnext\tline□gnp");
  assert.equal(visible("plain é 😀 שלום\n"), "plain é 😀 שלום\n");
});

test("marks don't pile up over the lines above", () => {
  assert.equal(visible(`a${"\u0301".repeat(80)}b`), `a${"\u0301".repeat(8)}b`);
  assert.equal(visible("e\u0323\u0302 \u0e01\u0e35\u0e48 \u2764\ufe0f"), "e\u0323\u0302 \u0e01\u0e35\u0e48 \u2764\ufe0f");
});

test("a name is one line, of whole signs", () => {
  assert.equal(oneLine("a\n\n b\tc"), "a b c");
  assert.equal(oneLine("😀".repeat(20), 3), "😀😀😀…");
  assert.equal(nameFrom("  What\u200b is\n a log? "), "What is a log?");
});

test("spans of time and sizes read well", () => {
  assert.deepEqual([0, 999, 1000, 59_960, 61_000, 7_260_000, undefined].map(duration), [
    ...["0 ms", "999 ms", "1.0 s", "1 min 0 s", "1 min 1 s", "2 h 1 min", "a while"],
  ]);
  assert.deepEqual([1, 61_000, 3_700_000, 90_000_000].map(age), ["now", "1 min", "1 h", "1 d"]);
  assert.deepEqual([5, 1500, 5_000_000].map(size), ["5 B", "1.5 kB", "5.0 MB"]);
});

test("the address says what is shown, and back", () => {
  assert.deepEqual(routeOf(""), { name: "home" });
  assert.deepEqual(routeOf("#server"), { name: "server" });
  const route = { name: "session", id: "sess_a", view: "events", target: "evt_a_7" };
  assert.deepEqual(routeOf("#sess_a/events/evt_a_7"), route);
  assert.equal(hashOf("sess_a", "events", "evt_a_7"), "#sess_a/events/evt_a_7");
  assert.deepEqual(routeOf("#sess_a/nonsense"), { ...route, view: "conversation", target: undefined });
  assert.deepEqual(routeOf("#%"), { ...route, id: "%", view: "conversation", target: undefined });
});

test("the curl line is one word for the shell, whatever is in it", () => {
  assert.equal(
    curlFrom("http://host:1", "sess_a", "evt_a_7"),
    "curl -N 'http://host:1/api/v1/sessions/events/stream?sessionId=sess_a&after=evt_a_7'",
  );
  assert.equal(curlFrom("http://it's", "s", "e").split("'\\''").length, 2);
});

test("a session goes into a file and comes back; what is no event is counted", () => {
  const { events } = everything();
  assert.deepEqual(fromJsonl(toJsonl(events)), { events, skipped: 0 });
  const shuffled = [...events].reverse();
  assert.deepEqual(fromJsonl(`\n${toJsonl(shuffled)}nonsense\n{"id":1}\n[]\nnull\n{"id":"evt_a_1","type":"x"}\n`), {
    events,
    skipped: 5,
  });
});

test("a line of a known type without what makes it so is no event, and what is left can be drawn", () => {
  const line = (type: string, data?: unknown, more = {}) => JSON.stringify({ id: "evt_a_1", type, timestamp: 1, data, ...more });
  const lines = [
    line("session_start"),
    line("assistant_message_delta", null),
    line("assistant_message", { messageId: "m", content: 5 }),
    line("tool_call", { id: "1", name: 7 }),
    line("agent_run_end", { turnId: "t", status: "completed", elapsedMs: "1" }),
    line("x", {}, { timestamp: "1" }),
    '{"id":"evt_a_1","type":"x","timestamp":1e999}',
  ];
  assert.deepEqual(fromJsonl(lines.join("\n")), { events: [], skipped: lines.length });
  const bare = [
    line("user_message", { content: 5 }),
    line("assistant_message", { messageId: "m", content: "said" }, { id: "evt_a_2" }),
    line("constructor", undefined, { id: "evt_a_3" }),
  ];
  const { events, skipped } = fromJsonl(bare.join("\r\n"));
  assert.deepEqual([events.length, skipped], [3, 0]);
  assert.equal(fold(EMPTY, events).lastPlace, 3);
  assert.equal(trace(events).characters, 4);
});

test("words are found as they are read and as JSON spells them", () => {
  const [event] = new Log().add("tool_result", { content: 'Say "hi" in C:\\temp\nwith \\d+ (a|b)*', isOdd: true }).events;
  assert.ok(event);
  for (const words of ["tool_r", 'say "hi" in c:\\temp', "c:\\\\temp", "\\d+ (a|b)*", "\nwith", '"isodd":true']) {
    assert.ok(mentions(event, words), words);
  }
  for (const words of ["c:temp", "d+ (a|b)*c", "say.*hi"]) assert.ok(!mentions(event, words), words);
});

test("metrics are read, and a pulse is what lies between two looks", () => {
  const text = (events: number, commits: number, seconds: number) => `# HELP x
tarko_events_stored_total ${events}.0
tarko_commits_total ${commits}
tarko_commit_seconds_total ${seconds}
tarko_readers 3.0
tarko_turns_ended_total{status="completed"} 7.0
tarko_turns_ended_total{status="failed"} 1.0
`;
  const [before, now] = [
    { at: 1000, figures: parseMetrics(text(10, 2, 0.5)) },
    { at: 3000, figures: parseMetrics(text(110, 12, 0.52)) },
  ];
  const found = pulse(before, now);
  assert.equal(found?.eventsPerSecond, 50);
  assert.equal(found?.readers, 3);
  assert.ok(Math.abs((found?.commitMs ?? 0) - 2) < 1e-9);
  assert.deepEqual(endings(now.figures), { completed: 7, failed: 1 });
  assert.equal(pulse(now, { ...before, at: 4000 }), undefined, "the server was restarted");
  assert.equal(pulse(now, now), undefined);
});

test("a turn becomes spans", () => {
  const [first, second] = turnsOf(everything().events);
  const found = trace(first ?? []);
  assert.deepEqual(
    found.spans.map(({ kind, label, hasFailed }) => [kind, label, hasFailed]),
    [
      ["thinking", "thinking", false],
      ["text", "text", false],
      ["thinking", "thinking", false],
      ["text", "text", false],
      ["tool", "look", false],
      ["tool", "look", true],
      ["text", "text", false],
    ],
  );
  for (const { start, end } of found.spans) assert.ok(end !== undefined && end >= start);
  assert.deepEqual([found.status, found.totalMs, found.tools, found.prompt], ["failed", 1234, 2, "Everything"]);
  assert.equal(found.firstTextMs, 500);
  assert.deepEqual(found.marks.map(({ type }) => type), ["user_feedback", "retrying", "progress", "error"]);
  assert.equal(trace(second ?? []).spans.length, 1);
  assert.deepEqual(trace([]).spans, []);
});

test("a running turn has open spans", () => {
  const log = new Log().begin("turn_1").say("m1", "a").add("tool_call", { id: "a", name: "look", arguments: {} });
  const found = trace(log.events);
  assert.deepEqual(found.spans.map(({ end }) => end), [200, undefined]);
  assert.deepEqual([found.status, found.totalMs], ["running", undefined]);
});

test("text whose deltas are gone is placed by what its message says of itself", () => {
  const log = new Log().begin("turn_1").pause(2000);
  log.add("assistant_message", { content: "Hi", messageId: "m" }, { source: "agent", ttftMs: 500, ttltMs: 1700 });
  const [span] = trace(log.end("turn_1").events).spans;
  assert.deepEqual([span?.start, span?.end], [900, 2100]);
});

test("a turn's id tells when it was accepted", () => {
  const ms = 1_796_000_000_000;
  let bits = BigInt(ms) << 2n; // 48 bits of time and the first two of the version, in ten digits
  let digits = "";
  for (let at = 0; at < 10; at += 1) {
    digits = "abcdefghijklmnopqrstuvwxyz234567"[Number(bits & 31n)] + digits;
    bits >>= 5n;
  }
  assert.equal(acceptedAt(`turn_${digits}${"a".repeat(16)}`), ms);
  assert.equal(acceptedAt("turn_1"), undefined);
});

test("pace and axis", () => {
  assert.deepEqual(pace([0, 10, 600, 1000], 1000, 2), [4, 4]);
  assert.deepEqual(pace([], 0, 3), [0, 0, 0]);
  assert.deepEqual(ticks(0, 1000, 5), [0, 200, 400, 600, 800, 1000]);
  assert.deepEqual(ticks(0, 0), []);
});

test("a tape shows every prefix as the fold does, in whatever order it is asked", () => {
  const log = new Log();
  for (let turn = 0; turn < 250; turn += 1) log.begin(`turn_${turn}`).say(`m${turn}`, "a", "b").end(`turn_${turn}`);
  const tape = new Tape(log.events);
  for (const count of [1250, 0, 3, 700, 499, 500, 501, 1000, 2, 99_999, -1]) {
    assert.deepEqual(tape.after(count), fold(EMPTY, log.events.slice(0, Math.max(0, count))), String(count));
  }
});

test("a tape is played as recorded, with long silences cut", () => {
  const tape = new Tape(new Log().add("a").pause(60_000).add("b").add("c").events);
  assert.deepEqual(tape.schedule(2000), [0, 2000, 2100]);
  assert.deepEqual(tape.schedule(Infinity), [0, 60_100, 60_200]);
  assert.deepEqual([-1, 0, 1999, 2000, 9999].map((at) => reached([0, 2000, 2100], at)), [0, 1, 1, 2, 3]);
});
