"""Helpers of all tests that write to a store: drafts, strands, sessions and turns in few words."""

import asyncio
import gc
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import aclosing, contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar
from uuid import uuid4

from app.errors import StorageUnavailable
from app.events.canonical import encode
from app.events.ending import Ending
from app.events.envelope import Draft, Envelope, Placed
from app.events.ids import new_session_id, new_turn_id
from app.events.metadata import metadata
from app.log.logs import Logs
from app.log.store import EventStore, Fence, Head, MemoryEventStore, Slice, Strand, StrandRejected
from app.sessions.session import Session
from app.sessions.store import MemorySessionStore, SessionStore
from app.turns.queue_store import MemoryQueueStore, QueueStore
from app.turns.turn_store import MemoryTurnStore, TurnStore

Found = TypeVar("Found")

ALL = Slice(0, limit=100_000, budget=2**40)


@dataclass(frozen=True)
class Stores:
    """The four ports over one storage. `url` is empty in memory."""

    events: EventStore
    sessions: SessionStore
    turns: TurnStore
    queue: QueueStore
    url: str = ""

    async def new_session(self, principal: str = "alice", *, created_at: int = 1000) -> str:
        """A session with its first event."""
        session = Session(
            id=new_session_id(),
            principal=principal,
            agent="demo",
            created_at=created_at,
            updated_at=created_at,
        )
        await self.sessions.create(session, draft("session_start"))
        return session.id

    async def new_turn(self, session_id: str, *, owner: str = "me", trace_id: str | None = None) -> str:
        """A running turn of two events."""
        turn_id = new_turn_id()
        drafts = [draft("user_message"), draft("agent_run_start")]
        await self.turns.start(turn_id, session_id, drafts, owner=owner, trace_id=trace_id)
        return turn_id

    async def append(self, session_id: str, *drafts: Draft, closes: bool = False) -> Placed | None:
        """Write drafts outside of turns."""
        [placed] = await self.events.write([keyed(session_id, *drafts, closes=closes)])
        return placed

    async def all(self, session_id: str) -> list[Envelope]:
        """Everything that the session's log has."""
        return await self.events.read(session_id, ALL)

    async def types(self, session_id: str) -> list[str]:
        """The types of everything that the session's log has."""
        return [event.type for event in await self.all(session_id)]


def memory_stores() -> Stores:
    events = MemoryEventStore()
    sessions, turns = MemorySessionStore(events), MemoryTurnStore(events)
    return Stores(events, sessions, turns, MemoryQueueStore(events, turns, sessions))


def draft(event_type: str = "note", data: Any = None, *, is_lasting: bool = True) -> Draft:
    return Draft(event_type, 1000, encode({} if data is None else data), metadata("agent"), is_lasting)


def delta(text: str = "x") -> Draft:
    return draft("assistant_message_delta", {"delta": text}, is_lasting=False)


def keyed(session_id: str, *drafts: Draft, closes: bool = False) -> Strand:
    """A strand outside of turns."""
    return Strand(
        session_id, key=str(uuid4()), closes_session=closes, drafts=list(drafts or [draft()]), size=100
    )


def of_turn(
    session_id: str,
    turn_id: str,
    first: int,
    drafts: Sequence[Draft],
    *,
    epoch: int = 1,
    ending: Ending | None = None,
) -> Strand:
    """A strand of a turn, whose first draft has this number in it."""
    return Strand(session_id, Fence(turn_id, epoch), first, ending=ending, drafts=list(drafts), size=100)


class LaggingStore(MemoryEventStore):
    """The memory store with moments to look into: each call waits for its gate, and a write may fail on either side.

    `faults` are taken by the writes in turn: "before" fails and stores nothing, "after" stores and loses the answer,
    "reject" refuses the batch; None lets it pass. The `began` events say that a call has come.
    """

    def __init__(self) -> None:
        super().__init__()
        self.may_write, self.may_answer, self.may_read = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self.write_began, self.write_done, self.read_began = asyncio.Event(), asyncio.Event(), asyncio.Event()
        for gate in (self.may_write, self.may_answer, self.may_read):
            gate.set()
        self.faults: list[str | None] = []
        self.read_faults = 0
        self.batches: list[list[Strand]] = []

    async def write(self, strands: Sequence[Strand]) -> list[Placed | None]:
        self.batches.append(list(strands))
        fault = self.faults.pop(0) if self.faults else None
        self.write_began.set()
        await self.may_write.wait()
        if fault == "reject":
            raise StrandRejected("not this")
        if fault == "before":
            raise StorageUnavailable("away")
        places = await super().write(strands)
        self.write_done.set()
        await self.may_answer.wait()
        if fault == "after":
            raise StorageUnavailable("the answer is lost")
        return places

    async def head(self, session_id: str) -> Head | None:
        head = await super().head(session_id)
        self.read_began.set()
        await self.may_read.wait()
        return head

    async def read(self, session_id: str, which: Slice) -> list[Envelope]:
        self.read_began.set()
        await self.may_read.wait()
        if self.read_faults:
            self.read_faults -= 1
            raise StorageUnavailable("away")
        return await super().read(session_id, which)


class Reader:
    """Follows a log in a task of its own, remembers what it saw, and comes again when the database was away."""

    def __init__(self, logs: Logs, session_id: str, after: int) -> None:
        self.after = after
        self.seen: list[Envelope] = []
        self.upto = after
        self.has_joined = asyncio.Event()
        self._moved = asyncio.Event()
        self.task = asyncio.create_task(self._read(logs, session_id), name=f"reader after {after}")

    async def _read(self, logs: Logs, session_id: str) -> None:
        while True:
            try:
                async with logs.open(session_id) as log, aclosing(log.follow(self.upto)) as pages:
                    self.has_joined.set()
                    async for page in pages:
                        assert page.after == self.upto
                        self.upto = page.upto
                        self.seen += page.events
                        self._moved.set()
                return
            except StorageUnavailable:
                await asyncio.sleep(0)  # and come again with the cursor

    async def until(self, place: int) -> list[int]:
        """Wait until this place was seen; returns the places seen so far."""
        while self.upto < place:
            self._moved.clear()
            async with asyncio.timeout(60):
                await self._moved.wait()
        return self.places

    @property
    def places(self) -> list[int]:
        return [event.place for event in self.seen]

    async def leave(self) -> None:
        self.task.cancel()
        await asyncio.wait([self.task])


@contextmanager
def no_complaints() -> Iterator[None]:
    """Fail when something is forgotten in this block that the loop would report, such as a task's error."""
    complaints: list[dict[str, Any]] = []
    loop = asyncio.get_running_loop()
    before = loop.get_exception_handler()
    loop.set_exception_handler(lambda _, complaint: complaints.append(complaint))
    try:
        yield
        gc.collect()
    finally:
        loop.set_exception_handler(before)
    assert complaints == []


async def until(ask: Callable[[], Awaitable[Found]], holds: Callable[[Found], bool] = bool) -> Found:
    """Ask again and again until it holds, for what nobody announces; returns the answer."""
    async with asyncio.timeout(60):
        while True:
            found = await ask()
            if holds(found):
                return found
            await asyncio.sleep(0)


async def settle(rounds: int = 20) -> None:
    """Let everything that can go on do so."""
    for _ in range(rounds):
        await asyncio.sleep(0)
