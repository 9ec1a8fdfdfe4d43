"""When to look at a remote task again, and whether it still shows signs of life."""

import asyncio
import contextlib
import random

from app.agents.adapters.a2a.failures import NeverEnds
from app.agents.adapters.comeback import now

PACE = 0.1
FIRST_LOOK = 0.1
LONGEST_LOOK = 10.0


class Watch:
    """Over one task, which may show nothing new for `deadline` seconds."""

    def __init__(self, deadline: float) -> None:
        self._deadline = deadline
        self._signs = -1
        self._since = now()
        self._looks = 0

    def saw(self, signs: int) -> None:
        """Note what the task looks like. Raises NeverEnds."""
        if signs != self._signs:
            self._signs, self._since, self._looks = signs, now(), 0
        elif now() - self._since > self._deadline:
            raise NeverEnds(f"The remote task has shown no sign of life for {self._deadline:g} seconds.")

    async def pause(self, news: asyncio.Event, look: float) -> None:
        """Wait before the next look, or until there are news; longer where a look takes long (seconds)."""
        least = max(PACE, 4 * look) * random.uniform(0.5, 1)  # noqa: S311
        most = min(FIRST_LOOK * 2 ** min(self._looks, 16), LONGEST_LOOK)
        self._looks += 1
        await asyncio.sleep(least)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, most * random.uniform(0.5, 1) - least)):  # noqa: S311
                await news.wait()
        news.clear()
