"""What the directory asks of a store, and the store's twin in memory."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple, Protocol

from app.events.envelope import Draft, Placed
from app.log.store import Head, MemoryEventStore, Strand
from app.sessions.session import Change, Session, Standing, merged


class ListPlace(NamedTuple):
    """Where a page of the list of sessions begins: after the session created then, with that id."""

    created_at: int
    id: str


class SessionStore(Protocol):
    """The sessions' storage."""

    async def create(self, session: Session, start: Draft) -> Placed:
        """Store a session together with the first event of its log."""
        ...

    async def get(self, session_id: str) -> Standing | None:
        """A session, tombstones included."""
        ...

    async def list(self, principal: str, *, limit: int, after: ListPlace | None = None) -> Sequence[Standing]:
        """A principal's sessions, newest first, tombstones left out."""
        ...

    async def update(self, session_id: str, change: Change, now: int) -> None:
        """Change a session atomically. Raises `TooLarge` when its attributes would be."""
        ...

    async def bury(self, session_id: str, now: int) -> bool:
        """Make the session a tombstone that admits no new turn or event; False when it is one already."""
        ...

    async def message_count(self, session_id: str) -> int:
        """How many user and assistant messages its log has."""
        ...

    async def unfinished(self, before: int) -> Sequence[Session]:
        """Tombstones from before then whose log has not been ended: whoever buried them did not come to it."""
        ...

    async def purge(self, before: int) -> int:
        """Remove what belongs to sessions deleted before then, but the tombstones; returns how many."""
        ...


class MemorySessionStore:
    """The store's twin in memory, beside the log's."""

    def __init__(self, log: MemoryEventStore) -> None:
        self._log = log
        self._sessions: dict[str, Session] = {}
        self.waiting_in: Callable[[str], int] = lambda session_id: 0

    async def create(self, session: Session, start: Draft) -> Placed:
        self._sessions[session.id] = session
        self._log.open_session(session.id)
        [placed] = await self._log.write([Strand(session.id, key=session.id, drafts=[start])])
        assert placed is not None  # noqa: S101 - the session was opened one line above
        return placed

    async def get(self, session_id: str) -> Standing | None:
        session = self._sessions.get(session_id)
        return None if session is None else self._standing(session)

    async def list(self, principal: str, *, limit: int, after: ListPlace | None = None) -> Sequence[Standing]:
        mine = [s for s in self._sessions.values() if s.principal == principal and s.deleted_at is None]
        mine.sort(key=lambda s: (s.created_at, s.id), reverse=True)
        if after is not None:
            mine = [s for s in mine if (s.created_at, s.id) < after]
        return [self._standing(session) for session in mine[:limit]]

    async def update(self, session_id: str, change: Change, now: int) -> None:
        session = self._sessions.get(session_id)
        if session is None:
            return
        self._sessions[session_id] = replace(
            session,
            name=session.name if change.name is None else change.name,
            tags=session.tags if change.tags is None else change.tags,
            attributes=merged(session.attributes, change.attributes),
            updated_at=now,
        )

    async def bury(self, session_id: str, now: int) -> bool:
        session = self._sessions.get(session_id)
        if session is None or session.deleted_at is not None:
            return False
        self._sessions[session_id] = replace(session, deleted_at=now)
        self._log.heads[session_id] = self._log.heads[session_id]._replace(is_closing=True)
        return True

    async def message_count(self, session_id: str) -> int:
        return sum(
            e.type in ("user_message", "assistant_message") for e in self._log.events.get(session_id, [])
        )

    async def unfinished(self, before: int) -> Sequence[Session]:
        return [s for s in self._buried(before) if not self._log.heads[s.id].is_closed]

    async def purge(self, before: int) -> int:
        gone = [s for s in self._buried(before) if self._log.heads[s.id].is_closed]
        for session in gone:
            self._log.forget(session.id)
        return len(gone)

    def _buried(self, before: int) -> Sequence[Session]:
        """The tombstones from before then of which there is still a log."""
        return [
            s
            for s in self._sessions.values()
            if s.deleted_at is not None and s.deleted_at < before and s.id in self._log.heads
        ]

    def _standing(self, session: Session) -> Standing:
        head = self._log.heads.get(session.id, Head(0, 0, None, is_closed=True))
        endings = [
            turn.ending for turn in self._log.turns.values() if turn.session_id == session.id and turn.ending
        ]
        return Standing(
            session,
            head.place,
            head.lasting,
            head.running_turn,
            self.waiting_in(session.id),
            endings[-1].status if endings else None,
        )
