"""What a client may ask of the history, checked and turned into a query, and the page's body. No I/O."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from app.dialects.tarko.nested import spell
from app.dialects.tarko.resume import cursor_place
from app.errors import BadRequest
from app.events.canonical import encode_text
from app.events.envelope import Envelope
from app.events.ids import event_id
from app.events.vocabulary import is_event_type
from app.log.history import HistoryPage, HistoryQuery

DEFAULT_LIMIT = 50
MAX_LIMIT = 1000


@dataclass(frozen=True, slots=True)
class HistoryRequest:
    """The parameters of `GET /api/v1/sessions/events`, as they came."""

    session_id: str
    limit: int = DEFAULT_LIMIT
    offset: int | None = None
    after: str | None = None
    before: str | None = None
    order: Literal["asc", "desc"] = "asc"
    types: str | None = None
    since: int | None = None
    until: int | None = None
    deltas: bool = False
    turn_id: str | None = None

    @property
    def is_plain(self) -> bool:
        """Whether this is the plain list by offset, as the protocol page has it."""
        asks = (self.after, self.before, self.types, self.since, self.until, self.turn_id)
        return self.order == "asc" and not self.deltas and all(ask is None for ask in asks)

    def query(self) -> HistoryQuery:
        """The query by cursor.

        Raises `BadRequest`: `offset_not_allowed`, `bad_cursor`.
        """
        if self.offset:
            raise BadRequest(
                "`offset` belongs to the plain list alone; page by `after` or `before` here.",
                code="offset_not_allowed",
            )
        return HistoryQuery(
            after=0 if self.after is None else cursor_place(self.session_id, self.after),
            before=None if self.before is None else cursor_place(self.session_id, self.before),
            is_descending=self.order == "desc",
            types=None if self.types is None else tuple(filter(is_event_type, self.types.split(","))),
            since=self.since,
            until=self.until,
            turn_id=self.turn_id,
            with_passing=self.deltas,
            limit=self.limit,
        )


def page_body(session_id: str, query: HistoryQuery, page: HistoryPage, total: int) -> bytes:
    """The body of a page by cursor: `nextAfter` (or `nextBefore`) is there when the page has events."""
    parts = [b'{"events":[', b",".join(map(spell, page.events)), b'],"total":%d' % total]
    parts.append(b',"hasMore":%b' % (b"true" if page.has_more else b"false"))
    if page.events:
        key = b"nextBefore" if query.is_descending else b"nextAfter"
        parts.append(b',"%b":%b' % (key, encode_text(event_id(session_id, page.events[-1].place))))
    parts.append(b"}")
    return b"".join(parts)


def list_opening() -> bytes:
    """What the body of the plain list begins with."""
    return b'{"events":['


def list_piece(events: Sequence[Envelope], *, is_first: bool) -> bytes:
    """Some of its events."""
    joined = b",".join(map(spell, events))
    return joined if is_first or not joined else b"," + joined


def list_closing(total: int, *, has_more: bool, next_after: str | None) -> bytes:
    """What it ends with."""
    tail = b"" if next_after is None else b',"nextAfter":%b' % encode_text(next_after)
    return b'],"total":%d,"hasMore":%b%b}' % (total, b"true" if has_more else b"false", tail)
