"""Ends turns that nobody runs, from what the log holds of them.

Whoever takes such a turn over raises its epoch, so its old owner, should it still live, can write no more. The turn's
events are recalled, and what is open in them is closed: the partial text is in the closing message.
"""

import asyncio
import logging
from collections.abc import Callable, Collection

from app.agents.translate import Translation
from app.errors import StorageUnavailable
from app.events.ending import Ending
from app.events.envelope import Envelope
from app.log.group_commit import GroupCommit
from app.log.store import Dropped, EventStore, Fence, Slice
from app.log.writers import TurnWriter
from app.turns.turn_store import TurnRow, TurnStore

_logger = logging.getLogger(__name__)

AT_ONCE = 4


class Recovery:
    """Finds orphans and ends them `interrupted`. `claimed` are the turns that this process runs or is about to."""

    def __init__(
        self,
        *,
        turns: TurnStore,
        events: EventStore,
        commit: GroupCommit,
        replica_id: str,
        claimed: Collection[str],
        translation: Callable[[TurnRow], Translation],
    ) -> None:
        self._turns = turns
        self._events = events
        self._commit = commit
        self._replica_id = replica_id
        self._claimed = claimed
        self._translation = translation
        self._ending: set[str] = set()

    async def run(self, *, is_alone: bool) -> list[str]:
        """End the running turns that nobody runs, a few at a time; returns their sessions."""
        known = {*self._claimed, *self._ending}
        orphans = await self._turns.orphans(self._replica_id, known, is_alone=is_alone)
        at_once = asyncio.Semaphore(AT_ONCE)

        async def end(orphan: TurnRow) -> bool:
            async with at_once:
                return await self._end(orphan)

        ended = await asyncio.gather(*map(end, orphans), return_exceptions=True)
        for outcome in ended:
            if isinstance(outcome, BaseException):
                raise outcome
        return [orphan.session_id for orphan, is_ended in zip(orphans, ended, strict=True) if is_ended]

    async def _end(self, orphan: TurnRow) -> bool:
        """Raises `StorageUnavailable` only."""
        if orphan.id in self._claimed or orphan.id in self._ending:
            return False  # it was started, or its end begun, while the question was under way
        try:
            taken = await self._turns.take_over(orphan, self._replica_id)
            return taken is not None and await self._interrupt(taken)
        except StorageUnavailable:
            raise
        except Exception:
            _logger.exception("%s can't be ended; the others are", orphan.id)
            return False

    async def _interrupt(self, turn: TurnRow) -> bool:
        self._ending.add(turn.id)
        try:
            translation = self._translation(turn)
            translation.recall(await self._events_of(turn))
            fence = Fence(turn.id, turn.epoch)
            writer = TurnWriter(self._commit, turn.session_id, fence, written=turn.stored)
            ending = Ending.interrupted()
            await writer.end(translation.end(ending), ending)
        except Dropped:
            return False
        finally:
            self._ending.discard(turn.id)
        _logger.warning("%s of %s had lost its process and was ended", turn.id, turn.session_id)
        return True

    async def _events_of(self, turn: TurnRow) -> list[Envelope]:
        events: list[Envelope] = []
        after = turn.first_place - 1
        while after < turn.last_place:
            page = await self._events.read(turn.session_id, Slice(after, turn.last_place))
            if not page:
                break
            events += [event for event in page if event.turn_id == turn.id]
            after = page[-1].place
        return events
