"""Finds, makes and changes sessions, each for its own principal only.

A session of somebody else is not found, in the same words as one that never was.
"""

from collections.abc import Callable, Sequence
from typing import Any

from app.errors import SessionDeleted, SessionNotFound, StorageUnavailable
from app.events.canonical import encode
from app.events.envelope import Draft, now_ms
from app.events.ids import is_session_id, new_session_id, session_id_of
from app.events.metadata import metadata
from app.sessions.session import Change, Session, Standing
from app.sessions.store import ListPlace, SessionStore


class Directory:
    """The sessions that there are."""

    def __init__(self, store: SessionStore, *, clock: Callable[[], int] = now_ms) -> None:
        self._store = store
        self._clock = clock

    @staticmethod
    def id_of(principal: str, once: str) -> str:
        """The id of the session that is created with this key, whether it is there or not."""
        return session_id_of(f"{principal}\n{once}")

    async def create(
        self,
        principal: str,
        agent: str,
        *,
        name: str | None = None,
        tags: Sequence[str] = (),
        attributes: dict[str, Any] | None = None,
        once: str | None = None,
    ) -> Session:
        """Create a session; its log begins with `session_start`.

        With `once`, a key of the caller's, a repeat is the same session.
        """
        now = self._clock()
        session_id = new_session_id() if once is None else self.id_of(principal, once)
        if once is not None and (known := await self._store.get(session_id)) is not None:
            return known.session
        session = Session(
            id=session_id,
            principal=principal,
            agent=agent,
            created_at=now,
            updated_at=now,
            name=name,
            tags=list(tags),
            attributes=attributes or {},
        )
        data = encode({"sessionId": session.id, "agentName": agent, "timestamp": now})
        try:
            await self._store.create(session, Draft("session_start", now, data, metadata("server")))
        except StorageUnavailable:
            # Another request with the same key was first, or this one's answer was lost.
            if once is None or (known := await self._store.get(session_id)) is None:
                raise
            return known.session
        return session

    async def find(self, session_id: str, principal: str) -> Standing:
        """The principal's session.

        Raises `SessionNotFound` or, when it was the principal's, `SessionDeleted`.
        """
        standing = await self._store.get(session_id) if is_session_id(session_id) else None
        if standing is None or standing.session.principal != principal:
            raise SessionNotFound(f"There is no session {session_id[:80]!r}.")
        if standing.session.deleted_at is not None:
            raise SessionDeleted(f"Session {session_id} was deleted.")
        return standing

    async def list(self, principal: str, *, limit: int, after: ListPlace | None = None) -> Sequence[Standing]:
        """The principal's sessions, newest first."""
        return await self._store.list(principal, limit=limit, after=after)

    async def update(self, session_id: str, principal: str, change: Change) -> Standing:
        """Change the principal's session; changes of several callers are merged, never lost."""
        await self.find(session_id, principal)
        await self._store.update(session_id, change, self._clock())
        return await self.find(session_id, principal)

    async def bury(self, session_id: str, principal: str) -> Session:
        """Make the principal's session a tombstone, which admits no new turn or event."""
        session = (await self.find(session_id, principal)).session
        if not await self._store.bury(session_id, self._clock()):
            raise SessionDeleted(f"Session {session_id} was deleted.")
        return session

    async def message_count(self, session_id: str) -> int:
        """How many user and assistant messages the session has."""
        return await self._store.message_count(session_id)

    async def unfinished(self, age: float) -> Sequence[Session]:
        """Sessions that were deleted `age` seconds ago and whose log has not been ended."""
        return await self._store.unfinished(self._clock() - round(age * 1000))

    async def purge(self, age: float) -> int:
        """Remove what is left of sessions that were deleted `age` seconds ago."""
        return await self._store.purge(self._clock() - round(age * 1000))
