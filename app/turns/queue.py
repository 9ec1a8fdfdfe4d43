"""The turns that wait: how they join, what place they have, when the next one is started, how they leave.

A waiting turn is a row, and any process may start it: when a turn ends, when another process says so, and now and then,
`dispatch` tries. This process remembers only whom it told that a turn waits; each is told once how the turn left the
queue, also when another process started or removed it. What running a turn means is left to `start`.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence

from app.events.envelope import Draft, Placed
from app.log.hints import Hints
from app.turns.admission import Admitted, Key, NextTurn, Query, QueuedTurn
from app.turns.errands import Errands
from app.turns.queue_store import QueueStore
from app.turns.turn_store import TurnStore


class TurnQueue:
    """The queues of all sessions, as one process sees them.

    `running` are the sessions in which it runs a turn, `claimed` the turns that it runs or is about to; `limit` is how
    many turns may wait in a session. `start` begins the next turn of a session by `take`, or leaves it where it is.
    """

    def __init__(
        self,
        *,
        queue: QueueStore,
        turns: TurnStore,
        hints: Hints,
        limit: int,
        running: Collection[str],
        claimed: Collection[str],
        start: Callable[[NextTurn], Awaitable[None]],
        errands: Errands,
    ) -> None:
        self._queue = queue
        self._turns = turns
        self._hints = hints
        self._limit = limit
        self._running = running
        self._claimed = claimed
        self._start = start
        self._errands = errands
        self._dispatching: dict[str, bool] = {}
        self._with_queue: set[str] = set()
        self._removed: dict[str, asyncio.Future[bool]] = {}

    # ── joining ──────────────────────────────────────────────────────────────────────────────────────────────────

    async def join(
        self, turn_id: str, session_id: str, query: Query, key: Key | None, *, first: bool
    ) -> Admitted:
        """Let a turn wait; `first`: before all others that did not come so. It is started when nothing runs here.

        Raises `QueueFull`, `KeyReused` and `SessionDeleted`.
        """
        position, last = await self._queue.enqueue(
            turn_id, session_id, query, first=first, limit=self._limit, key=key
        )
        # A repeat of the turn's key may have joined it before this answer came.
        removed = self._removal(turn_id)
        if session_id not in self._running:
            self._hints.queued(session_id)
            self._dispatch_aside(session_id)
        return Admitted(turn_id, last, is_waiting=True, position=position, removed=removed)

    async def rejoin(self, turn_id: str, session_id: str, after: int) -> Admitted | None:
        """The place of a turn that has joined before, None when it waits no more. `after` is the log's last place."""
        waiting = [turn.turn_id for turn in await self.waiting(session_id)]
        if turn_id not in waiting:
            return None
        return Admitted(
            turn_id,
            after,
            is_waiting=True,
            position=waiting.index(turn_id) + 1,
            is_repeat=True,
            removed=self._removal(turn_id),
        )

    async def waiting(self, session_id: str) -> Sequence[QueuedTurn]:
        """The turns that wait in a session, next one first."""
        return await self._queue.waiting(session_id)

    # ── starting ─────────────────────────────────────────────────────────────────────────────────────────────────

    async def dispatch(self, session_id: str) -> None:
        """Start the session's next turn, if one waits and none runs."""
        if session_id in self._dispatching:
            self._dispatching[session_id] = True
            return
        self._dispatching[session_id] = True
        try:
            # Once more, when it was asked for while an older answer of the store was under way.
            while self._dispatching[session_id]:
                self._dispatching[session_id] = False
                await self._dispatch(session_id)
        finally:
            del self._dispatching[session_id]

    async def _dispatch(self, session_id: str) -> None:
        if session_id in self._running:
            return
        following = await self._queue.next(session_id)
        if following is None:
            self._with_queue.discard(session_id)
        else:
            await self._start(following)

    def dispatch_behind(self, session_id: str) -> None:
        """Start what may wait behind a turn that has ended here, without waiting."""
        if self._removed or self._hints.others or session_id in self._with_queue:
            self._dispatch_aside(session_id)

    async def dispatch_stranded(self) -> None:
        """Start what waits in sessions where nothing runs, and notice what others have removed."""
        for session_id in await self._queue.stranded():
            self._dispatch_aside(session_id)
        # Those of now: a turn that is enqueued while the store answers waits, too.
        if asked := set(self._removed):
            waiting = await self._queue.still_waiting(asked)
            for turn_id in asked - waiting:
                is_here = turn_id in self._claimed or await self._turns.get(turn_id) is not None
                self._has_left(turn_id, is_removed=not is_here)

    def _dispatch_aside(self, session_id: str) -> None:
        self._errands.send(self.dispatch(session_id), f"dispatch in {session_id}")

    # ── leaving ──────────────────────────────────────────────────────────────────────────────────────────────────

    async def take(self, turn: QueuedTurn, drafts: Sequence[Draft], *, owner: str) -> Placed | None:
        """Make the turn that is next the running one; None when it is not next any more or another one runs."""
        placed = await self._queue.start(turn, drafts, owner=owner)
        if placed is not None:
            self._has_left(turn.turn_id, is_removed=False)
            self._with_queue.add(turn.session_id)
        return placed

    async def remove(self, session_id: str, turn_id: str) -> bool:
        """Take a turn out of the queue; False when it is not there."""
        is_removed = await self._queue.remove(session_id, turn_id)
        if is_removed:
            self._has_left(turn_id, is_removed=True)
            self._hints.queued(session_id)
        return is_removed

    def _removal(self, turn_id: str) -> "asyncio.Future[bool]":
        """What tells everybody who waits for the turn here how it left the queue."""
        return self._removed.setdefault(turn_id, asyncio.get_running_loop().create_future())

    def _has_left(self, turn_id: str, *, is_removed: bool) -> None:
        removed = self._removed.pop(turn_id, None)
        if removed is not None and not removed.done():
            removed.set_result(is_removed)
