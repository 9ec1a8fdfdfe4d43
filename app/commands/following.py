"""Reading a log over connections that break: every event once, in order, whatever happens on the way.

A `Position` is all that is remembered: the id of the last frame that was handled. Whoever comes back sends it, and the
server tells everything after it. How long to wait before that is decided by `Comeback`: the server's `retry:` doubled
with each failure in a row, with jitter, and never sooner than a `Retry-After` asks.
"""

import random
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

from httpx_sse import ServerSentEvent

from app.commands.failures import ConnectionLost, NoServer, Refused
from app.commands.received import Received

LONGEST_PAUSE = 30.0

Frames = AbstractContextManager[Iterator[ServerSentEvent]]


@dataclass(slots=True)
class Position:
    """Where a reader is in a log."""

    last_id: str | None = None

    @property
    def headers(self) -> dict[str, str]:
        """What a new connection must say to go on here."""
        return {} if self.last_id is None else {"Last-Event-ID": self.last_id}


def delay(base: float, failures: int, jitter: float, retry_after: float | None = None) -> float:
    """How long to wait after so many failures in a row; `jitter` lies between 0 and 1."""
    pause = min(base * (1 << min(failures, 16)), LONGEST_PAUSE)
    return (retry_after or 0.0) + pause * (0.5 + jitter / 2)


@dataclass(slots=True)
class Comeback:
    """Whether and when to come back after a loss. `tries` in a row are made; None: for ever.

    A first connection that nobody answers is not come back to: there is probably no server.
    """

    tries: int | None = None
    notice: Callable[[str], None] = lambda text: None
    pause: Callable[[float], None] = time.sleep
    jitter: Callable[[], float] = random.random
    base: float = 1.0
    failures: int = 0
    has_begun: bool = False

    def began(self, retry_ms: int | None = None) -> None:
        """The server answers; it may say how long to wait before coming back."""
        self.has_begun = True
        self.failures = 0
        if retry_ms is not None:
            self.base = retry_ms / 1000

    def wait(self, loss: ConnectionLost | Refused) -> None:
        """Wait as long as the loss demands. Raises it when coming back won't help, or has not."""
        if isinstance(loss, Refused) and not loss.is_temporary:
            raise loss
        if isinstance(loss, NoServer) and not self.has_begun:
            raise loss
        if self.tries is not None and self.failures >= self.tries:
            raise loss
        seconds = delay(self.base, self.failures, self.jitter(), getattr(loss, "retry_after", None))
        self.failures += 1
        self.notice(f"{loss} Coming back in {seconds:.1f} s.")
        self.pause(seconds)


@dataclass(slots=True)
class Follower:
    """Follows a log over as many connections as it takes.

    `connect` opens one for a position; `is_last` says after which event there is nothing to wait for.
    """

    connect: Callable[[Position], Frames]
    is_last: Callable[[Received], bool]
    comeback: Comeback
    position: Position = field(default_factory=Position)

    def events(self) -> Generator[Received, None, None]:
        """Every event once, in order, up to the last."""
        while True:
            loss: ConnectionLost | Refused = ConnectionLost("The server closed the stream.")
            try:
                with self.connect(self.position) as frames:
                    for frame in frames:
                        self.comeback.began(frame.retry)
                        if frame.data:
                            event = Received.read(frame.data)
                            yield event
                            if self.is_last(event):
                                return
                        # After the event was handled: a reader that stops in between has not seen it.
                        self.position.last_id = frame.id or self.position.last_id
            except (ConnectionLost, Refused) as error:
                loss = error
            self.comeback.wait(loss)
