/**
 * A session's events, folded into what a conversation shows.
 *
 * Promises: pure — the conversation that is given stays as it was, and what did not change is the same object after;
 * an event at or before the last place changes nothing, so replays need no care; a settled turn folds to the same
 * without its deltas as with them; a log may be taken up anywhere. Knows no page, no network and no clock.
 */

import type { AgentEvent } from "./client.js";
import { isEvent, placeOf } from "./client.js";

export type TurnStatus = "completed" | "failed" | "aborted" | "interrupted";

interface Base {
  readonly key: string;
  readonly place: number;
  readonly at: number;
}

export interface UserItem extends Base {
  readonly kind: "user";
  readonly content: unknown;
}

export interface MessageItem extends Base {
  readonly kind: "message";
  readonly text: string;
  readonly isOpen: boolean;
}

export interface ThinkingItem extends Base {
  readonly kind: "thinking";
  readonly messageId: string;
  readonly text: string;
  readonly durationMs: number | undefined;
  readonly isOpen: boolean;
}

export interface ToolItem extends Base {
  readonly kind: "tool";
  readonly name: string;
  readonly arguments: unknown;
  readonly content: unknown;
  readonly error: string | undefined;
  readonly elapsedMs: number | undefined;
  readonly isOpen: boolean;
}

export interface RetryItem extends Base {
  readonly kind: "retry";
  readonly data: unknown;
}

export interface QuestionItem extends Base {
  readonly kind: "question";
  readonly text: string;
}

export interface ErrorItem extends Base {
  readonly kind: "error";
  readonly error: string;
  readonly code: string;
  readonly isRecoverable: boolean;
}

export interface EndingItem extends Base {
  readonly kind: "ending";
  readonly status: TurnStatus;
  readonly elapsedMs: number;
  readonly data: unknown;
}

export interface OtherItem extends Base {
  readonly kind: "other";
  readonly type: string;
  readonly data: unknown;
}

export type Item =
  | UserItem
  | MessageItem
  | ThinkingItem
  | ToolItem
  | RetryItem
  | QuestionItem
  | ErrorItem
  | EndingItem
  | OtherItem;

/** A turn, or what lies beside turns. `isOpen` until its ending is there. */
export interface Block {
  readonly key: string;
  readonly turnId: string | undefined;
  readonly isOpen: boolean;
  readonly items: readonly Item[];
}

export interface Conversation {
  readonly blocks: readonly Block[];
  readonly lastPlace: number;
  /** The turn that runs. */
  readonly runningTurn: string | undefined;
  /** The session was deleted. */
  readonly isOver: boolean;
}

export const EMPTY: Conversation = {
  blocks: [],
  lastPlace: 0,
  runningTurn: undefined,
  isOver: false,
};

/** The conversation after these events, which are in the log's order. */
export function fold(before: Conversation, events: Iterable<AgentEvent>): Conversation {
  const folding = new Folding(before);
  for (const event of events) folding.take(event);
  return folding.result();
}

type Mutable<T> = { -readonly [Key in keyof T]: T[Key] };

interface OwnBlock {
  key: string;
  turnId: string | undefined;
  isOpen: boolean;
  items: Item[];
}

/** One fold: copies of its own, made when they are first changed. */
class Folding {
  #own: Mutable<Conversation> & { blocks: Block[] };
  readonly #owned = new Set<Block>();
  #hasChanged = false;

  constructor(private readonly before: Conversation) {
    this.#own = { ...before, blocks: before.blocks as Block[] };
  }

  result(): Conversation {
    return this.#hasChanged ? this.#own : this.before;
  }

  take(event: AgentEvent): void {
    const place = placeOf(event.id);
    if (place === undefined || place <= this.#own.lastPlace) return;
    if (!this.#hasChanged) {
      this.#hasChanged = true;
      this.#own.blocks = [...this.#own.blocks];
    }
    this.#own.lastPlace = place;
    const base = { key: event.id, place, at: event.timestamp };
    if (event.metadata?.source === "client") this.#beside(event, base);
    else if (!this.#takeOfTurn(event, base)) this.#add({ ...base, kind: "other", type: event.type, data: event.data });
  }

  #takeOfTurn(event: AgentEvent, base: Base): boolean {
    return this.#takeFrame(event, base) || this.#takeSpeech(event, base) || this.#takeWork(event, base);
  }

  /** What begins and ends sessions and turns. */
  #takeFrame(event: AgentEvent, base: Base): boolean {
    if (isEvent(event, "session_start")) return true;
    if (isEvent(event, "session_end")) {
      this.#own.isOver = true;
      this.#own.runningTurn = undefined;
    } else if (isEvent(event, "user_message")) {
      this.#close();
      this.#add({ ...base, kind: "user", content: event.data.content });
    } else if (isEvent(event, "agent_run_start")) {
      this.#block(base).turnId = event.data.turnId;
      this.#own.runningTurn = event.data.turnId;
    } else if (isEvent(event, "agent_run_end")) {
      const { status, elapsedMs, data, turnId } = event.data;
      this.#add({ ...base, kind: "ending", status, elapsedMs, data });
      this.#block(base).turnId ??= turnId;
      this.#close();
      this.#own.runningTurn = undefined;
    } else if (isEvent(event, "error")) {
      const { error, code, recoverable } = event.data;
      // That the user stopped it is no news: the ending says so.
      if (code !== "aborted") this.#add({ ...base, kind: "error", error, code, isRecoverable: recoverable });
    } else if (event.type === "retrying") this.#add({ ...base, kind: "retry", data: event.data });
    else if (event.type === "input_required") {
      const text = (event.data as { text?: unknown } | null)?.text;
      this.#add({ ...base, kind: "question", text: String(text ?? "") });
    } else return false;
    return true;
  }

