"""Keeps a turn's end from overtaking the answer that it still runs.

The UI takes "processing" from whichever comes last, the answer of `status` or `agent_run_end`; they come on two
connections, so an answer that is true when it is given may arrive after the end, and the input stays locked for ever.
So the end of a turn waits until the last such answer has surely arrived. Knows this process alone: where several serve,
the race stays as rare as it is.
"""

import asyncio
import time
from collections.abc import Callable

LONGEST_WAY = 1.0
"""Seconds after which an answer has arrived. With a quarter of it a browser on a machine busy six times over still took the
two in the wrong order, in 2 of 24 turns; with this in none."""


class Settling:
    """Which sessions were lately asked about, and by whom: nobody holds up a turn of somebody else. `clock` tells seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._asked: dict[tuple[str, str], float] = {}  # the one asked longest ago first

    def note(self, principal: str, session_id: str) -> None:
        """Note that the principal asks about the session now, or is answered that it is processing."""
        now = self._clock()
        while self._asked and now - self._asked[oldest := next(iter(self._asked))] >= LONGEST_WAY:
            del self._asked[oldest]
        self._asked.pop((principal, session_id), None)
        self._asked[principal, session_id] = now

    def left(self, principal: str, session_id: str) -> float:
        """Seconds until the last such answer has arrived."""
        asked = self._asked.get((principal, session_id))
        return 0.0 if asked is None else max(0.0, asked + LONGEST_WAY - self._clock())

    async def settle(self, principal: str, session_id: str) -> None:
        """Wait until it has."""
        if left := self.left(principal, session_id):
            await asyncio.sleep(left)
