/** Events for tests, as a log would hold them. */

import type { AgentEvent } from "../src/model/client.js";

/** A log that is written event by event; every event comes 100 ms after the one before. */
export class Log {
  readonly events: AgentEvent[] = [];
  #at = 1_000_000;

  add(type: string, data: unknown = {}, metadata: Record<string, unknown> = { source: "agent" }): this {
    const id = `evt_abc_${this.events.length + 1}`;
    this.events.push({ id, type, timestamp: this.#at, sessionId: "sess_abc", data, metadata } as AgentEvent);
    this.#at += 100;
    return this;
  }

  pause(ms: number): this {
    this.#at += ms;
    return this;
  }

  begin(turnId: string, content: unknown = "Hello"): this {
    return this.add("user_message", { content, role: "user" }, { source: "user" }).add("agent_run_start", {
      turnId,
      agentName: "demo",
    });
  }

  say(messageId: string, ...deltas: string[]): this {
    for (const delta of deltas) this.add("assistant_message_delta", { delta, messageId });
    return this;
  }

  end(turnId: string, status = "completed", more: object = {}): this {
    return this.add("agent_run_end", { turnId, status, elapsedMs: 1234, ...more });
  }

  lasting(): AgentEvent[] {
    return this.events.filter(({ type }) => !type.endsWith("_delta"));
  }
}

/** A turn that has everything, and one more. */
export function everything(): Log {
  return new Log()
    .add("session_start", { sessionId: "sess_abc", agentName: "demo", timestamp: 1 })
    .begin("turn_1", "Everything")
    .add("assistant_message_start", { role: "assistant", messageId: "m1" })
    .add("assistant_thinking_delta", { delta: "Hm. ", messageId: "m1" })
    .add("assistant_thinking_delta", { delta: "Well.", messageId: "m1" })
    .add("assistant_thinking_message", { content: "Hm. Well.", durationMs: 200, messageId: "m1" })
    .say("m1", "I look. ")
    .add("assistant_thinking_delta", { delta: "Again.", messageId: "m1" })
    .add("assistant_thinking_message", { content: "Again.", durationMs: 100, messageId: "m1" })
    .say("m1", "Now.")
    .add("assistant_message", { content: "I look. Now.", role: "assistant", finishReason: "tool_calls", messageId: "m1" })
    .add("tool_call", { id: "a", name: "look", arguments: { at: [1, null] }, type: "function", messageId: "m1" })
    .add("tool_execution_start", { toolCallId: "a", name: "look" })
    .add("tool_call", { id: "b", name: "look", arguments: {}, type: "function", messageId: "m1" })
    .add("tool_result", { toolCallId: "b", name: "look", content: "dark", success: false, error: "dark", elapsedMs: 7 })
    .add("user_feedback", { rating: 5 }, { source: "client" })
    .add("tool_result", { toolCallId: "a", name: "look", content: "{}", rawContent: { seen: true }, success: true, elapsedMs: 9 })
    .add("retrying", { attempt: 2, reason: "busy" })
    .add("progress", { step: 1 })
    .add("assistant_message_start", { role: "assistant", messageId: "m2" })
    .say("m2", "I ", "saw ", "it.")
    .add("assistant_message", { content: "I saw it.", role: "assistant", finishReason: "error", messageId: "m2" })
    .add("error", { error: "enough", code: "enough", recoverable: true })
    .end("turn_1", "failed")
    .add("user_feedback", { rating: 1 }, { source: "client" })
    .begin("turn_2", "More")
    .add("assistant_message_start", { role: "assistant", messageId: "m3" })
    .say("m3", "Done.")
    .add("assistant_message", { content: "Done.", role: "assistant", finishReason: "stop", messageId: "m3" })
    .end("turn_2");
}
