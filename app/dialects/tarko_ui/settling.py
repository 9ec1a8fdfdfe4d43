"""Keeps a turn's end from overtaking the answer that it still runs.

The UI takes "processing" from whichever comes last, the answer of `status` or `agent_run_end`; they come on two
connections, so an answer that is true when it is given may arrive after the end, and the input stays locked for ever.
So the end of a turn waits until the last such answer has surely arrived. Knows this process alone: where several serve,
the race stays as rare as it is.
"""

import asyncio
import time

LONGEST_WAY = 0.25
"""Seconds after which an answer has arrived."""


class Settling:
    """Which sessions were lately said to be processing."""

    def __init__(self) -> None:
        self._said: dict[str, float] = {}

    def say_processing(self, session_id: str) -> None:
        """Note that this is being answered now."""
        now = time.monotonic()
        self._said = {known: at for known, at in self._said.items() if now - at < LONGEST_WAY}
        self._said[session_id] = now

    async def settle(self, session_id: str) -> None:
        """Wait until the last such answer has arrived."""
        said = self._said.get(session_id)
        if said is not None:
            await asyncio.sleep(max(0.0, said + LONGEST_WAY - time.monotonic()))
