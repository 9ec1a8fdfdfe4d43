/** Frames of an event stream over `fetch`: unlike `EventSource` it sees why it was refused, and runs in Node. */

import { NotTarko } from "./errors.js";
import { readEvent } from "./events.js";
import type { Request } from "./http.js";
import { SILENCE_MS, ask, lost, withoutLoss } from "./http.js";
import type { Frame } from "./reading.js";
import type { Block } from "./sse.js";
import { BlockReader } from "./sse.js";

const HEADERS = { Accept: "text/event-stream" };

/** The frames of one connection. Throws ConnectionLost, Refused, NotTarko, or the signal's reason. */
export async function* streamFrames(
  base: string,
  request: Request,
  headers: Record<string, string>,
  signal: AbortSignal | undefined,
): AsyncGenerator<Frame, void, undefined> {
  signal?.throwIfAborted();
  const connection = new AbortController();
  const stop = () => connection.abort(signal?.reason);
  signal?.addEventListener("abort", stop, { once: true });
  const watch = new Watch(() => connection.abort(lost(base, "the server has gone silent")));
  try {
    const answer = await ask(base, request, { ...HEADERS, ...headers }, connection.signal);
    if (!answer.headers.get("Content-Type")?.startsWith("text/event-stream") || answer.body === null) {
      throw new NotTarko(`${base} does not answer with events: is it a Tarko server?`);
    }
    const body = answer.body.getReader();
    const blocks = new BlockReader();
    for (;;) {
      const { done, value } = await withoutLoss(base, connection.signal, () => body.read());
      if (done) return;
      watch.reset();
      for (const block of blocks.take(value)) yield frameOf(block);
    }
  } finally {
    watch.stop();
    signal?.removeEventListener("abort", stop);
    connection.abort();
  }
}

/** Calls when nothing was heard for too long. */
class Watch {
  #timer: ReturnType<typeof setTimeout> | undefined;

  constructor(private readonly act: () => void) {
    this.reset();
  }

  reset(): void {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(this.act, SILENCE_MS);
  }

  stop(): void {
    clearTimeout(this.#timer);
  }
}

function frameOf(block: Block): Frame {
  return {
    ...(block.id ? { cursor: block.id } : {}),
    ...(block.data ? { event: readEvent(block.data) } : {}),
    ...(block.retryMs === undefined ? {} : { retryMs: block.retryMs }),
  };
}
