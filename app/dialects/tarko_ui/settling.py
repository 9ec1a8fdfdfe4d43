"""Keeps a turn and the answers whether it runs from overtaking each other.

The UI takes "processing" from whichever comes last, the answer of `status` or a turn's `agent_run_start` and
`agent_run_end`; they come on two connections, so an answer that is true when it is given may arrive too late.

- Told that the turn runs after its end, the UI locks its input for ever. So the end of a turn waits until the last such
  answer has surely arrived.
- Told that nothing runs after the turn's start, it offers no way to stop it. So the start waits likewise. As the UI asks
  200 ms after it has made a session for its first message, which a slow network brings later, a session that is new is
  given time to get its first turn before it is said to have none: then nothing waits for that answer.

Knows this process alone: where several serve, the race stays as rare as it is.
"""

import asyncio
import time
from collections.abc import Callable
from contextlib import aclosing, suppress

from app.dialects.tarko_ui.session_info import is_processing, is_unused
from app.events.envelope import now_ms
from app.log.logs import Logs
from app.sessions.directory import Directory
from app.sessions.session import Standing

LONGEST_WAY = 1.0
"""Seconds after which an answer has arrived. With a quarter of it a browser on a machine busy six times over still took the
two in the wrong order, in 2 of 24 turns; with this in none."""


class Settling:
    """Which sessions were lately told of, and to whom: nobody holds up a turn of somebody else. `clock` tells seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._told: dict[tuple[str, str], float] = {}  # the one told longest ago first

    def note(self, principal: str, session_id: str) -> None:
        """Note that the principal is told of the session now, or from now on."""
        now = self._clock()
        while self._told and now - self._told[oldest := next(iter(self._told))] >= LONGEST_WAY:
            del self._told[oldest]
        self._told.pop((principal, session_id), None)
        self._told[principal, session_id] = now

    def left(self, principal: str, session_id: str) -> float:
        """Seconds until the last answer has arrived."""
        told = self._told.get((principal, session_id))
        return 0.0 if told is None else max(0.0, told + LONGEST_WAY - self._clock())

    async def settle(self, principal: str, session_id: str) -> None:
        """Wait until it has."""
        if left := self.left(principal, session_id):
            await asyncio.sleep(left)


class Answers:
    """The answers of `status`: those that a turn runs, for which its end waits, and those that none does, for the start."""

    def __init__(self, directory: Directory, logs: Logs) -> None:
        self._directory = directory
        self._logs = logs
        self.running = Settling()
        self.idle = Settling()

    async def standing(self, session_id: str, principal: str) -> Standing:
        """Where the session stands, to be told now. Raises what `Directory.find` and `first_turn` raise."""
        standing = await self._look(session_id, principal)
        if is_unused(standing):
            await first_turn(self._logs, standing)
            standing = await self._look(session_id, principal)
        if not is_processing(standing):
            self.idle.note(principal, session_id)  # what is not seen now begins later
            standing = await self._look(session_id, principal)
        if is_processing(standing):
            self.running.note(principal, session_id)
        return standing

    async def before_start(self, principal: str, session_id: str) -> None:
        """Wait until a turn's start may be told."""
        await self.idle.settle(principal, session_id)

    async def before_end(self, principal: str, session_id: str) -> None:
        """Wait until a turn's end may be told."""
        await self.running.settle(principal, session_id)

    async def _look(self, session_id: str, principal: str) -> Standing:
        self.running.note(principal, session_id)  # what is seen to run may have ended when it is told
        return await self._directory.find(session_id, principal)


async def first_turn(logs: Logs, standing: Standing) -> None:
    """Wait until the first turn of a session begins, or the session has ended or is `LONGEST_WAY` old.

    One that waits in a queue has no events, so it ends no wait. Raises `StorageUnavailable`, `SessionNotFound`.
    """
    left = LONGEST_WAY - max(0, now_ms() - standing.session.created_at) / 1000
    if left <= 0:
        return
    with suppress(TimeoutError):
        async with (
            asyncio.timeout(left),
            logs.open(standing.session.id) as log,
            aclosing(log.follow(standing.last_place)) as pages,
        ):
            async for page in pages:
                if any(event.turn_id for event in page.events):
                    return
