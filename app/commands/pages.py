"""A page of a list as the server sent it, cut into its items without changing a byte of them.

Parsing an item and writing it again would change it (spaces, escapes, the spelling of numbers), so the page's text is
walked once and each item is kept as the slice that it was.
"""

import json
import re
from dataclasses import dataclass
from typing import Any, NoReturn

from app.commands.failures import NotTarko

_SPACE = re.compile(r"[ \t\r\n]*")
_DECODER = json.JSONDecoder()


@dataclass(frozen=True, slots=True)
class Page:
    """The items' texts and values, and what the page says beside them (`nextAfter`, `hasMore`, `total`)."""

    texts: list[str]
    values: list[Any]
    rest: dict[str, Any]

    @property
    def next_after(self) -> str | None:
        """Where the next page begins; None on the last one."""
        after = self.rest.get("nextAfter")
        has_more = self.rest.get("hasMore", after is not None)
        return str(after) if has_more and after is not None else None


def read_page(text: str, items: str) -> Page:
    """The page whose items lie under the key `items`. Raises NotTarko when there are none."""
    try:
        page = _read_object(text, items)
    except (ValueError, IndexError) as error:
        _refuse(items, error)
    return page or _refuse(items)


def _read_object(text: str, items: str) -> Page | None:
    texts: list[str] | None = None
    values: list[Any] = []
    rest: dict[str, Any] = {}
    place = _expect(text, _skip(text, 0), "{")
    while text[place] != "}":
        key, place = _DECODER.raw_decode(text, place)
        place = _skip(text, _expect(text, _skip(text, place), ":"))
        if key == items:
            texts, values, place = _read_array(text, place)
        else:
            rest[key], place = _DECODER.raw_decode(text, place)
        place = _after_comma(text, place)
    return None if texts is None else Page(texts, values, rest)


def _read_array(text: str, place: int) -> tuple[list[str], list[Any], int]:
    texts, values = [], []
    place = _skip(text, _expect(text, place, "["))
    while text[place] != "]":
        value, end = _DECODER.raw_decode(text, place)
        texts.append(text[place:end])
        values.append(value)
        place = _after_comma(text, end)
    return texts, values, place + 1


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


def _refuse(items: str, cause: Exception | None = None) -> NoReturn:
    raise NotTarko(f"The server's answer should be an object with a list of {items}, but is not.") from cause
