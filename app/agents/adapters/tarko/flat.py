"""Folds the runtime dialect's flat events of one turn into an agent's events. No I/O.

An event may come twice, in the stream and in the history that is read after a connection was lost; there, the running
message comes as one streaming event with all its text so far. So nothing is told that was told before: texts are known
by their message's id, everything else by its own.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from app.agents.adapters.pieces import deltas
from app.agents.adapters.remote_failures import BadRemoteEvent
from app.agents.adapters.tarko.told import Told, Unfinished, passed_on, text_of
from app.agents.contract import AgentEvent

_SILENT = frozenset(
    {"environment_input", "session_created", "assistant_streaming_tool_call", "final_answer_streaming"}
)
_STREAMING = {
    "assistant_streaming_message": "text",
    "assistant_streaming_thinking_message": "thinking",
}
_BASE = frozenset({"id", "type", "timestamp"})
_RETRYING = {"attempt", "maxAttempts", "delayMs", "reason"}
_TEMPORARY = frozenset({"session_busy", "server_shutdown", "storage_unavailable"})


class FlatFold:
    """One turn. `ending` is the terminal event once it was told, `has_started` whether the run has begun."""

    def __init__(self) -> None:
        self.ending: AgentEvent | None = None
        self.has_started = False
        self._told = {"text": Told(), "thinking": Told()}
        self._unfinished = Unfinished()
        self._messages = 0
        self._seen: set[str] = set()
        self._error: Mapping[str, Any] | None = None
        self._handlers: dict[str, Callable[[Mapping[str, Any]], list[AgentEvent]]] = {
            "user_message": self._start,
            "agent_run_start": self._start,
            "assistant_message": self._message,
            "assistant_thinking_message": lambda event: self._rest("thinking", event),
            "tool_call": _tool_call,
            "tool_result": self._tool_result,
            "system": self._system,
            "agent_run_end": self._end,
        }

    def take(self, event: Any) -> list[AgentEvent]:
        """What the agent says by this streamed event; the terminal one is in `ending`. Raises BadRemoteEvent."""
        if not isinstance(event, dict):
            raise BadRemoteEvent(f"an event must be an object, not {type(event).__name__}")
        kind = text_of(event, "type")
        if kind in _SILENT or (kind not in _STREAMING and self._was_seen(event)):
            return []
        said = self._said(kind, event)
        return [*self._unfinished.let_out(), *said] if said and kind != "tool_result" else said

    def _said(self, kind: str, event: Mapping[str, Any]) -> list[AgentEvent]:
        if kind in _STREAMING:
            told = _STREAMING[kind]
            return deltas(told, self._told[told].add(self._message_id(event), text_of(event, "content")))
        handler = self._handlers.get(kind)
        return passed_on(kind, _own(event)) if handler is None else handler(event)

    def catch_up(self, events: Iterable[Any]) -> list[AgentEvent]:
        """What the agent says by the turn's events in the history, as far as it was not told before."""
        said: list[AgentEvent] = []
        for event in events:
            if self.ending is not None:
                break
            kind = event.get("type") if isinstance(event, dict) else None
            said += self._rest(_STREAMING[kind], event) if kind in _STREAMING else self.take(event)
        return said

    def close(self) -> AgentEvent | None:
        """The ending that the stream's end is: a server may stop streaming at an error."""
        if self.ending is None and self._error is not None:
            self.ending = self._failed()
        return self.ending

    def _was_seen(self, event: Mapping[str, Any]) -> bool:
        own = event.get("id")
        if not isinstance(own, str):
            return False
        known = own in self._seen
        self._seen.add(own)
        return known

    def _start(self, _event: Mapping[str, Any]) -> list[AgentEvent]:
        self.has_started = True
        return []

    def _message(self, event: Mapping[str, Any]) -> list[AgentEvent]:
        rest = self._rest("text", event)
        self._messages += 1
        return rest

    def _rest(self, said: str, event: Mapping[str, Any]) -> list[AgentEvent]:
        return deltas(said, self._told[said].rest(self._message_id(event), text_of(event, "content")))

    def _message_id(self, event: Mapping[str, Any]) -> str:
        """A server that names no messages has one open at a time."""
        named = event.get("messageId")
        return named if isinstance(named, str) else f"#{self._messages}"

    def _tool_result(self, event: Mapping[str, Any]) -> list[AgentEvent]:
        error = event.get("error")
        ended = {
            "type": "tool_ended",
            "id": text_of(event, "toolCallId"),
            "isError": bool(error),
            "content": event.get("rawContent", event.get("content")),
        }
        return self._unfinished.take(ended, error)

    def _system(self, event: Mapping[str, Any]) -> list[AgentEvent]:
        if event.get("level") == "error":
            self._error = event
            return []
        details = event.get("details")
        if isinstance(details, dict) and details.keys() == _RETRYING:
            return [{"type": "retrying", **details}]
        return passed_on("system", _own(event))

    def _end(self, event: Mapping[str, Any]) -> list[AgentEvent]:
        # The reference server tells `idle` for a run that failed, too.
        if self._error is not None or event.get("status") in ("error", "aborted"):
            self.ending = self._failed("aborted" if event.get("status") == "aborted" else "agent_failed")
            return []
        self.ending = {"type": "completed", **({"data": event["data"]} if "data" in event else {})}
        return self._unfinished.at_completion()

    def _failed(self, code: str = "agent_failed") -> AgentEvent:
        error = self._error or {}
        told = error.get("details")
        details = told if isinstance(told, dict) else {}
        said, named = error.get("message"), details.get("errorCode")
        code = named if isinstance(named, str) and named else code
        return {
            "type": "failed",
            "details": said if isinstance(said, str) else "the remote turn did not complete",
            "retryable": details.get("retryable", code in _TEMPORARY) is True,
            "code": code,
        }


def _tool_call(event: Mapping[str, Any]) -> list[AgentEvent]:
    return [
        {
            "type": "tool_started",
            "id": text_of(event, "toolCallId"),
            "name": text_of(event, "name"),
            "args": event.get("rawArguments", event.get("arguments")),
        }
    ]


def _own(event: Mapping[str, Any]) -> dict[str, Any]:
    return {key: event[key] for key in event if key not in _BASE}
