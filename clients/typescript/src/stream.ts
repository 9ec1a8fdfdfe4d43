/** Frames of an event stream over `fetch`: unlike `EventSource` it sees why it was refused, and runs in Node. */

import { NotTarko } from "./errors.js";
import { readEvent } from "./events.js";
import type { Request } from "./http.js";
import { Exchange } from "./http.js";
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
  const exchange = new Exchange(base, signal);
  try {
    const answer = await exchange.ask(request, { ...HEADERS, ...headers });
    if (!answer.headers.get("Content-Type")?.startsWith("text/event-stream")) {
      throw new NotTarko(`${base} does not answer with events: is it a Tarko server?`);
    }
    const blocks = new BlockReader();
    for (let bytes = await exchange.bytes(); bytes; bytes = await exchange.bytes()) {
      for (const block of blocks.take(bytes)) yield frameOf(block);
    }
  } finally {
    exchange.close();
  }
}

function frameOf(block: Block): Frame {
  return {
    ...(block.id ? { cursor: block.id } : {}),
    ...(block.data ? { event: readEvent(block.data) } : {}),
    ...(block.retryMs === undefined ? {} : { retryMs: block.retryMs }),
  };
}
