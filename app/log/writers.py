"""The two ways to write to a session's log: as a turn, and from outside of turns."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from uuid import uuid4

from app.events.ending import Ending
from app.events.envelope import Draft, Placed
from app.log.group_commit import GroupCommit
from app.log.store import Dropped, Fence, Strand

MAX_WAITING_DRAFTS = 4_000
MAX_WAITING_BYTES = 8 * 2**20


class TurnWriter:
    """Appends a turn's drafts in order, under its fence.

    What is appended but not stored yet is bounded, by count and bytes; one draft is always admitted, however big.
    Once the store has refused a strand, `is_fenced` is true, nothing more is appended, and `fenced` was called. Nothing
    follows the drafts that end the turn.
    """

    def __init__(
        self,
        commit: GroupCommit,
        session_id: str,
        fence: Fence,
        *,
        written: int,
        fenced: Callable[[], None] = lambda: None,
    ) -> None:
        """`written` is how many of the turn's drafts are stored already."""
        self._fenced = fenced
        self._commit = commit
        self._session_id = session_id
        self._fence = fence
        self._next = written + 1
        self._waiting = 0
        self._waiting_bytes = 0
        self._strand: Strand | None = None
        self._room: asyncio.Future[None] | None = None
        self._has_ended = False
        self.is_fenced = False

    def append(self, drafts: Sequence[Draft]) -> Awaitable[None] | None:
        """Queue drafts, at once; returns what to wait for before the next ones, if anything."""
        if self.is_fenced or self._has_ended:
            return None
        strand = self._strand
        if strand is None or strand.is_taken:
            strand = self._open(Strand(self._session_id, self._fence, self._next))
        self._put(strand, drafts)
        has_room = self._waiting < MAX_WAITING_DRAFTS and self._waiting_bytes < MAX_WAITING_BYTES
        if has_room and not self._commit.is_full:
            return None
        if self._room is None:
            self._room = asyncio.get_running_loop().create_future()
        return asyncio.shield(self._room)

    def end(self, drafts: Sequence[Draft], ending: Ending) -> "asyncio.Future[Placed]":
        """Queue the turn's last drafts; the future has their place when they are stored, or raises `Dropped`."""
        self._has_ended = True
        stored: asyncio.Future[Placed] = asyncio.get_running_loop().create_future()
        strand = Strand(self._session_id, self._fence, self._next, ending=ending)
        self._open(strand, stored)
        self._put(strand, drafts)
        return stored

    def _open(self, strand: Strand, stored: "asyncio.Future[Placed] | None" = None) -> Strand:
        def settled(outcome: Placed | Dropped) -> None:
            self._settled(strand, outcome)
            if stored is not None:
                _tell(stored, outcome)

        strand.settled = settled
        self._strand = strand
        return self._commit.open(strand)

    def _put(self, strand: Strand, drafts: Sequence[Draft]) -> None:
        size = 0
        for draft in drafts:
            size += len(draft.data)
        self._commit.add(strand, drafts, size)
        self._next += len(drafts)
        self._waiting += len(drafts)
        self._waiting_bytes += size

    def _settled(self, strand: Strand, outcome: Placed | Dropped) -> None:
        self._waiting -= len(strand.drafts)
        self._waiting_bytes -= strand.size
        if isinstance(outcome, Dropped) and not self.is_fenced:
            self.is_fenced = True
            self._fenced()
        has_room = self._waiting < MAX_WAITING_DRAFTS // 2 and self._waiting_bytes < MAX_WAITING_BYTES // 2
        if self._room is not None and (has_room or not self._waiting or self.is_fenced):
            self._room.set_result(None)
            self._room = None


async def append_event(
    commit: GroupCommit, session_id: str, draft: Draft, *, closes_session: bool = False
) -> Placed:
    """Append one event outside of turns; returns when it is stored.

    Raises `Dropped` when the session is closed.
    """
    stored: asyncio.Future[Placed] = asyncio.get_running_loop().create_future()
    commit.open(
        Strand(
            session_id,
            key=str(uuid4()),
            closes_session=closes_session,
            drafts=[draft],
            size=len(draft.data),
            settled=lambda outcome: _tell(stored, outcome),
        )
    )
    return await stored


def _tell(stored: "asyncio.Future[Placed]", outcome: Placed | Dropped) -> None:
    if stored.done():
        return
    if isinstance(outcome, Dropped):
        stored.set_exception(outcome)
    else:
        stored.set_result(outcome)
