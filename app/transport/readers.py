"""All readers of a process: counted, pinged when nothing was sent for a while, and told when the server stops."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass

from app.transport.outlet import Message, Outlet

TICK = 1.0


class ServerStops(Exception):
    """The server is draining: come back with the last id."""


@dataclass(frozen=True, slots=True, eq=False)
class Registration:
    """A reader's outlet, the ping it wants, and whether it ends by itself when its turn does.

    A ping may be made when it is due. `patience` is after how many seconds of silence: None for the server's own.
    """

    outlet: Outlet
    ping: Message | Callable[[], Message] | None
    ends_by_itself: bool = False
    patience: float | None = None


class Readers:
    """The registry. One timer serves all pings."""

    def __init__(self, *, ping_interval: float) -> None:
        self._ping_interval = ping_interval
        self._open: set[Registration] = set()
        self._on_drain: set[Callable[[], None]] = set()
        self._ticker: asyncio.Task[None] | None = None
        self.is_draining = False

    def __len__(self) -> int:
        return len(self._open)

    def start(self) -> None:
        """Begin to ping."""
        self._ticker = asyncio.create_task(self._tick(), name="pings")

    async def stop(self) -> None:
        """Close whoever is left."""
        if self._ticker is not None:
            self._ticker.cancel()
        self.drain()
        for reader in list(self._open):
            reader.outlet.close(ServerStops())

    def add(self, reader: Registration) -> None:
        """Register a reader; one that comes after the drain began is told at once."""
        self._open.add(reader)
        if self.is_draining and not reader.ends_by_itself:
            reader.outlet.close(ServerStops())

    def remove(self, reader: Registration) -> None:
        """Forget a reader."""
        self._open.discard(reader)

    def on_drain(self, tell: Callable[[], None]) -> None:
        """Call `tell` when the drain begins; at once if it has begun."""
        self._on_drain.add(tell)
        if self.is_draining:
            tell()

    def forget(self, tell: Callable[[], None]) -> None:
        """Undo `on_drain`."""
        self._on_drain.discard(tell)

    def drain(self) -> None:
        """Tell every reader that the server stops; those that follow a running turn see it end first."""
        self.is_draining = True
        for reader in list(self._open):
            if not reader.ends_by_itself:
                reader.outlet.close(ServerStops())
        for tell in list(self._on_drain):
            tell()

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(min(TICK, self._ping_interval / 2))
            self._ping_the_silent()

    def _ping_the_silent(self) -> None:
        # Not in the ticker itself, whose frame would hold on to the last reader between two ticks.
        now = time.monotonic()
        for reader in list(self._open):
            patience = self._ping_interval if reader.patience is None else reader.patience
            if reader.ping is not None and reader.outlet.last_sent <= now - patience:
                reader.outlet.ping(reader.ping() if callable(reader.ping) else reader.ping)
