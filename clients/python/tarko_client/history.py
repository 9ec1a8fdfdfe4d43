"""A session's history, page by page. No I/O."""

from collections.abc import Iterable
from typing import Literal, NotRequired, TypedDict

from tarko_client import request
from tarko_client.errors import NotTarko
from tarko_client.pages import EventPage
from tarko_client.request import Call, Params


class Filter(TypedDict):
    """Which events: of these types, since and until when (epoch ms), of this turn; `deltas`: also those still kept."""

    types: NotRequired[Iterable[str]]
    since: NotRequired[int]
    until: NotRequired[int]
    turn_id: NotRequired[str]
    deltas: NotRequired[bool]


class Where(Filter):
    """Also where the page lies: by cursor, or, without any filter, by `offset`."""

    limit: NotRequired[int]
    offset: NotRequired[int]
    after: NotRequired[str | int]
    before: NotRequired[str | int]
    order: NotRequired[Literal["asc", "desc"]]


def params_of(where: Where) -> Params:
    """The query string of a page."""
    places: dict[str, str | int] = {
        name: where[name] for name in ("limit", "offset", "after", "before", "order") if name in where
    }
    return places | filters_of(where)


def filters_of(which: Filter) -> dict[str, str | int]:
    """The part of a query string that says which events."""
    params: dict[str, str | int] = {name: which[name] for name in ("since", "until") if name in which}
    if "types" in which:
        params["types"] = ",".join(which["types"])
    if "turn_id" in which:
        params["turnId"] = which["turn_id"]
    if which.get("deltas"):
        params["deltas"] = "true"
    return params


class Paging:
    """All pages after a cursor, oldest first."""

    def __init__(self, session_id: str, which: Filter, *, after: str | int, limit: int) -> None:
        self.is_over = False
        self._session_id = session_id
        self._params = {**filters_of(which), "limit": limit}
        self._after = str(after)

    def call(self) -> Call[EventPage]:
        """The next page."""
        return request.events(self._session_id, {**self._params, "after": self._after})

    def take(self, page: EventPage) -> None:
        """Go past a page. Raises NotTarko for one that leads to itself."""
        if page.next_after == self._after:
            raise NotTarko(f"The server's page after {self._after} leads to itself.")
        self.is_over = page.next_after is None
        self._after = page.next_after or self._after
