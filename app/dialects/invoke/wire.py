"""How the Agent Handler's wire spells a log event: the agent's event again, as one `data:` line.

A function of one event each, without I/O. What the log adds is left out, and what it renamed gets its old name: tool
ids, types that are reserved in the log, arguments that were no object. An `error` ends a turn that did not complete,
so it is the `failed` event; `agent_run_end` is the `completed` one, or nothing. A tool that the turn's end found
running gets the `tool_ended` that the log gave it.

Source: Agent Handler protocol specification v0.1, and what FastAgent's clients read.
"""

from collections.abc import Callable, Sequence
from typing import Any

from app.events.canonical import decode, encode
from app.events.envelope import Envelope
from app.events.vocabulary import RESERVED

ABORTED = "aborted"
NO_CODE = "agent_failed"
"""What the log calls the failure of an agent that gave no code."""

_RENAMED = {f"agent.{event_type}": event_type for event_type in RESERVED}

AgentEvent = dict[str, Any]


def frames(events: Sequence[Envelope]) -> bytes:
    """The frames of these events; of many none are made."""
    spoken = [event for envelope in events if (event := spell(envelope)) is not None]
    return b"".join([frame(event) for event in spoken])


def frame(event: AgentEvent) -> bytes:
    """One message: a `data:` line, without a name and without an id."""
    return b"data: %b\n\n" % encode(event)


def spell(envelope: Envelope) -> AgentEvent | None:
    """The agent's event, or None for what no agent says."""
    if envelope.type not in RESERVED:
        return {"type": _RENAMED.get(envelope.type, envelope.type), **decode(envelope.data)}
    spell_data = _KNOWN.get(envelope.type)
    return None if spell_data is None else spell_data(decode(envelope.data), decode(envelope.metadata))


def _text(data: AgentEvent, _: AgentEvent) -> AgentEvent:
    return {"type": "text", "delta": data["delta"]}


def _thinking(data: AgentEvent, _: AgentEvent) -> AgentEvent:
    return {"type": "thinking", "delta": data["delta"]}


def _tool_started(data: AgentEvent, marks: AgentEvent) -> AgentEvent:
    tool_id = marks.get("toolCallId", data["id"])
    return {"type": "tool_started", "id": tool_id, "name": data["name"], "args": data["arguments"]}


def _tool_ended(data: AgentEvent, marks: AgentEvent) -> AgentEvent:
    return {
        "type": "tool_ended",
        "id": marks.get("toolCallId", data["toolCallId"]),
        "isError": not data["success"],
        "content": data.get("rawContent", data["content"]),
    }


def _failed(data: AgentEvent, _: AgentEvent) -> AgentEvent:
    # Whoever aborted a turn did not want it: it must not be sent again by itself.
    retryable = data["recoverable"] and data["code"] != ABORTED
    event = {"type": "failed", "details": data["error"], "retryable": retryable}
    return event if data["code"] == NO_CODE else event | {"code": data["code"]}


def _completed(data: AgentEvent, _: AgentEvent) -> AgentEvent | None:
    if data["status"] != "completed":
        return None
    return {"type": "completed", "data": data["data"]} if "data" in data else {"type": "completed"}


_KNOWN: dict[str, Callable[[AgentEvent, AgentEvent], AgentEvent | None]] = {
    "assistant_message_delta": _text,
    "assistant_thinking_delta": _thinking,
    "tool_call": _tool_started,
    "tool_result": _tool_ended,
    "error": _failed,
    "agent_run_end": _completed,
}
