"""What the log asks of a store, and the store's twin in memory.

A store gives places: in one atomic write it numbers the drafts of many sessions, gapless and in commit order for each,
and stores them. A write may be sent again after a failure whose outcome is unknown, and then stores nothing twice. A
strand of a turn that was fenced, has ended, or whose session is closed is dropped without failing its neighbours.

`MemoryEventStore` keeps the same promises without a database, for tests; one conformance suite runs over both.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from app.events.ending import Ending
from app.events.envelope import Draft, Envelope, Placed, now_ms, place


class Fence(NamedTuple):
    """A turn, and the epoch under which its owner may write. Whoever takes the turn over raises the epoch."""

    turn_id: str
    epoch: int


class Dropped(Exception):
    """A strand was not stored and never will be: its turn was fenced or has ended, its session is closed, or the
    store refuses its content."""


@dataclass(slots=True)
class Strand:
    """Drafts of one writer for one session, in order: the unit that is stored whole or not at all.

    A turn's strand has a `fence` and the number in its turn of its first draft, counted from 1, by which a repeated
    write is recognised (it is told the turn's last place); `ending` also settles the turn. A strand outside a turn
    has a `key` instead, unique for ever; `closes_session` makes it the session's last. `settled` is called once, when
    it is known what became of it.
    """

    session_id: str
    fence: Fence | None = None
    first: int = 1
    key: str | None = None
    ending: Ending | None = None
    closes_session: bool = False
    drafts: list[Draft] = field(default_factory=list)
    size: int = 0
    is_taken: bool = False
    settled: "Callable[[Placed | Dropped], None] | None" = None


class Head(NamedTuple):
    """Where a session's log stands: its last place, its count of lasting events, and the turn that runs, if any.

    `is_closing`: only its running turn and its last event may still be written; `is_closed`: nothing may.
    """

    place: int
    lasting: int
    running_turn: str | None
    is_closed: bool
    is_closing: bool = False


class Slice(NamedTuple):
    """Which events to read: those of places over `after`, up to and with `upto` (None: all).

    `whole_turn` limits passing events to those of one turn ("" for none); None lets all through. `limit` counts
    events, `budget` bytes of data; at least one event is read however big.
    """

    after: int
    upto: int | None = None
    whole_turn: str | None = None
    limit: int = 1000
    budget: int = 2**20


class EventStore(Protocol):
    """The log's storage."""

    async def write(self, strands: Sequence[Strand]) -> list[Placed | None]:
        """Store all strands atomically; None for one that was dropped.

        Raises `StorageUnavailable` when the outcome is unknown: send the same strands again. Raises
        `StrandRejected` when a strand can never be stored.
        """
        ...

    async def head(self, session_id: str) -> Head | None:
        """Where the session's log stands; None when there is no such session."""
        ...

    async def read(self, session_id: str, which: Slice) -> list[Envelope]:
        """Events of one session, oldest first."""
        ...


class StrandRejected(Exception):
    """The store refused the content of a write for good."""


@dataclass(slots=True)
class MemoryTurn:
    """A turn as the memory store keeps it."""

    session_id: str
    epoch: int = 1
    stored: int = 0
    last_place: int = 0
    ending: Ending | None = None
    ended_at: int = 0
    is_retired: bool = False


class MemoryEventStore:
    """The store's twin in memory."""

    def __init__(self) -> None:
        self.events: dict[str, list[Envelope]] = {}
        self.heads: dict[str, Head] = {}
        self.turns: dict[str, MemoryTurn] = {}
        self._keys: dict[str, int] = {}

    def open_session(self, session_id: str) -> None:
        """Begin an empty log."""
        self.events[session_id] = []
        self.heads[session_id] = Head(0, 0, None, is_closed=False)

    def forget(self, session_id: str) -> None:
        """Remove the log and its turns."""
        del self.events[session_id], self.heads[session_id]
        self.turns = {i: turn for i, turn in self.turns.items() if turn.session_id != session_id}

    async def write(self, strands: Sequence[Strand]) -> list[Placed | None]:
        return [self._write(strand) for strand in strands]

    async def head(self, session_id: str) -> Head | None:
        return self.heads.get(session_id)

    async def read(self, session_id: str, which: Slice) -> list[Envelope]:
        found: list[Envelope] = []
        size = 0
        for event in self.events.get(session_id, []):
            if not self._is_in(event, which):
                continue
            if len(found) == which.limit or (found and size >= which.budget):
                break
            found.append(event)
            size += len(event.data)
        return found

    @staticmethod
    def _is_in(event: Envelope, which: Slice) -> bool:
        if event.place <= which.after or (which.upto is not None and event.place > which.upto):
            return False
        return event.ordinal is not None or which.whole_turn in (None, event.turn_id)

    def _write(self, strand: Strand) -> Placed | None:
        head = self.heads.get(strand.session_id)
        turn = self.turns.get(strand.fence.turn_id) if strand.fence else None
        if head is None:
            return None
        if strand.fence is None:
            if strand.key in self._keys:
                return Placed(0, 0, len(strand.drafts), self._keys[strand.key])
            if head.is_closed or (head.is_closing and not strand.closes_session):
                return None
        else:
            if turn is None or turn.epoch != strand.fence.epoch:
                return None
            if turn.stored >= strand.first:
                return Placed(0, 0, len(strand.drafts), turn.last_place)
            if turn.ending is not None or head.is_closed:
                return None
        return self._store(strand, head, turn)

    def _store(self, strand: Strand, head: Head, turn: MemoryTurn | None) -> Placed:
        last = head.place + len(strand.drafts)
        placed = Placed(head.place, head.lasting, 0, last)
        turn_id = strand.fence.turn_id if strand.fence else None
        self.events[strand.session_id] += place(strand.session_id, turn_id, strand.drafts, placed)
        lasting = sum(draft.is_lasting for draft in strand.drafts)
        running = head.running_turn
        if turn is not None:
            turn.stored = strand.first + len(strand.drafts) - 1
            turn.last_place = last
            turn.ending = strand.ending
            if strand.ending is not None:
                turn.ended_at = now_ms()
                running = None
        if strand.key is not None:
            self._keys[strand.key] = last
        closed = strand.closes_session
        self.heads[strand.session_id] = Head(
            last, head.lasting + lasting, running, closed, head.is_closing or closed
        )
        return placed
