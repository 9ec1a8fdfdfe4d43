"""A reader's place in a log, and what it reads next.

First the past, from the store: up to a place that was fixed when the reader came, and of turns that had ended by then
without their deltas. Then what the window has, then what comes. A reader that fell behind the window is in the past
again. A cursor holds no connection and no copy of anything; it ends with its turn (if it follows one), or with the
session.
"""

from collections.abc import Callable
from dataclasses import dataclass

from app.log.session_log import Page, SessionLog
from app.log.store import Slice


@dataclass(frozen=True, slots=True)
class Start:
    """Where a reader begins: after a place.

    Up to `replay_upto` the passing events of all turns but `whole_turn` are left out; zero leaves nothing out.
    """

    after: int
    replay_upto: int = 0
    whole_turn: str | None = None


class Cursor:
    """A place in a log that moves on with what was read. `turn_id`: end with that turn; `is_alone`: see only that turn.

    `end_of` tells at which place of a page to end, if not with the turn.
    """

    __slots__ = ("_end_of", "_is_alone", "_log", "_start", "is_over", "place", "turn_id")

    def __init__(
        self,
        log: SessionLog,
        start: Start,
        turn_id: str | None = None,
        *,
        is_alone: bool = False,
        end_of: Callable[[Page], int | None] | None = None,
    ) -> None:
        self._log = log
        self._start = start
        self._is_alone = is_alone
        self.place = start.after
        self.turn_id = turn_id
        self.is_over = False
        self._end_of = end_of
        if end_of is None and turn_id is not None:
            self._end_of = lambda page: page.end_of(turn_id)

    def ready(self) -> list[Page] | None:
        """The pages that can be had without waiting, taken; none at the head; None when `fetch` must be used."""
        if self.is_over:
            return []
        if self.place < self._start.replay_upto:
            return None
        pages = self._log.recent(self.place)
        if not pages:
            self.is_over = pages is not None and self._log.is_closed
            return pages
        return self._taken(pages)

    async def fetch(self) -> list[Page]:
        """The next page from the store, taken.

        Raises `StorageUnavailable`.
        """
        start = self._start
        if self.place < start.replay_upto:
            which = Slice(self.place, start.replay_upto, start.whole_turn or "")
        else:
            which = Slice(self.place)
        return self._taken([await self._log.read(which)])

    def _taken(self, pages: list[Page]) -> list[Page]:
        if self._end_of is not None:
            for index, page in enumerate(pages):
                end = self._end_of(page)
                if end is not None:
                    pages = [*pages[:index], page if end == page.upto else page.until(end)]
                    self.is_over = True
                    break
        self.place = pages[-1].upto
        if self._is_alone:
            return [page.of_turn(self.turn_id) for page in pages]
        return pages
