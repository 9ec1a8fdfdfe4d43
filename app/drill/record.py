"""What one reader was shown of a session: the evidence that the checker compares with the log."""

import asyncio
import time
from dataclasses import dataclass, field
from typing import NamedTuple

from app.drill.journal import hash_of


class Seen(NamedTuple):
    """An event as it arrived: its id, the hash of its bytes, and when (epoch milliseconds)."""

    id: str
    hash: str
    at: int


def place_of(event_id: str) -> int:
    """The place in an event's id; -1 if it has none."""
    place = event_id.rpartition("_")[2]
    return int(place) if place.isdecimal() else -1


@dataclass(slots=True)
class Record:
    """One reader's record. It starts at the session's first event; `cursor` is where it would resume.

    `farewells`: for every stream that the server closed, whether it named the cursor last. `is_gone`: the server
    said that the session was deleted, `has_left`: the reader went away. `trouble`: answers that no reader should get.
    """

    session_id: str
    kind: str = "sse"
    seen: list[Seen] = field(default_factory=list)
    cursor: str = "0"
    connections: int = 0
    farewells: list[bool] = field(default_factory=list)
    trouble: list[str] = field(default_factory=list)
    is_gone: bool = False
    has_left: bool = False
    _moved: asyncio.Event = field(default_factory=asyncio.Event)

    def note(self, event_id: str, data: bytes) -> None:
        """An event has arrived."""
        self.seen.append(Seen(event_id, hash_of(data), time.time_ns() // 1_000_000))
        self.cursor = event_id
        self._moved.set()

    async def reaches(self, place: int) -> None:
        """Wait until the reader has been shown this place."""
        while not self.seen or place_of(self.seen[-1].id) < place:
            self._moved.clear()
            await self._moved.wait()