  #takeSpeech(event: AgentEvent, base: Base): boolean {
    if (isEvent(event, "assistant_message_start")) this.#message(event.data.messageId, base, () => ({}));
    else if (isEvent(event, "assistant_message_delta")) {
      const { delta } = event.data;
      this.#message(event.data.messageId, base, ({ text, isOpen }) => (isOpen ? { text: text + delta } : {}));
    } else if (isEvent(event, "assistant_message")) {
      const { content } = event.data;
      this.#message(event.data.messageId, base, () => ({ text: content, isOpen: false }));
    } else if (isEvent(event, "assistant_thinking_delta")) {
      const { delta } = event.data;
      this.#thinking(event.data.messageId, base, ({ text }) => ({ text: text + delta }));
    } else if (isEvent(event, "assistant_thinking_message")) {
      const { content, durationMs } = event.data;
      this.#thinking(event.data.messageId, base, () => ({ text: content, durationMs, isOpen: false }));
    } else return false;
    return true;
  }

  #takeWork(event: AgentEvent, base: Base): boolean {
    if (isEvent(event, "tool_call")) {
      this.#tool(event.data.id, base, () => ({ name: event.data.name, arguments: event.data.arguments }));
    } else if (isEvent(event, "tool_execution_start")) {
      this.#tool(event.data.toolCallId, base, () => ({ name: event.data.name }));
    } else if (isEvent(event, "tool_result")) {
      const { toolCallId, name, content, rawContent, success, error, elapsedMs } = event.data;
      this.#tool(toolCallId, base, () => ({
        name,
        content: rawContent ?? content,
        error: success ? undefined : (error ?? "error"),
        elapsedMs,
        isOpen: false,
      }));
    } else return false;
    return true;
  }

  #message(messageId: string, base: Base, change: (item: MessageItem) => Partial<MessageItem>): void {
    const key = `message ${messageId}`;
    this.#change(
      (item): item is MessageItem => item.key === key,
      () => ({ ...base, key, kind: "message", text: "", isOpen: true }),
      change,
      base,
    );
  }

  /** A message may think more than once; each stretch is closed before the next begins. */
  #thinking(messageId: string, base: Base, change: (item: ThinkingItem) => Partial<ThinkingItem>): void {
    const begun = { ...base, kind: "thinking" as const, messageId, text: "", durationMs: undefined, isOpen: true };
    this.#change(
      (item): item is ThinkingItem => item.kind === "thinking" && item.messageId === messageId && item.isOpen,
      (items) => {
        const stretch = items.filter((item) => item.kind === "thinking" && item.messageId === messageId).length;
        return { ...begun, key: `thinking ${messageId} ${stretch}` };
      },
      change,
      base,
    );
  }

  #tool(id: string, base: Base, change: (item: ToolItem) => Partial<ToolItem>): void {
    const key = `tool ${id}`;
    this.#change(
      (item): item is ToolItem => item.key === key,
      () => ({
        ...base,
        key,
        kind: "tool",
        name: "",
        arguments: {},
        content: "",
        error: undefined,
        elapsedMs: undefined,
        isOpen: true,
      }),
      change,
      base,
    );
  }

  #change<T extends Item>(
    isIt: (item: Item) => item is T,
    begin: (items: readonly Item[]) => T,
    change: (item: T) => Partial<T>,
    base: Base,
  ): void {
    const { items } = this.#block(base);
    let at = items.length - 1;
    while (at >= 0 && !isIt(items[at] as Item)) at -= 1;
    const item = at < 0 ? begin(items) : (items[at] as T);
    items[at < 0 ? items.length : at] = { ...item, ...change(item) };
  }

  #add(item: Item): void {
    this.#block(item).items.push(item);
  }

  /** The open block, to be changed. */
  #block(base: Base): OwnBlock {
    const { blocks } = this.#own;
    const last = blocks.at(-1);
    if (!last?.isOpen) return this.#put(blocks.length, { key: base.key, turnId: undefined, isOpen: true, items: [] });
    return this.#owned.has(last)
      ? (last as OwnBlock)
      : this.#put(blocks.length - 1, { ...last, items: [...last.items] });
  }

  #put(at: number, block: OwnBlock): OwnBlock {
    this.#own.blocks[at] = block;
    this.#owned.add(block);
    return block;
  }

  /** The open block takes no more. One that only held what lies beside turns is closed by the next turn. */
  #close(): void {
    const { blocks } = this.#own;
    if (blocks.at(-1)?.isOpen) this.#block({ key: "", place: 0, at: 0 }).isOpen = false;
  }

  /** A client's own event is shown where it lies, and belongs to no turn. */
  #beside(event: AgentEvent, base: Base): void {
    const item: OtherItem = { ...base, kind: "other", type: event.type, data: event.data };
    if (this.#own.runningTurn !== undefined) {
      this.#add(item);
      return;
    }
    this.#close();
    this.#add(item);
    this.#close();
  }
}

/** What was said last, for those who hear the page. */
export function lastWords(conversation: Conversation): string {
  for (const item of (conversation.blocks.at(-1)?.items ?? []).toReversed()) {
    if (item.kind === "message") return item.text;
    if (item.kind === "error") return item.error;
  }
  return "";
}
