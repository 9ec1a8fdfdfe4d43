"""The live logs: one for each session that somebody reads or writes, shared, and dropped with its last user.

A log begins at a head that came from the store, and what became durable while that answer was under way must not be
missed: an `Opening` notes it and the log catches up.
"""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

from app.errors import SessionNotFound
from app.log.session_log import Page, SessionLog
from app.log.store import EventStore


class Opening:
    """Begun before the head is asked for, settled with the answer."""

    def __init__(self, session_id: str, logs: "Logs") -> None:
        self.shown = 0
        self._session_id = session_id
        self._logs = logs

    def settle(self, head: int, *, is_closed: bool = False) -> SessionLog:
        """Take a lease of the log, which begins at `head` unless it is live already."""
        log = self._logs.lease(self._session_id, head, is_closed=is_closed)
        log.catch_up(self.shown)
        return log


class Logs:
    """Opens logs and shows them what became durable."""

    def __init__(self, store: EventStore) -> None:
        self._store = store
        self._live: dict[str, SessionLog] = {}
        self._users: dict[str, int] = {}
        self._openings: dict[str, list[Opening]] = {}

    def show(self, session_id: str, page: Page) -> None:
        """Tell a session's readers, if it has any, of a durable page."""
        log = self._live.get(session_id)
        if log is not None:
            log.show(page)
        for opening in self._openings.get(session_id, ()):
            opening.shown = max(opening.shown, page.upto)

    def moved(self, session_id: str, place: int) -> None:
        """Tell a session's readers that its log reaches this place: it is read from the store."""
        self.show(session_id, Page(place, place, ()))

    def __iter__(self) -> Iterator[SessionLog]:
        return iter(list(self._live.values()))

    @asynccontextmanager
    async def opening(self, session_id: str) -> AsyncIterator[Opening]:
        """While the block runs, note what becomes durable."""
        opening = Opening(session_id, self)
        self._openings.setdefault(session_id, []).append(opening)
        try:
            yield opening
        finally:
            openings = self._openings[session_id]
            openings.remove(opening)
            if not openings:
                del self._openings[session_id]

    def live(self, session_id: str) -> SessionLog | None:
        """The session's log, if anybody uses it."""
        return self._live.get(session_id)

    async def take(self, session_id: str) -> SessionLog:
        """A lease of the session's log: give it back with `release`.

        Raises `SessionNotFound` when the store has no such session.
        """
        if session_id in self._live:
            return self.lease(session_id)
        async with self.opening(session_id) as opening:
            head = await self._store.head(session_id)
            if head is None:
                raise SessionNotFound(f"There is no session {session_id}.")
            return opening.settle(head.place, is_closed=head.is_closed)

    @asynccontextmanager
    async def open(self, session_id: str) -> AsyncIterator[SessionLog]:
        """The session's log, for as long as the block runs."""
        log = await self.take(session_id)
        try:
            yield log
        finally:
            self.release(session_id)

    def lease(self, session_id: str, head: int = 0, *, is_closed: bool = False) -> SessionLog:
        """The session's log, kept until `release`. One that is not live yet begins at `head`."""
        log = self._live.get(session_id)
        if log is None:
            log = SessionLog(session_id, self._store, head, is_closed=is_closed)
            self._live[session_id] = log
        self._users[session_id] = self._users.get(session_id, 0) + 1
        return log

    def release(self, session_id: str) -> None:
        """Give a lease back; the log goes with the last one."""
        self._users[session_id] -= 1
        if self._users[session_id] == 0:
            del self._users[session_id]
            self._live.pop(session_id).close()
