"""Folds a turn's events into the answer of a blocking query. No I/O."""

from app.dialects.tarko_ui.flat import message
from app.events.canonical import decode, encode
from app.events.envelope import Envelope
from app.log.session_log import Page


class TurnAnswer:
    """The turn's last message. One that failed before it said anything says why instead."""

    def __init__(self, turn_id: str) -> None:
        self._turn_id = turn_id
        self._message: Envelope | None = None
        self._error = ""

    def take(self, page: Page) -> bool:
        """Take a page of the session's log; returns whether the turn has ended."""
        for event in page.events:
            if event.turn_id != self._turn_id:
                continue
            if event.type == "assistant_message":
                self._message = event
            elif event.type == "error":
                self._error = decode(event.data)["error"]
            elif event.type == "agent_run_end":
                return True
        return False

    def result(self) -> bytes:
        """The flat message, as JSON."""
        assert self._message is not None  # noqa: S101 - every turn has a closing message
        data = decode(self._message.data)
        if data["content"] or not self._error:
            return message(self._message)
        return message(self._message._replace(data=encode(data | {"content": self._error})))
