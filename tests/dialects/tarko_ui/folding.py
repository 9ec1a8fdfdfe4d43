"""What a conversation comes to: folded from the documented events, and from the flat ones as the official UI does it."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from app.dialects.tarko_ui.snapshot import Snapshot
from app.events.canonical import decode
from app.events.envelope import Envelope

Json = dict[str, Any]
OUTCOMES = {"completed": "idle", "failed": "error", "interrupted": "error", "aborted": "aborted"}


@dataclass
class Conversation:
    """All text, the tools by id (name, arguments, content, error), how the run ended, and why if it did not complete."""

    text: str = ""
    tools: dict[str, tuple[Any, ...]] = field(default_factory=dict)
    outcome: str = ""
    error: str | None = None


def fold_documented(events: Iterable[Envelope]) -> Conversation:
    """By the protocol page: messages close with their whole text, results follow their calls."""
    found = Conversation()
    for event in events:
        data = decode(event.data)
        match event.type:
            case "assistant_message":
                found.text += data["content"]
            case "tool_call":
                found.tools[data["id"]] = (data["name"], data["arguments"])
            case "tool_result":
                content = data.get("rawContent", data["content"])
                found.tools[data["toolCallId"]] += (content, data.get("error"))
            case "error":
                found.error = data["error"]
            case "agent_run_end":
                found.outcome = OUTCOMES[data["status"]]
    return found


class OfficialUi:
    """The UI's message list, as its build 0.3.5 keeps it: one bubble for each `messageId`, results put on the last
    bubble that has their call, streamed text that the closing message replaces."""

    def __init__(self) -> None:
        self.bubbles: list[Json] = []
        self.is_processing = False
        self.outcome = ""
        self.calls: dict[str, Any] = {}

    def take(self, flat: Json) -> None:
        """One event; those that the UI has no handler for change nothing."""
        handler = getattr(self, f"_{flat['type']}", None)
        if handler is not None:
            handler(flat)

    def _bubble(self, flat: Json) -> Json:
        message_id = flat["messageId"]
        for bubble in self.bubbles:
            if bubble["messageId"] == message_id:
                return bubble
        self.bubbles.append({"messageId": message_id, "content": "", "results": []})
        return self.bubbles[-1]

    def _agent_run_start(self, _: Json) -> None:
        self.is_processing = True

    def _agent_run_end(self, flat: Json) -> None:
        self.is_processing = False
        self.outcome = flat["status"]

    def _assistant_message(self, flat: Json) -> None:
        self._bubble(flat).update(
            content=flat["content"],
            toolCalls=flat.get("toolCalls", []),
            finishReason=flat["finishReason"],
            isStreaming=False,
        )

    def _assistant_streaming_message(self, flat: Json) -> None:
        bubble = self._bubble(flat)
        bubble.update(content=bubble["content"] + flat["content"], isStreaming=True)

    def _assistant_streaming_thinking_message(self, flat: Json) -> None:
        bubble = self._bubble(flat)
        bubble["thinking"] = bubble.get("thinking", "") + flat["content"]

    def _assistant_thinking_message(self, flat: Json) -> None:
        self._bubble(flat)["thinking"] = flat["content"]

    def _tool_call(self, flat: Json) -> None:
        self.calls[flat["toolCallId"]] = flat["arguments"]

    def _tool_result(self, flat: Json) -> None:
        for bubble in reversed(self.bubbles):
            if any(call["id"] == flat["toolCallId"] for call in bubble.get("toolCalls", [])):
                bubble["results"].append(flat)
                return
        raise AssertionError(f"the UI drops the result of {flat['toolCallId']}: no bubble has its call")

    def _system(self, flat: Json) -> None:
        self.bubbles.append({"messageId": flat["id"], "content": "", "results": [], "notice": flat})

    def conversation(self) -> Conversation:
        """What its user sees."""
        found = Conversation(outcome=self.outcome)
        for bubble in self.bubbles:
            found.text += bubble["content"]
            for call in bubble.get("toolCalls", []):
                arguments = json.loads(call["function"]["arguments"])
                assert arguments == self.calls[call["id"]]
                found.tools[call["id"]] = (call["function"]["name"], arguments)
            for result in bubble["results"]:
                found.tools[result["toolCallId"]] += (result["content"], result.get("error"))
            notice = bubble.get("notice", {})
            if "retryable" in notice.get("details", {}):
                found.error = notice["message"]
        return found


def fold_flat(spelled: Sequence[bytes]) -> OfficialUi:
    """The UI after these events."""
    ui = OfficialUi()
    for flat in spelled:
        ui.take(json.loads(flat))
    return ui


def history(events: Iterable[Envelope]) -> list[bytes]:
    """The flat events as the events route tells them."""
    snapshot = Snapshot()
    return snapshot.take(events) + snapshot.rest()
