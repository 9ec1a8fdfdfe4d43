"""What a reader has seen, and how it goes on: every event once, in order, over as many connections as it takes. No I/O.

A reading says what to open next (`opening`), is given the frames that come (`take`) and says which events are new, and
when there is nothing more to come (`is_over`). It remembers the cursor of the last frame, so a new connection goes on
after it, and the place of the last event, so what comes twice is dropped.
"""

import json
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from tarko_client.event import Event, place_of
from tarko_client.request import EVENTS_STREAM, QUERY_STREAM, Body, Request

Transport = Literal["sse", "websocket"]


@dataclass(frozen=True, slots=True)
class Frame:
    """What a connection brings: a cursor to resume from, how long to wait before that (ms), an event; or less."""

    cursor: str | None = None
    event: Event | None = None
    retry: int | None = None


@dataclass(frozen=True, slots=True)
class Join:
    """What to say on a socket to follow a session."""

    session_id: str
    start: Body

    @property
    def message(self) -> str:
        return json.dumps({"type": "join_session", "sessionId": self.session_id, **self.start})


class Reading(Protocol):
    """A reading of a session's log, or of a part of it."""

    is_over: bool

    def opening(self) -> Request | Join:
        """What to open to go on."""

    def take(self, frame: Frame) -> Event | None:
        """The frame's event, if it has one that is new."""


class Position:
    """Where a reader is in a log."""

    def __init__(self, cursor: str | None = None) -> None:
        self.cursor = cursor
        self._place = (place_of(cursor) if cursor is not None else None) or 0
        self._last_id = ""

    def pass_by(self, frame: Frame) -> Event | None:
        """Go past the frame; returns its event, if that lies ahead of here."""
        self.cursor = frame.cursor or self.cursor
        event = frame.event
        if event is None:
            return None
        if event.place is None:  # of a server that knows no places: it can only be compared
            is_new = not event.id or event.id != self._last_id
        else:
            is_new = event.place > self._place
            self._place = max(event.place, self._place)
        self._last_id = event.id
        return event if is_new else None


class Following:
    """All of a session, from its start, after a cursor, or from now on, up to its deletion."""

    def __init__(
        self, session_id: str, *, after: str | int | None, from_now: bool, transport: Transport
    ) -> None:
        self.is_over = False
        self._session_id = session_id
        self._position = Position(None if after is None else str(after))
        self._from_now = from_now
        self._transport = transport

    def opening(self) -> Request | Join:
        cursor = self._position.cursor
        start = {"after": cursor} if cursor is not None else {"from": "now"} if self._from_now else {}
        if self._transport == "websocket":
            return Join(self._session_id, start)
        return Request(EVENTS_STREAM, {"sessionId": self._session_id, **start})

    def take(self, frame: Frame) -> Event | None:
        event = self._position.pass_by(frame)
        if event is not None and event.type == "session_end":
            self.is_over = True
        return event


class Asking:
    """One turn, from its query to its ending.

    Until an event of the turn has come, the query is sent again with the same key, which makes it the same turn; from
    then on the session's stream is read after the last event. Events that clients add meanwhile are left out. Answers
    about a turn that waits (`query_queued`, or the `error` of one that was removed) come through as they are.
    """

    def __init__(self, session_id: str, body: Body, key: str) -> None:
        self.is_over = False
        self._session_id = session_id
        self._query = Request(
            QUERY_STREAM, body={"sessionId": session_id, **body}, headers={"Idempotency-Key": key}
        )
        self._position = Position()
        self._turn_id = ""
        self._has_begun = False
        self._answers: list[tuple[str, Any]] = []

    def opening(self) -> Request:
        if not self._has_begun:
            return self._query
        return Request(EVENTS_STREAM, {"sessionId": self._session_id, "after": self._position.cursor or 0})

    def take(self, frame: Frame) -> Event | None:
        if frame.event is not None and frame.event.is_control:
            return self._take_answer(frame.event)
        event = self._position.pass_by(frame)
        if event is None or (isinstance(event.metadata, dict) and event.metadata.get("source") == "client"):
            return None
        self._has_begun = True
        if event.type == "agent_run_start":
            self._turn_id = event.text_of("turnId")
        self.is_over = event.type == "session_end" or (
            event.type == "agent_run_end" and self._turn_id in (event.text_of("turnId"), "")
        )
        return event

    def _take_answer(self, event: Event) -> Event | None:
        answer = (event.type, event.data)
        if answer in self._answers:
            return None
        self._answers.append(answer)
        self.is_over = event.type == "error"
        return event
