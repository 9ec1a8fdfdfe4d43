"""What the supervisor asks of the queue's storage, and its twin in memory."""

from collections.abc import Collection, Sequence
from typing import Protocol

from app.errors import SessionDeleted
from app.events.envelope import Draft, Placed, now_ms
from app.log.store import MemoryEventStore
from app.sessions.store import MemorySessionStore
from app.turns.admission import Key, NextTurn, Query, QueuedTurn, QueueFull
from app.turns.turn_store import MemoryTurnStore


class QueueStore(Protocol):
    """The queue's storage."""

    async def enqueue(
        self, turn_id: str, session_id: str, query: Query, *, first: bool, limit: int, key: Key | None
    ) -> tuple[int, int]:
        """Put a turn into the session's queue; returns its position (1 is next) and the log's last place.

        `first`: before those that wait, but after earlier ones that came so, and the running turn's owner is asked to
        abort it. Raises `QueueFull`, `SessionDeleted`, and
        `KeyReused` when the key is taken already (also by the same request: ask `turn_of_key` then).
        """
        ...

    async def next(self, session_id: str) -> NextTurn | None:
        """The turn that is next."""
        ...

    async def start(self, turn: QueuedTurn, drafts: Sequence[Draft], *, owner: str) -> Placed | None:
        """Make the turn that is next the running one; None when it is not next any more or another one runs."""
        ...

    async def waiting(self, session_id: str) -> Sequence[QueuedTurn]:
        """The turns that wait, next one first."""
        ...

    async def remove(self, session_id: str, turn_id: str) -> bool:
        """Take a turn out of the queue; False when it is not there."""
        ...

    async def still_waiting(self, turn_ids: Collection[str]) -> set[str]:
        """Those of the turns that wait."""
        ...

    async def stranded(self) -> Sequence[str]:
        """Sessions in which turns wait and none runs."""
        ...

    async def turn_of_key(self, session_id: str, key: Key) -> str | None:
        """The turn that a key stands for.

        Raises `KeyReused` when it came with another request.
        """
        ...


class MemoryQueueStore:
    """The storage's twin in memory, beside those of the log, the turns and the sessions."""

    def __init__(self, log: MemoryEventStore, turns: MemoryTurnStore, sessions: MemorySessionStore) -> None:
        self._log = log
        self._turns = turns
        self._sessions = sessions
        self._waiting: dict[str, list[tuple[bool, QueuedTurn]]] = {}
        turns.waiting_in = sessions.waiting_in = lambda session_id: len(self._waiting.get(session_id, ()))

    async def enqueue(
        self, turn_id: str, session_id: str, query: Query, *, first: bool, limit: int, key: Key | None
    ) -> tuple[int, int]:
        head = self._log.heads.get(session_id)
        if head is None or head.is_closed or head.is_closing:
            raise SessionDeleted(f"Session {session_id} was deleted.")
        line = self._waiting.setdefault(session_id, [])
        if len(line) >= limit:
            raise QueueFull(f"{limit} turns wait in this session.")
        self._turns.claim_key(session_id, key, turn_id)
        at = sum(was_first for was_first, _ in line) if first else len(line)
        line.insert(at, (first, QueuedTurn(turn_id, session_id, now_ms(), query)))
        if first:
            await self._turns.ask_to_stop(session_id, None)
        return at + 1, head.place

    async def next(self, session_id: str) -> NextTurn | None:
        line = self._line(session_id)
        standing = await self._sessions.get(session_id)
        return NextTurn(line[0][1], standing.session) if line and standing is not None else None

    async def start(self, turn: QueuedTurn, drafts: Sequence[Draft], *, owner: str) -> Placed | None:
        line = self._line(turn.session_id)
        head = self._log.heads.get(turn.session_id)
        if head is None or head.running_turn is not None or not line or line[0][1].turn_id != turn.turn_id:
            return None
        self._waiting[turn.session_id] = []
        placed = await self._turns.start(
            turn.turn_id, turn.session_id, drafts, owner=owner, trace_id=turn.query.trace_id
        )
        self._waiting[turn.session_id] = [entry for entry in line if entry[1].turn_id != turn.turn_id]
        return placed

    async def waiting(self, session_id: str) -> Sequence[QueuedTurn]:
        return [turn for _, turn in self._line(session_id)]

    async def remove(self, session_id: str, turn_id: str) -> bool:
        line = self._line(session_id)
        self._waiting[session_id] = [entry for entry in line if entry[1].turn_id != turn_id]
        return len(self._waiting[session_id]) < len(line)

    async def still_waiting(self, turn_ids: Collection[str]) -> set[str]:
        waiting = {turn.turn_id for session_id in list(self._waiting) for _, turn in self._line(session_id)}
        return waiting.intersection(turn_ids)

    async def stranded(self) -> Sequence[str]:
        return [
            session_id
            for session_id in list(self._waiting)
            if self._line(session_id) and self._log.heads[session_id].running_turn is None
        ]

    async def turn_of_key(self, session_id: str, key: Key) -> str | None:
        return self._turns.turn_of_key(session_id, key)

    def _line(self, session_id: str) -> list[tuple[bool, QueuedTurn]]:
        head = self._log.heads.get(session_id)
        if head is None or head.is_closing or head.is_closed:
            self._waiting.pop(session_id, None)
        return self._waiting.get(session_id, [])
