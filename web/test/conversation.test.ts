import assert from "node:assert/strict";
import { test } from "node:test";
import type { Conversation, Item } from "../src/model/conversation.js";
import { EMPTY, fold, lastWords } from "../src/model/conversation.js";
import { everything, Log } from "./making.js";

const itemsOf = (conversation: Conversation): Item[] => conversation.blocks.flatMap(({ items }) => items);
/** What is shown: all but where the events lay, which differs when deltas are gone. */
const shown = (conversation: Conversation) => ({
  blocks: conversation.blocks.map(({ turnId, isOpen, items }) => ({
    turnId,
    isOpen,
    items: items.map(({ place: _place, at: _at, ...rest }) => rest),
  })),
  running: conversation.runningTurn,
  isOver: conversation.isOver,
  lastPlace: conversation.lastPlace,
});

test("a conversation has everything that was said and done, in order", () => {
  const conversation = fold(EMPTY, everything().events);
  assert.deepEqual(
    conversation.blocks.map(({ turnId, items }) => [turnId, items.map(({ kind }) => kind)]),
    [
      [
        "turn_1",
        [
          ...["user", "message", "thinking", "thinking", "tool", "tool", "other", "retry", "other"],
          ...["message", "error", "ending"],
        ],
      ],
      [undefined, ["other"]],
      ["turn_2", ["user", "message", "ending"]],
    ],
  );
  const texts = itemsOf(conversation).flatMap((item) => (item.kind === "message" ? [item.text] : []));
  assert.deepEqual(texts, ["I look. Now.", "I saw it.", "Done."]);
  const tools = itemsOf(conversation).flatMap((item) => (item.kind === "tool" ? [[item.content, item.error, item.elapsedMs]] : []));
  assert.deepEqual(tools, [
    [{ seen: true }, undefined, 9],
    ["dark", "dark", 7],
  ]);
  assert.equal(lastWords(conversation), "Done.");
});

test("what was taken before changes nothing, and the very same conversation comes back", () => {
  const { events } = everything();
  const once = fold(EMPTY, events);
  assert.equal(fold(once, events), once);
  const stuttering = events.flatMap((_, at) => events.slice(Math.max(0, at - 3), at + 1));
  assert.deepEqual(fold(EMPTY, stuttering), once);
});

test("it is the same event by event as at once, and what was given stays as it was", () => {
  const { events } = everything();
  let conversation = EMPTY;
  const kept: [Conversation, string][] = [];
  for (const event of events) {
    conversation = fold(conversation, [event]);
    kept.push([conversation, JSON.stringify(conversation)]);
  }
  assert.deepEqual(conversation, fold(EMPTY, events));
  for (const [each, before] of kept) assert.equal(JSON.stringify(each), before);
  assert.deepEqual(EMPTY.blocks, []);
});

test("turns that did not change are the same objects after", () => {
  const log = everything();
  const before = fold(EMPTY, log.events);
  const count = log.events.length;
  const after = fold(before, log.begin("turn_3").events.slice(count));
  assert.equal(after.blocks[0], before.blocks[0]);
  assert.equal(after.blocks[2], before.blocks[2]);
  assert.equal(after.runningTurn, "turn_3");
});

test("settled turns are the same without their deltas", () => {
  const log = everything();
  assert.deepEqual(shown(fold(EMPTY, log.lasting())), shown(fold(EMPTY, log.events)));
});

test("a replay without deltas that broke off anywhere goes on with them", () => {
  const log = everything();
  const [whole, lasting] = [log.events, log.lasting()];
  const once = shown(fold(EMPTY, whole));
  lasting.forEach((event, at) => {
    const resumed = whole.slice(whole.indexOf(event) + 1);
    assert.deepEqual(shown(fold(fold(EMPTY, lasting.slice(0, at + 1)), resumed)), once, event.id);
  });
});

test("a log may be taken up anywhere", () => {
  const { events } = everything();
  for (let from = 0; from < events.length; from += 1) {
    const conversation = fold(EMPTY, events.slice(from));
    assert.equal(conversation.lastPlace, events.length);
    assert.equal(itemsOf(conversation).at(-1)?.kind, "ending");
  }
});

test("a turn that was stopped shows no error, and one that asks shows its question", () => {
  const log = new Log().begin("turn_1").add("error", { error: "stopped", code: "aborted", recoverable: false });
  const stopped = fold(EMPTY, log.end("turn_1", "aborted").events);
  assert.deepEqual(itemsOf(stopped).map(({ kind }) => kind), ["user", "ending"]);
  const asks = fold(EMPTY, new Log().begin("turn_1").add("input_required", { text: "Which city?" }).events);
  assert.deepEqual(itemsOf(asks).at(-1)?.kind, "question");
  assert.equal(asks.runningTurn, "turn_1");
});

test("a deleted session is over and runs nothing", () => {
  const conversation = fold(EMPTY, new Log().begin("turn_1").add("session_end", {}).events);
  assert.equal(conversation.isOver, true);
  assert.equal(conversation.runningTurn, undefined);
});

test("answers that are not in the log are not taken", () => {
  const control = { id: "ctl_1", type: "error", timestamp: 1, sessionId: "", data: {}, metadata: {} };
  assert.equal(fold(EMPTY, [{ ...control, id: "evt_abc_nothing" }]), EMPTY);
});
