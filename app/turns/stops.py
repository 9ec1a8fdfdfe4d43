"""Stops turns for those who ask: here at once, elsewhere by a row that their process obeys, in the queue by removal.

Whoever asks to stop a turn waits until its ending is durable. A process reads what it was asked for when a hint names a
turn and, since a hint may be lost, now and then.
"""

import asyncio
import time
from collections.abc import Callable, Collection, Mapping
from typing import Any

from app.errors import NotFound, StorageUnavailable
from app.events.ending import Ending
from app.events.ids import is_turn_id
from app.log.hints import Hints
from app.log.store import EventStore
from app.turns.errands import Errands
from app.turns.queue import TurnQueue
from app.turns.turn import Receipt, Turn
from app.turns.turn_store import TurnStore

FIRST_LOOK = 0.02
LONGEST_LOOK = 0.1
LONGEST_STOP = 20.0
OUTAGE_PAUSE = 0.5


class Stops:
    """How turns are stopped, as one process sees them.

    `running` are the turns of this process by their session; `starting` gives what is under way to start one in a
    session.
    """

    def __init__(
        self,
        *,
        running: Mapping[str, Turn],
        starting: Callable[[str], Collection[asyncio.Task[Any]]],
        queue: TurnQueue,
        turns: TurnStore,
        events: EventStore,
        hints: Hints,
        replica_id: str,
        errands: Errands,
    ) -> None:
        self._running = running
        self._starting = starting
        self._queue = queue
        self._turns = turns
        self._events = events
        self._hints = hints
        self._replica_id = replica_id
        self._errands = errands

    # ── asking ───────────────────────────────────────────────────────────────────────────────────────────────────

    async def abort(self, session_id: str, turn_id: str | None = None) -> Receipt | None:
        """Abort the session's running turn, or the named one only, wherever it runs; returns when its ending is durable.

        A turn that is just being started is running, too: a query and an abort that is sent right after it may meet here.
        A turn that waits is removed. Harmless when it has ended: the receipt then tells how. None when nothing runs and
        no turn was named. Raises `NotFound` for a turn that the session never had, and `StorageUnavailable` when a
        turn of another process has not ended after `LONGEST_STOP` seconds; that of one that runs here is waited for.
        """
        starting = self._starting(session_id)
        if starting and turn_id is None:
            await asyncio.wait(starting)
        running = self._running.get(session_id)
        if running is not None and not running.ended.done() and turn_id in (None, running.id):
            receipt = await running.stop(Ending.aborted())
            # Without a place it was taken over, and whoever did so may not have ended it yet.
            return receipt if receipt.last_place else await self._ending_of(running.id, is_first=False)
        if turn_id is not None and not is_turn_id(turn_id):
            raise NotFound(f"The session has no turn {turn_id[:80]!r}.", code="turn_not_found")
        asked = await self._turns.ask_to_stop(session_id, turn_id)
        if asked is not None:
            stopped, is_first = asked
            self._hints.stop_turn(stopped)
            return await self._ending_of(stopped, is_first=is_first)
        return None if turn_id is None else await self._late_or_removed(session_id, turn_id)

    def abandon(self, session_id: str, turn_id: str) -> None:
        """Abort a turn whose asker has hung up, without waiting; in an outage, when it is over."""
        self._errands.send(self._abort_at_last(session_id, turn_id), f"abandon {turn_id}")

    def interrupt(self, session_id: str, at: int, by: str) -> None:
        """Abort the turn that ran when the session's log had the place `at`, without waiting; `by` is the next one."""
        self._errands.send(self._abort_what_ran(session_id, at), f"interrupt for {by}")

    async def _abort_at_last(self, session_id: str, turn_id: str) -> None:
        while True:
            try:
                await self.abort(session_id, turn_id)
            except StorageUnavailable:
                await asyncio.sleep(OUTAGE_PAUSE)
            else:
                return

    async def _abort_what_ran(self, session_id: str, at: int) -> None:
        head = await self._events.head(session_id)
        if head is None or head.running_turn is None:
            return
        running = await self._turns.get(head.running_turn)
        if running is not None and running.first_place <= at:
            await self.abort(session_id, running.id)

    async def _late_or_removed(self, session_id: str, turn_id: str) -> Receipt:
        if await self._queue.remove(session_id, turn_id):
            return Receipt(turn_id, "removed", 0, is_new=True)
        row = await self._turns.get(turn_id)
        if row is None or row.session_id != session_id:
            raise NotFound(f"The session has no turn {turn_id[:80]!r}.", code="turn_not_found")
        if row.status is None:
            return await self._abort_started(session_id, turn_id)  # it left the queue while it was looked for
        return Receipt(turn_id, row.status, row.last_place)

    async def _abort_started(self, session_id: str, turn_id: str) -> Receipt:
        receipt = await self.abort(session_id, turn_id)
        assert receipt is not None  # noqa: S101 - only an abort without a name may find nothing
        return receipt

    async def _ending_of(self, turn_id: str, *, is_first: bool) -> Receipt:
        """Wait until a turn that was asked to stop has ended, wherever it runs. `is_first`: nobody had asked before."""
        pause = FIRST_LOOK
        deadline = time.monotonic() + LONGEST_STOP
        while True:
            row = await self._turns.get(turn_id)
            if row is None:
                raise NotFound("The session was deleted.", code="session_deleted")
            if row.status is not None:
                is_ours = is_first and (row.status, row.code) == ("aborted", "aborted")
                return Receipt(turn_id, row.status, row.last_place, is_ours)
            self.obey(turn_id)  # it was just being started here
            if time.monotonic() > deadline:
                raise StorageUnavailable(f"{turn_id} was asked to stop and has not ended yet.")
            await asyncio.sleep(pause)
            pause = min(pause * 1.5, LONGEST_LOOK)

    # ── obeying ──────────────────────────────────────────────────────────────────────────────────────────────────

    async def obey_all(self) -> None:
        """Abort the turns that other processes asked this one to abort, and stop those that were taken over."""
        mine = [turn.id for turn in self._running.values()]
        if mine:
            for turn_id in await self._turns.asked_to_stop(self._replica_id, mine):
                self.obey(turn_id)

    def obey(self, turn_id: str) -> None:
        """Abort a turn if it runs here."""
        for turn in self._running.values():
            if turn.id == turn_id:
                turn.stop_aside(Ending.aborted())
