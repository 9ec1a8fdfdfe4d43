"""One session's log as its readers see it: what is durable, and nothing else.

The log shows pages — runs of consecutive events that became durable together — and keeps the most recent ones in a
window. A reader is a cursor: "everything after this place, then wait". Pages are shared by all readers and remember
how they were encoded, so an event is encoded once per spelling however many read it.

Invariant: the window takes only its next place. A page that would leave a gap (another writer was first) makes the
log read the gap from the store, where everything already is, before it shows more; a page from before the head is
known already. So readers see every place once, in order, whoever wrote it.
"""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Any, TypeAlias, TypeVar

from app.errors import StorageUnavailable
from app.events.envelope import Envelope
from app.log.store import EventStore, Slice

Encoded = TypeVar("Encoded")
Encode: TypeAlias = Callable[[Sequence[Envelope]], Encoded]

WINDOW_EVENTS = 1000
WINDOW_BYTES = 4 * 2**20
SHARED_PAGES = 4
CATCH_UP_PAUSE = 0.2

_logger = logging.getLogger(__name__)


class Page:
    """The events of the places over `after` up to `upto`, oldest first; retired ones may be missing.

    `encoded` remembers what it made, so it is for spellings that many readers share.
    """

    __slots__ = ("_encoded", "_ends", "after", "events", "upto")

    def __init__(self, after: int, upto: int, events: Sequence[Envelope]) -> None:
        self.after = after
        self.upto = upto
        self.events = events
        self._encoded: dict[Encode[Any], Any] | None = None
        self._ends: dict[str | None, int] | None = None

    @property
    def size(self) -> int:
        """The bytes of its data."""
        return sum([len(event.data) for event in self.events])

    def end_of(self, turn_id: str) -> int | None:
        """The place at which this turn ends, if it does so in this page."""
        if self._ends is None:
            self._ends = {
                event.turn_id: event.place for event in self.events if event.type == "agent_run_end"
            }
        return self._ends.get(turn_id)

    def encoded(self, encode: Encode[Encoded]) -> Encoded:
        """The events in one spelling."""
        known = self._encoded
        if known is None:
            known = self._encoded = {}
        encoded: Encoded | None = known.get(encode)
        if encoded is None:
            encoded = known[encode] = encode(self.events)
        return encoded

    def since(self, place: int) -> "Page":
        """The part of the page after a place in its middle."""
        return Page(place, self.upto, [event for event in self.events if event.place > place])

    def of_turn(self, turn_id: str | None) -> "Page":
        """The page with the events of one turn only."""
        return Page(self.after, self.upto, [event for event in self.events if event.turn_id == turn_id])

    def until(self, place: int) -> "Page":
        """The part of the page up to a place in its middle."""
        return Page(self.after, place, [event for event in self.events if event.place <= place])


