"""Folds the documented dialect's events of one turn into an agent's events. No I/O.

A server that tells where a run starts (ours does) has said all when it told its end. One that speaks the protocol page
alone ends a turn by closing the stream: after a closing message that is a success, after an `error` a failure. Which of
the two it is shows in the stream itself.

Events of clients are not the agent's and are left out.
"""

from collections.abc import Callable, Mapping
from typing import Any

from app.agents.adapters.pieces import deltas
from app.agents.adapters.remote_failures import BadRemoteEvent
from app.agents.adapters.tarko.told import Told, Unfinished, passed_on, text_of
from app.agents.contract import AgentEvent

_SILENT = frozenset(
    {
        "user_message",
        "user_query",
        "session_start",
        "session_end",
        "session_joined",
        "query_queued",
        "context_compressed",
        "assistant_message_start",
        "tool_execution_start",
        "tool_execution_delta",
    }
)


class NestedFold:
    """One turn. `turn_id` is the remote turn's once it is known, `ending` the terminal event once it was told."""

    def __init__(self) -> None:
        self.turn_id: str | None = None
        self.ending: AgentEvent | None = None
        self._text = Told()
        self._thinking = Told()
        self._unfinished = Unfinished()
        self._messages = 0
        self._closing = False
        self._error: Mapping[str, Any] | None = None
        self._handlers: dict[str, Callable[[Mapping[str, Any]], list[AgentEvent]]] = {
            "agent_run_start": self._start,
            "assistant_message_delta": lambda data: self._delta("text", self._text, data),
            "assistant_message": self._message,
            "assistant_thinking_delta": lambda data: self._delta("thinking", self._thinking, data),
            "assistant_thinking_message": lambda data: self._rest("thinking", self._thinking, data),
            "tool_call": _tool_call,
            "tool_result": self._tool_result,
            "error": self._fail,
            "agent_run_end": self._end,
        }

    def take(self, event: Any) -> list[AgentEvent]:
        """What the agent says by this event; the terminal one is in `ending`. Raises BadRemoteEvent."""
        if not isinstance(event, dict):
            raise BadRemoteEvent(f"an event must be an object, not {type(event).__name__}")
        kind, data = text_of(event, "type"), event.get("data")
        marks = event.get("metadata")
        if kind in _SILENT or (isinstance(marks, dict) and marks.get("source") == "client"):
            return []
        handler = self._handlers.get(kind)
        if handler is None:
            said = passed_on(kind, data if isinstance(data, dict) else {"data": data})
        elif isinstance(data, dict):
            said = handler(data)
        else:
            raise BadRemoteEvent(f"the data of {kind} must be an object, not {type(data).__name__}")
        return [*self._unfinished.let_out(), *said] if said and kind != "tool_result" else said

    def close(self) -> AgentEvent | None:
        """The ending that the stream's end is, if it is one."""
        if self.turn_id is None and self.ending is None:
            if self._error is not None:
                self.ending = self._failed("agent_failed")
            elif self._closing:
                self.ending = {"type": "completed"}
        return self.ending

    def _start(self, data: Mapping[str, Any]) -> list[AgentEvent]:
        self.turn_id = text_of(data, "turnId")
        return []

    def _delta(self, kind: str, told: Told, data: Mapping[str, Any]) -> list[AgentEvent]:
        self._closing = False
        return deltas(kind, told.add(self._message_id(data), text_of(data, "delta")))

    def _rest(self, kind: str, told: Told, data: Mapping[str, Any]) -> list[AgentEvent]:
        return deltas(kind, told.rest(self._message_id(data), text_of(data, "content")))

    def _message(self, data: Mapping[str, Any]) -> list[AgentEvent]:
        rest = self._rest("text", self._text, data)
        self._messages += 1
        self._closing = data.get("finishReason", "stop") in ("stop", "length")
        return rest

    def _message_id(self, data: Mapping[str, Any]) -> str:
        """A server that names no messages has one open at a time."""
        named = data.get("messageId")
        return named if isinstance(named, str) else f"#{self._messages}"

    def _tool_result(self, data: Mapping[str, Any]) -> list[AgentEvent]:
        ended = {
            "type": "tool_ended",
            "id": text_of(data, "toolCallId"),
            "isError": data.get("success") is False,
            "content": data["rawContent"] if "rawContent" in data else data.get("content"),
        }
        return self._unfinished.take(ended, data.get("error"))

    def _fail(self, data: Mapping[str, Any]) -> list[AgentEvent]:
        self._error = data
        return []

    def _end(self, data: Mapping[str, Any]) -> list[AgentEvent]:
        status = data.get("status")
        if status == "completed":
            self.ending = {"type": "completed", **({"data": data["data"]} if "data" in data else {})}
            return self._unfinished.at_completion()
        self.ending = self._failed("aborted" if status == "aborted" else "agent_failed")
        return []

    def _failed(self, code: str) -> AgentEvent:
        error = self._error or {}
        said, named = error.get("error"), error.get("code")
        return {
            "type": "failed",
            "details": said if isinstance(said, str) else "the remote turn did not complete",
            "retryable": error.get("recoverable") is True,
            "code": named if isinstance(named, str) and named else code,
        }


def _tool_call(data: Mapping[str, Any]) -> list[AgentEvent]:
    return [
        {
            "type": "tool_started",
            "id": text_of(data, "id"),
            "name": text_of(data, "name"),
            "args": data.get("arguments"),
        }
    ]
