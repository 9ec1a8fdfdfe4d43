import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.commands.failures import NotTarko
from app.commands.pages import read_page

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(
    st.lists(JSON, max_size=4), st.sampled_from([(",", ":"), (", ", ": "), (" , ", " :\n")]), st.booleans()
)
def test_items_are_kept_to_the_byte(items: list[Any], separators: tuple[str, str], is_ascii: bool) -> None:
    spelled = [json.dumps(item, separators=separators, ensure_ascii=is_ascii) for item in items]
    comma, colon = separators
    text = f'{{"total"{colon}7{comma}"events"{colon}[{comma.join(spelled)}]{comma}"hasMore"{colon}true }}'
    page = read_page(text, "events")
    assert page.texts == spelled
    assert page.values == items
    assert page.rest == {"total": 7, "hasMore": True}


@pytest.mark.parametrize(
    ("rest", "after"),
    [
        ('"hasMore":true,"nextAfter":"e_1"', "e_1"),
        ('"hasMore":false,"nextAfter":"e_1"', None),
        ('"nextAfter":"e_1"', "e_1"),
        ('"hasMore":true', None),
        ('"total":0', None),
    ],
)
def test_the_next_page_is_named_by_the_server(rest: str, after: str | None) -> None:
    assert read_page(f'{{"events":[],{rest}}}', "events").next_after == after


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", "<html>", '{"events":[', '{"events" 3}', '{"events":{}}', "{"]
)
def test_what_is_no_page_is_refused(text: str) -> None:
    with pytest.raises(NotTarko, match="a list of events"):
        read_page(text, "events")
