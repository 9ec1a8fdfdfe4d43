/**
 * Reads an event stream's bytes into blocks, as WHATWG HTML, "Server-sent events", says, with one difference: a block
 * without data is given too, because its id is where to resume. (The parser of the registry hides those on Node 20.)
 *
 * Only LF, CR and CRLF end a line: U+2028 and the like are text. A block that the stream breaks off is never given.
 */

/** A block: fields that it did not have are undefined. */
export interface Block {
  id?: string;
  data?: string;
  retryMs?: number;
}

export class BlockReader {
  readonly #decoder = new TextDecoder(); // which takes away the mark at the beginning
  readonly #pieces: string[] = [];
  #block: Block = {};
  #endedWithReturn = false;

  /** The blocks that this chunk completes. */
  take(chunk: Uint8Array): Block[] {
    const text = this.#decoder.decode(chunk, { stream: true });
    if (text === "") return [];
    // The line feed after a return at the last chunk's end: that line has been ended already.
    const begin = this.#endedWithReturn && text.startsWith("\n") ? 1 : 0;
    this.#endedWithReturn = text.endsWith("\r");
    const lines = text.slice(begin).split(/\r\n|\r|\n/);
    const rest = lines.pop() ?? "";
    if (lines.length > 0) lines[0] = this.#pieces.splice(0).join("") + lines[0];
    if (rest !== "") this.#pieces.push(rest);
    return lines.flatMap((line) => this.#takeLine(line));
  }

  #takeLine(line: string): Block[] {
    if (line === "") {
      const block = this.#block;
      this.#block = {};
      return Object.keys(block).length > 0 ? [block] : [];
    }
    const colon = line.indexOf(":");
    const name = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(line[colon + 1] === " " ? colon + 2 : colon + 1);
    if (name === "data") this.#block.data = this.#block.data === undefined ? value : `${this.#block.data}\n${value}`;
    else if (name === "id" && !value.includes("\0")) this.#block.id = value;
    else if (name === "retry" && /^[0-9]+$/.test(value)) this.#block.retryMs = Number(value);
    return [];
  }
}
