"""Helpers of all tests that write to a store: drafts, strands, sessions and turns in few words."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from app.events.canonical import encode
from app.events.ending import Ending
from app.events.envelope import Draft, Envelope, Placed
from app.events.ids import new_session_id, new_turn_id
from app.events.metadata import metadata
from app.log.store import EventStore, Fence, MemoryEventStore, Slice, Strand
from app.sessions.session import Session
from app.sessions.store import MemorySessionStore, SessionStore
from app.turns.turn_store import MemoryTurnStore, TurnStore

START = Slice(0)
ALL = Slice(0, limit=100_000, budget=2**40)


@dataclass(frozen=True)
class Stores:
    """The three ports over one storage. `url` is empty in memory."""

    events: EventStore
    sessions: SessionStore
    turns: TurnStore
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
    return Stores(events, MemorySessionStore(events), MemoryTurnStore(events))


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
