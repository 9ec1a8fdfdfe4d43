"""Folds a turn's events into the answer of a blocking query. No I/O."""

from typing import Any

from app.dialects.tarko.nested import spell
from app.events.canonical import decode, encode_text
from app.events.envelope import Envelope
from app.log.session_log import Page

DEADLINE = "deadline_exceeded"


class TurnAnswer:
    """What a turn has said: all its text, its lasting events, and how it ended."""

    def __init__(self, turn_id: str) -> None:
        self._turn_id = turn_id
        self._texts: list[str] = []
        self._events: list[bytes] = []
        self._error: dict[str, Any] = {}
        self.status = ""

    def take(self, page: Page) -> None:
        """Take a page of the session's log; events outside of the turn and deltas do not count."""
        for event in page.events:
            if event.turn_id == self._turn_id and event.ordinal is not None:
                self._take(event)

    def _take(self, event: Envelope) -> None:
        self._events.append(spell(event))
        if event.type == "assistant_message":
            self._texts.append(decode(event.data)["content"])
        elif event.type == "error":
            self._error = decode(event.data)
        elif event.type == "agent_run_end":
            self.status = decode(event.data)["status"]

    @property
    def http_status(self) -> int:
        """200 for a turn that completed or was aborted, 504 for one that ran out of time, else 502."""
        if self.status in ("completed", "aborted"):
            return 200
        return 504 if self._error.get("code") == DEADLINE else 502

    def body(self, session_id: str | None = None) -> bytes:
        """The answer as JSON; `session_id` is told when the client does not know it."""
        response = encode_text("".join(self._texts))
        events = b",".join(self._events)
        session = b"" if session_id is None else b'"sessionId":"%b",' % session_id.encode()
        if self.http_status == 200:
            return b'{%b"response":%b,"events":[%b],"status":"%b","turnId":"%b"}' % (
                session,
                response,
                events,
                self.status.encode(),
                self._turn_id.encode(),
            )
        return (
            b'{"error":%b,"code":%b,"details":{%b"turnId":"%b","status":"%b","retryable":%b,"response":%b,"events":[%b]}}'
            % (
                encode_text(str(self._error.get("error", "The turn failed."))),
                encode_text(str(self._error.get("code", "agent_failed"))),
                session,
                self._turn_id.encode(),
                self.status.encode(),
                b"true" if self._error.get("recoverable") else b"false",
                response,
                events,
            )
        )