class SessionLog:
    """A live session's log. `head` is the last place that readers may see."""

    def __init__(self, session_id: str, store: EventStore, head: int, *, is_closed: bool = False) -> None:
        self.session_id = session_id
        self.head = head
        self.is_closed = is_closed
        self._store = store
        self._window: deque[Page] = deque()
        self._window_events = 0
        self._window_bytes = 0
        self._watchers: set[Callable[[], None]] = set()
        self._target = head
        self._catching_up: asyncio.Task[None] | None = None
        self._reads: dict[Slice, asyncio.Task[Page]] = {}
        self._pages: dict[Slice, Page] = {}

    # ── showing ──────────────────────────────────────────────────────────────────────────────────────────────────

    def show(self, page: Page) -> None:
        """Make a durable page visible, or find out what lies before it."""
        if page.upto <= self.head:
            return
        if page.after == self.head and self._catching_up is None:
            self._append(page)
        else:
            self.catch_up(page.upto)

    def catch_up(self, upto: int) -> None:
        """Show everything up to this place, which is durable, from the store."""
        self._target = max(self._target, upto)
        if self._catching_up is None and self._target > self.head:
            self._catching_up = asyncio.create_task(self._read_gap(), name=f"catch up {self.session_id}")

    async def _read_gap(self) -> None:
        try:
            while self.head < self._target:
                try:
                    events = await self._store.read(self.session_id, Slice(self.head))
                except StorageUnavailable as error:
                    _logger.warning("%s waits for the database: %s", self.session_id, error)
                    await asyncio.sleep(CATCH_UP_PAUSE)
                    continue
                upto = events[-1].place if events else self._target
                self._append(Page(self.head, upto, events))
        finally:
            self._catching_up = None

    def _append(self, page: Page) -> None:
        self.head = page.upto
        self._window.append(page)
        self._window_events += len(page.events)
        self._window_bytes += page.size
        while len(self._window) > 1 and (
            self._window_events > WINDOW_EVENTS or self._window_bytes > WINDOW_BYTES
        ):
            oldest = self._window.popleft()
            self._window_events -= len(oldest.events)
            self._window_bytes -= oldest.size
        if page.events and page.events[-1].type == "session_end":
            self.is_closed = True
        for wake in list(self._watchers):
            wake()

    def close(self) -> None:
        """Let go: the log has no more readers or writers."""
        if self._catching_up is not None:
            self._catching_up.cancel()

    # ── reading ──────────────────────────────────────────────────────────────────────────────────────────────────

    def watch(self, wake: Callable[[], None]) -> None:
        """Call `wake` whenever the head moves. It must be quick and must not raise."""
        self._watchers.add(wake)

    def unwatch(self, wake: Callable[[], None]) -> None:
        """Stop calling `wake`."""
        self._watchers.discard(wake)

    @property
    def readers(self) -> int:
        """How many watch."""
        return len(self._watchers)

    @property
    def window_after(self) -> int:
        """The place behind which the window has everything."""
        return self._window[0].after if self._window else self.head

    def recent(self, after: int) -> list[Page] | None:
        """The window's pages after a place: none at the head, None when the place is behind the window."""
        if after >= self.head:
            return []
        if not self._window or after < self._window[0].after:
            return None
        if self._window[-1].after == after:
            return [self._window[-1]]
        pages: list[Page] = []
        for page in reversed(self._window):
            if page.upto <= after:
                break
            pages.append(page if page.after >= after else page.since(after))
        pages.reverse()
        return pages

    async def read(self, which: Slice) -> Page:
        """Events from the store; the page reaches as far as is known to be covered, and not into the window if it has no
        `upto` and begins before: what is at hand may be large.

        Readers that ask for the same at the same time, or soon after, share one page.
        """
        if which.upto is None:
            edge = self.window_after
            which = which._replace(upto=edge if which.after < edge else self.head)
        if (page := self._pages.get(which)) is not None:
            return page
        reading = self._reads.get(which)
        if reading is None:
            reading = asyncio.create_task(self._read(which), name=f"read {self.session_id}")
            self._reads[which] = reading
            reading.add_done_callback(lambda reading: self._was_read(which, reading))
        return await asyncio.shield(reading)

    def _was_read(self, which: Slice, reading: asyncio.Task[Page]) -> None:
        del self._reads[which]
        if not reading.cancelled():
            reading.exception()  # is nobody's when all who asked have left, and no fault

    async def _read(self, which: Slice) -> Page:
        upto = which.upto or 0
        events = await self._store.read(self.session_id, which)
        is_whole = len(events) < which.limit and sum(len(event.data) for event in events) < which.budget
        page = Page(which.after, upto if is_whole or not events else events[-1].place, events)
        self._pages[which] = page
        if len(self._pages) > SHARED_PAGES:
            del self._pages[next(iter(self._pages))]
        return page

    async def follow(self, after: int) -> AsyncGenerator[Page, None]:
        """Every event after a place, as pages, for ever: until the session ends. Close it with `aclosing`.

        Raises `StorageUnavailable` when the place is behind the window and the store is away: follow again from there.
        """
        moved = asyncio.Event()
        self.watch(moved.set)
        try:
            while True:
                moved.clear()
                pages = self.recent(after)
                if pages is None:
                    pages = [await self.read(Slice(after))]
                for page in pages:
                    after = page.upto
                    yield page
                if not pages:
                    if self.is_closed:
                        return
                    await moved.wait()
        finally:
            self.unwatch(moved.set)
