"""The life of a link that breaks and comes back, without I/O: when to try again, and what to tell an onlooker.

How long to wait after a loss: the server's `retry:`, doubled with each failure in a row, with jitter; never sooner than
`retry:` or a `Retry-After` asks, the latter with jitter on top because it is the same for everybody; and within an hour,
whatever they ask.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from tarko_client.errors import ClientError
from tarko_client.reading import Frame

LONGEST_ASKED = 3600.0
"""The longest pause that a server can ask for, in seconds."""


@dataclass(frozen=True, slots=True)
class Backoff:
    """How to come back, in seconds: `base` is doubled with each failure up to `longest`; a server's `retry:` replaces
    it. After so many failures in a row as `tries` says the loss is raised; None: never.
    """

    base: float = 1.0
    longest: float = 30.0
    tries: int | None = None


@dataclass(frozen=True, slots=True)
class ConnectionState:
    """How a link is: `connecting`; `live`, from the first byte on; `waiting` for `seconds` because of `error`; or
    `closed`, for good, because of `error` or because there is nothing more to come.
    """

    name: Literal["connecting", "live", "waiting", "closed"]
    error: ClientError | None = None
    seconds: float = 0.0


OnState = Callable[[ConnectionState], None]


def unobserved(_: ConnectionState) -> None:
    """For links that nobody looks at."""


def delay(
    base: float,
    failures: int,
    jitter: float,
    *,
    longest: float,
    retry: float = 0.0,
    retry_after: float | None = None,
) -> float:
    """How long to wait after so many failures in a row; `jitter` lies between 0 and 1. All in seconds."""
    grown = min(base * (1 << min(failures, 16)), longest)
    return max(min(retry_after or 0.0, LONGEST_ASKED) + grown * (0.5 + jitter / 2), retry)


class Link:
    """One reader's link. Tells each change of its state once."""

    def __init__(
        self, backoff: Backoff, on_state: OnState = unobserved, jitter: Callable[[], float] = random.random
    ) -> None:
        self._backoff = backoff
        self._on_state = on_state
        self._jitter = jitter
        self._base = backoff.base
        self._retry = 0.0
        self._failures = 0
        self._is_live = False

    def connecting(self) -> None:
        """A connection is being opened."""
        self._on_state(ConnectionState("connecting"))

    def take(self, frame: Frame) -> None:
        """A frame came. One that only says when to come back is no sign of life: a server without its database
        answers so.
        """
        if frame.retry is not None:
            self._base = self._retry = min(frame.retry, LONGEST_ASKED * 1000) / 1000
        if frame.cursor or frame.event:
            self.heard()

    def heard(self) -> None:
        """The server speaks."""
        self._failures = 0
        if not self._is_live:
            self._is_live = True
            self._on_state(ConnectionState("live"))

    def lost(self, loss: ClientError) -> float:
        """How many seconds to wait before the next try. Raises the loss when coming back won't help, or has not."""
        self._is_live = False
        if not loss.is_temporary or self._failures == self._backoff.tries:
            raise loss
        seconds = delay(
            self._base,
            self._failures,
            self._jitter(),
            longest=self._backoff.longest,
            retry=self._retry,
            retry_after=getattr(loss, "retry_after", None),
        )
        self._failures += 1
        self._on_state(ConnectionState("waiting", loss, seconds))
        return seconds

    def closed(self, error: ClientError | None = None) -> None:
        """It is over."""
        self._on_state(ConnectionState("closed", error))
