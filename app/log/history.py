"""Pages of a session's past: what a client asks of it, and what is asked of a store."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from app.events.envelope import Envelope


@dataclass(frozen=True, slots=True)
class HistoryQuery:
    """Which events: places over `after` and under `before`, of these types, of this turn, of a stretch of time.

    Times are epoch milliseconds; `since` is included and `until` is not. Without `with_passing` only lasting events
    are meant. `limit` counts events, `budget` bytes of data; one event is read however big.
    """

    after: int = 0
    before: int | None = None
    is_descending: bool = False
    types: tuple[str, ...] | None = None
    since: int | None = None
    until: int | None = None
    turn_id: str | None = None
    with_passing: bool = False
    limit: int = 50
    budget: int = 2**20


class HistoryPage(NamedTuple):
    """Events in the order asked for, and whether there are more behind them."""

    events: Sequence[Envelope]
    has_more: bool


class HistoryStore(Protocol):
    """The past's storage."""

    async def history(self, session_id: str, query: HistoryQuery) -> HistoryPage:
        """A page of a session's events."""
        ...

    async def lasting(self, session_id: str, after: int, upto: int, budget: int) -> Sequence[Envelope]:
        """Lasting events by ordinal: over `after`, up to and with `upto`, one at least and not many over `budget` bytes."""
        ...


async def event_at(store: HistoryStore, session_id: str, place: int) -> Envelope | None:
    """The event at this place; None where there is none, or none any more."""
    query = HistoryQuery(after=place - 1, before=place + 1, with_passing=True, limit=1)
    page = await store.history(session_id, query)
    return page.events[0] if page.events else None
