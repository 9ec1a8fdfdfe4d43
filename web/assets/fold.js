/**
 * A session's events, folded into what a conversation shows.
 *
 * Promises: an event that was taken before changes nothing, so replays and reconnects need no care; a settled turn
 * without its deltas folds to the same items as with them. Knows no page, no network and no clock.
 *
 * An item is `{key, kind, …}`; `fold` returns those that it made or changed. `lastId` is where to resume.
 */

export function emptyConversation() {
  return {
    items: [],
    byKey: new Map(),
    seen: new Set(),
    lastId: null,
    agent: null,
    runningTurn: null,
    isOver: false,
  };
}

export function fold(conversation, event) {
  if (conversation.seen.has(event.id)) return [];
  conversation.seen.add(event.id);
  conversation.lastId = event.id;
  const take = Object.hasOwn(TAKERS, event.type) ? TAKERS[event.type] : takeUnknown;
  return take(conversation, event.data, event) ?? [];
}

const TAKERS = {
  session_start: (conversation, data) => {
    conversation.agent = data.agentName;
  },
  session_end: (conversation) => {
    conversation.isOver = true;
    conversation.runningTurn = null;
    return [add(conversation, "session_end", { kind: "over" })];
  },
  user_message: (conversation, data, event) => [
    add(conversation, event.id, { kind: "user", content: data.content, timestamp: event.timestamp }),
  ],
  user_query: (conversation, data, event) => [
    add(conversation, event.id, { kind: "user", content: data.query, timestamp: event.timestamp }),
  ],

  agent_run_start: (conversation, data) => {
    conversation.runningTurn = data.turnId;
  },
  agent_run_end: (conversation, data) => {
    if (conversation.runningTurn === data.turnId) conversation.runningTurn = null;
    return [add(conversation, `end ${data.turnId}`, { ...data, kind: "ending" })];
  },
  error: (conversation, data, event) =>
    // That the user stopped it is no news: the ending says so.
    data.code === "aborted" ? [] : [add(conversation, event.id, { ...data, kind: "error" })],

  assistant_message_start: (conversation, data) => [message(conversation, data.messageId)],
  assistant_message_delta: (conversation, data) => {
    const item = message(conversation, data.messageId);
    if (item.isOpen) item.text += data.delta;
    return [item];
  },
  assistant_message: (conversation, data) => [
    Object.assign(message(conversation, data.messageId), {
      text: data.content,
      finishReason: data.finishReason,
      isOpen: false,
    }),
  ],

  assistant_thinking_delta: (conversation, data) => {
    const item = openThinking(conversation, data.messageId);
    item.text += data.delta;
    return [item];
  },
  assistant_thinking_message: (conversation, data) => {
    const item = openThinking(conversation, data.messageId);
    return [Object.assign(item, { text: data.content, durationMs: data.durationMs, isOpen: false })];
  },

  tool_call: (conversation, data) => [
    Object.assign(tool(conversation, data.id), { name: data.name, arguments: data.arguments }),
  ],
  tool_execution_start: (conversation, data) => [
    Object.assign(tool(conversation, data.toolCallId), { name: data.name }),
  ],
  tool_execution_delta: (conversation, data) => {
    const item = tool(conversation, data.toolCallId);
    if (item.isOpen) item.content += data.delta;
    return [item];
  },
  tool_result: (conversation, data) => [
    Object.assign(tool(conversation, data.toolCallId), {
      name: data.name,
      content: data.rawContent ?? data.content,
      error: data.success ? null : (data.error ?? "error"),
      elapsedMs: data.elapsedMs,
      isOpen: false,
    }),
  ],
};

function takeUnknown(conversation, data, event) {
  return [add(conversation, event.id, { kind: "other", type: event.type, data })];
}

function message(conversation, id) {
  const key = `message ${id}`;
  return conversation.byKey.get(key) ?? add(conversation, key, { kind: "message", text: "", isOpen: true });
}

function tool(conversation, id) {
  const key = `tool ${id}`;
  const begun = { kind: "tool", name: "", arguments: {}, content: "", error: null, isOpen: true };
  return conversation.byKey.get(key) ?? add(conversation, key, begun);
}

/** A message may think more than once; each stretch is closed before the next begins. */
function openThinking(conversation, messageId) {
  let number = 1;
  let item;
  while ((item = conversation.byKey.get(`thinking ${messageId} ${number}`)) && !item.isOpen) number += 1;
  const key = `thinking ${messageId} ${number}`;
  return item ?? add(conversation, key, { kind: "thinking", text: "", isOpen: true });
}

function add(conversation, key, item) {
  item.key = key;
  conversation.items.push(item);
  conversation.byKey.set(key, item);
  return item;
}
