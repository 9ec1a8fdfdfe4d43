import assert from "node:assert/strict";
import { test } from "node:test";
import type { Block } from "../src/sse.js";
import { BlockReader } from "../src/sse.js";

const STREAM =
  "\ufeffretry: 1500\nid: evt_1\n\n: ping\n\ndata: a\u2028b\u0085é🦊\nid: evt_2\n\n" +
  "event: x\r\ndata: one\r\ndata:two\r\n\r\ndata\rid: evt_3\r\rid: bad\0\n\nretry: soon\nodd: 1\n\ndata: lost";
const BLOCKS: Block[] = [
  { retryMs: 1500, id: "evt_1" },
  { data: "a\u2028b\u0085é🦊", id: "evt_2" },
  { data: "one\ntwo" },
  { data: "", id: "evt_3" },
];

function read(chunks: Iterable<Uint8Array>): Block[] {
  const reader = new BlockReader();
  return [...chunks].flatMap((chunk) => reader.take(chunk));
}

test("a stream is the same wherever its chunks end", () => {
  const bytes = new TextEncoder().encode(STREAM);
  for (let size = 1; size <= bytes.length; size++) {
    const chunks = [];
    for (let at = 0; at < bytes.length; at += size) chunks.push(bytes.subarray(at, at + size));
    assert.deepEqual(read(chunks), BLOCKS, `in chunks of ${size}`);
  }
});

test("a line feed that comes after its return ends no second line", () => {
  const encode = (text: string) => new TextEncoder().encode(text);
  const chunks = ["data: a\r", "\n", "\r", "\n", "data: b\n", "\n"].map(encode);
  assert.deepEqual(read(chunks), [{ data: "a" }, { data: "b" }]);
});

test("a long line in many chunks takes time in proportion", () => {
  const piece = new TextEncoder().encode("x".repeat(1024));
  const [block] = read([new TextEncoder().encode("data: "), ...Array(8192).fill(piece), new Uint8Array([10, 10])]);
  assert.equal(block?.data?.length, 8192 * 1024);
});
