import assert from "node:assert/strict";
import { test } from "node:test";
import { ConnectionLost, NotTarko, Refused } from "../src/errors.js";
import type { ConnectionState } from "../src/link.js";
import { Link, delay } from "../src/link.js";

const LOSS = new ConnectionLost("gone");
const refused = (httpStatus: number | undefined, code: string, retryAfterMs?: number) =>
  new Refused("No.", { code, httpStatus, retryAfterMs });

test("a pause is bounded and never shorter than asked", () => {
  for (const failures of [0, 1, 5, 100]) {
    for (const jitter of [0, 0.5, 1]) {
      for (const [retryMs, retryAfterMs] of [[0, 0], [900, 0], [0, 5000], [70_000, 100]] as const) {
        const ms = delay(1000, failures, jitter, { longestMs: 30_000, retryMs, retryAfterMs });
        assert.ok(ms >= Math.max(retryMs, retryAfterMs) && ms <= Math.max(retryAfterMs + 30_000, retryMs));
      }
    }
  }
  assert.equal(delay(1000, 0, 0, { longestMs: 30_000 }), 500);
  assert.equal(delay(1000, 3, 1, { longestMs: 30_000, retryAfterMs: 7000 }), 15_000);
});

test("whatever is asked, a timer can wait so long", () => {
  for (const asked of [{ retryMs: 3e9 }, { retryAfterMs: 3e9 }, { retryAfterMs: Infinity }]) {
    const ms = delay(1000, 0, 1, { longestMs: 30_000, ...asked });
    assert.ok(ms >= 3_600_000 && ms < 2 ** 31, `${ms}`);
  }
});

test("the server says how long to wait, and failures double it", () => {
  const link = new Link({}, undefined, () => 1);
  link.take({ retryMs: 500 });
  const waits = [link.lost(LOSS), link.lost(LOSS)];
  link.take({ retryMs: 250 }); // says when, but is no sign of life
  waits.push(link.lost(LOSS));
  link.take({ cursor: "evt_1" });
  waits.push(link.lost(LOSS));
  assert.deepEqual(waits, [500, 1000, 1000, 250]);
});

test("what may pass is waited out, what will not change is thrown", () => {
  for (const loss of [LOSS, refused(503, "any"), refused(undefined, "server_shutdown"), refused(429, "bad_gateway")]) {
    assert.equal(new Link({ baseMs: 2 }, undefined, () => 0).lost(loss), 1);
  }
  for (const loss of [refused(404, "x"), refused(429, "queue_full"), refused(502, "agent_failed"), new NotTarko("?")]) {
    assert.throws(() => new Link().lost(loss), loss.constructor as never);
  }
});

test("patience ends after so many failures in a row", () => {
  const link = new Link({ tries: 1 });
  link.lost(LOSS);
  link.heard();
  link.lost(LOSS);
  assert.throws(() => link.lost(LOSS), ConnectionLost);
});

test("an onlooker is told each change once", () => {
  const told: ConnectionState[] = [];
  const link = new Link({}, (state) => told.push(state), () => 0);
  assert.equal(link.state.name, "connecting");
  link.connecting();
  link.heard();
  link.heard();
  link.lost(LOSS);
  link.closed();
  assert.deepEqual(told, [
    { name: "connecting" },
    { name: "live" },
    { name: "waiting", error: LOSS, ms: 500 },
    { name: "closed" },
  ]);
  assert.deepEqual(link.state, { name: "closed" });
});
