"""Group commit: the one writer of a process.

What arrives while a write is under way forms the next one; there is no timer, but under load at most one write begins
in each millisecond. Promise: nothing is shown to readers before the write that stores it has returned, and a write
whose outcome is unknown is sent again, unchanged, until it is known.

One session's bad content fails alone: a rejected batch is split and its strands are written one by one. Strands of one
session are written in the order in which they were opened.
"""

import asyncio
import logging
import time
from collections.abc import Sequence
from contextlib import suppress

from app.errors import StorageUnavailable
from app.events.envelope import Draft, Placed, place
from app.log.hints import ALONE, Hints
from app.log.logs import Logs
from app.log.session_log import Page
from app.log.store import Dropped, EventStore, Strand, StrandRejected

MAX_BATCH_DRAFTS = 8_000
MAX_BATCH_BYTES = 32 * 2**20
MAX_WAITING_BYTES = 256 * 2**20
PACE = 0.001
RETRY_PAUSE = 0.1
MAX_RETRY_PAUSE = 1.0

_logger = logging.getLogger(__name__)


class GroupCommit:
    """Collects strands, writes them, then shows them.

    Counters for the metrics: `events`, `writes`, `failures`, `waited` (seconds spent in writes); `waiting_drafts` are not stored yet.
    """

    def __init__(self, store: EventStore, logs: Logs, hints: Hints = ALONE) -> None:
        self._store = store
        self._logs = logs
        self._hints = hints
        self._waiting_bytes = 0
        self._waiting: list[Strand] = []
        self._taken: list[Strand] = []
        self._arrived = asyncio.Event()
        self._writer: asyncio.Task[None] | None = None
        self._failing_since: float | None = None
        self.events = 0
        self.writes = 0
        self.failures = 0
        self.waited = 0.0
        self.waiting_drafts = 0

    @property
    def is_storing(self) -> bool:
        """Whether the last write went well."""
        return self._failing_since is None

    @property
    def failing_for(self) -> float:
        """For how many seconds the database has refused to write; 0 when it does."""
        return 0.0 if self._failing_since is None else time.monotonic() - self._failing_since

    @property
    def is_full(self) -> bool:
        """Whether so much waits, of all turns together, that agents must wait, too."""
        return self._waiting_bytes > MAX_WAITING_BYTES

    def start(self) -> None:
        """Begin to write."""
        self._writer = asyncio.create_task(self._run(), name="group commit")

    async def stop(self) -> None:
        """Stop writing. Whoever still waits for a strand is told that it was dropped."""
        if self._writer is not None:
            self._writer.cancel()
            with suppress(asyncio.CancelledError):
                await self._writer
        for strand in (*self._taken, *self._waiting):
            _settle(strand, Dropped("the server stopped"))
        self._taken.clear()
        self._waiting.clear()
        self.waiting_drafts = 0

    def open(self, strand: Strand) -> Strand:
        """Queue a strand. Until it is taken, `add` may put more drafts on it."""
        self._waiting.append(strand)
        self.waiting_drafts += len(strand.drafts)
        self._waiting_bytes += strand.size
        self._arrived.set()
        return strand

    def add(self, strand: Strand, drafts: Sequence[Draft], size: int) -> None:
        """Put more drafts, of so many bytes, on an open strand that is not taken yet."""
        strand.drafts.extend(drafts)
        strand.size += size
        self._waiting_bytes += size
        self.waiting_drafts += len(drafts)

    async def _run(self) -> None:
        began = 0.0
        while True:
            await self._arrived.wait()
            ahead = began + PACE - time.monotonic()
            if ahead > 0 and self.waiting_drafts > 1:
                await asyncio.sleep(ahead)
            began = time.monotonic()
            self._taken = self._take()
            await self._write(self._taken)
            self._taken = []
            self.waited += time.monotonic() - began

    def _take(self) -> list[Strand]:
        drafts = size = 0
        batch: list[Strand] = []
        for strand in self._waiting:
            if batch and (drafts >= MAX_BATCH_DRAFTS or size >= MAX_BATCH_BYTES):
                break
            strand.is_taken = True
            drafts += len(strand.drafts)
            size += strand.size
            batch.append(strand)
        del self._waiting[: len(batch)]
        self.waiting_drafts -= drafts
        self._waiting_bytes -= size
        if not self._waiting:
            self._arrived.clear()
        return batch

    async def _write(self, batch: list[Strand]) -> None:
        try:
            places = await self._until_known(batch)
        except StrandRejected as rejected:
            if len(batch) == 1:
                _logger.error("%s: a strand can't be stored: %s", batch[0].session_id, rejected)
                _settle(batch[0], Dropped(str(rejected)))
                return
            for strand in batch:
                await self._write([strand])
            return
        for strand, placed in zip(batch, places, strict=True):
            self._show(strand, placed)
        if self._hints.others:
            pairs = zip(batch, places, strict=True)
            self._hints.moved(
                {strand.session_id: placed.last for strand, placed in pairs if placed is not None}
            )

    async def _until_known(self, batch: list[Strand]) -> list[Placed | None]:
        pause = RETRY_PAUSE
        while True:
            began = time.monotonic()
            try:
                places = await self._store.write(batch)
            except StrandRejected:
                raise
            except Exception as error:  # whatever went wrong, nobody else writes here
                if self._failing_since is None:
                    self._failing_since = began  # a database that hangs says so late
                self.failures += 1
                is_odd = not isinstance(error, StorageUnavailable)
                _logger.warning("%d strands wait for the database: %s", len(batch), error, exc_info=is_odd)
                await asyncio.sleep(pause)
                pause = min(pause * 2, MAX_RETRY_PAUSE)
            else:
                self._failing_since = None
                self.writes += 1
                return places

    def _show(self, strand: Strand, placed: Placed | None) -> None:
        if placed is None:
            _settle(strand, Dropped("the turn was taken over or its session is closed"))
            return
        self.events += len(strand.drafts) - placed.skipped
        turn_id = strand.fence.turn_id if strand.fence else None
        events = place(strand.session_id, turn_id, strand.drafts, placed)
        if placed.skipped:
            # Stored by an earlier try whose answer was lost: the log reads its places from the store.
            self._logs.show(strand.session_id, Page(placed.last, placed.last, ()))
        else:
            self._logs.show(strand.session_id, Page(placed.after, placed.last, events))
        _settle(strand, placed)


def _settle(strand: Strand, outcome: Placed | Dropped) -> None:
    settled, strand.settled = strand.settled, None
    if settled is not None:
        settled(outcome)
