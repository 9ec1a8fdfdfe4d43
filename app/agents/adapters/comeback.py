"""For how long, and at which pace, a remote server is tried again."""

import asyncio
import random
from dataclasses import dataclass

from app.agents.adapters.remote_failures import RemoteFailure, Silence

FIRST_PAUSE = 0.1
LONGEST_PAUSE = 5.0
STEADY = 1.0


@dataclass(frozen=True, slots=True)
class Patience:
    """For how long it is tried, in seconds: to reach the server again, and to have a turn aborted."""

    losses: float = 30.0
    abort: float = 4.0


class Comeback:
    """When to try again: after a pause that doubles, with jitter, until `patience` seconds after the first loss."""

    def __init__(self, patience: float) -> None:
        self._patience = patience
        self._failures = 0
        self._since: float | None = None

    def went_on(self) -> None:
        """Something came: the next loss is a new one."""
        self._failures = 0
        self._since = None

    async def wait(self, loss: RemoteFailure) -> None:
        """Wait before the next try. Raises the loss when it is not worth one any more."""
        moment = now()
        self._since = moment if self._since is None else self._since
        pause = min(FIRST_PAUSE * 2 ** min(self._failures, 16), LONGEST_PAUSE) * random.uniform(0.5, 1)  # noqa: S311
        pause = max(pause, getattr(loss, "retry_after", None) or 0.0)
        if moment + pause - self._since > self._patience:
            raise loss
        self._failures += 1
        await asyncio.sleep(pause)


def was_steady(began: float | None, loss: RemoteFailure) -> bool:
    """Whether the connection was one, for a while: a loss after that is a new one."""
    return began is not None and not isinstance(loss, Silence) and now() - began > STEADY


def now() -> float:
    """Seconds on the loop's clock."""
    return asyncio.get_running_loop().time()
