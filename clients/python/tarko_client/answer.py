"""Folds a turn's events into its answer, as the protocol's blocking query does. No I/O."""

from dataclasses import dataclass
from typing import Any

from tarko_client.errors import TurnFailed
from tarko_client.event import Event


@dataclass(frozen=True, slots=True)
class Answer:
    """What a turn said: all its text, its lasting events, its ending (`completed` or `aborted`), its structured result.

    `data` is None where the agent gave none.
    """

    response: str
    events: list[Event]
    status: str
    turn_id: str
    data: Any


class Answering:
    """Takes a turn's events one by one."""

    def __init__(self) -> None:
        self._texts: list[str] = []
        self._events: list[Event] = []
        self._error: Event | None = None
        self._end: Event | None = None

    def take(self, event: Event) -> None:
        """Take the next event."""
        if not (event.is_control or event.is_passing):
            self._events.append(event)
        match event.type:
            case "assistant_message":
                self._texts.append(event.text_of("content"))
            case "error":
                self._error = event
            case "agent_run_end":
                self._end = event

    def answer(self) -> Answer:
        """The answer. Raises TurnFailed for a turn that neither completed nor was aborted."""
        status = self._end.text_of("status") if self._end else "removed"
        turn_id = self._end.text_of("turnId") if self._end else ""
        response = "".join(self._texts)
        if self._end is not None and status in ("completed", "aborted"):
            return Answer(response, self._events, status, turn_id, self._end.get("data", None))
        error = self._error
        raise TurnFailed(
            error.text_of("error") if error else f"The turn ended {status}.",
            code=error.text_of("code") if error else "agent_failed",
            status=status,
            response=response,
            turn_id=turn_id,
            is_recoverable=error is not None and error.get("recoverable") is True,
        )
