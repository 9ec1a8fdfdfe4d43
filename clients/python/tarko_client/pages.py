"""A page of a list as the server sent it, cut into its items without changing a byte of them.

Parsing an item and writing it again would change it (spaces, escapes, the spelling of numbers), so the page's text is
walked once and each item is kept as the slice that it was.
"""

import json
import re
from dataclasses import dataclass
from typing import Any, NoReturn, cast

from tarko_client.errors import NotTarko
from tarko_client.event import Event
from tarko_client.shapes import SessionItem

_SPACE = re.compile(r"[ \t\r\n]*")
_DECODER = json.JSONDecoder()


@dataclass(frozen=True, slots=True)
class EventPage:
    """A page of a session's log. `total` counts the session's lasting events; None where the server doesn't say.

    `next_after` and `next_before` are the cursor of the next page, None on the last one.
    """

    events: list[Event]
    total: int | None
    next_after: str | None
    next_before: str | None

    @classmethod
    def read(cls, text: str) -> "EventPage":
        """Raises NotTarko when the text is no such page."""
        items, rest = read_items(text, "events")
        total = rest.get("total")
        has_more = rest.get("hasMore", True)
        return cls(
            [Event.of(item, value) for item, value in items],
            total if isinstance(total, int) else None,
            _cursor(rest.get("nextAfter")) if has_more else None,
            _cursor(rest.get("nextBefore")) if has_more else None,
        )


@dataclass(frozen=True, slots=True)
class SessionPage:
    """A page of sessions, newest first, and their texts as they came. `next_after` is None on the last one."""

    sessions: list[SessionItem]
    texts: list[str]
    next_after: str | None

    @classmethod
    def read(cls, text: str) -> "SessionPage":
        """Raises NotTarko when the text is no such page."""
        items, rest = read_items(text, "sessions")
        return cls(
            [cast(SessionItem, value) for _, value in items],
            [item for item, _ in items],
            _cursor(rest.get("nextAfter")),
        )


def read_items(text: str, name: str) -> tuple[list[tuple[str, Any]], dict[str, Any]]:
    """The items of the list of that name, each as its text and its value, and the other fields of the page.

    Raises NotTarko when there is no such list.
    """
    try:
        items, rest = _read_object(text, name)
    except (ValueError, IndexError, RecursionError) as error:
        _refuse(name, error)
    if items is None:
        _refuse(name)
    return items, rest


def _cursor(said: Any) -> str | None:
    return None if said is None else str(said)


def _read_object(text: str, name: str) -> tuple[list[tuple[str, Any]] | None, dict[str, Any]]:
    items: list[tuple[str, Any]] | None = None
    rest: dict[str, Any] = {}
    place = _expect(text, _skip(text, 0), "{")
    while text[place] != "}":
        key, place = _DECODER.raw_decode(text, place)
        place = _expect(text, _skip(text, place), ":")
        if key == name:
            items, place = _read_array(text, place)
        else:
            rest[key], place = _DECODER.raw_decode(text, place)
        place = _after_comma(text, place)
    return items, rest


def _read_array(text: str, place: int) -> tuple[list[tuple[str, Any]], int]:
    items = []
    place = _expect(text, place, "[")
    while text[place] != "]":
        value, end = _DECODER.raw_decode(text, place)
        items.append((text[place:end], value))
        place = _after_comma(text, end)
    return items, place + 1


def _after_comma(text: str, place: int) -> int:
    place = _skip(text, place)
    return _skip(text, place + 1) if text[place] == "," else place


def _expect(text: str, place: int, character: str) -> int:
    if text[place] != character:
        raise ValueError(f"{character} was expected at {place}")
    return _skip(text, place + 1)


def _skip(text: str, place: int) -> int:
    found = _SPACE.match(text, place)
    return found.end() if found else place


def _refuse(name: str, cause: Exception | None = None) -> NoReturn:
    raise NotTarko(f"The server's answer should be an object with a list of {name}, but is not.") from cause
