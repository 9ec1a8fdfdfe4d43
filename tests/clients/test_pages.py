import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarko_client import EventPage, NotTarko, SessionPage
from tarko_client.history import Paging, params_of
from tarko_client.pages import read_items

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
    found, rest = read_items(text, "events")
    assert [item for item, _ in found] == spelled
    assert [value for _, value in found] == items
    assert rest == {"total": 7, "hasMore": True}


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
    assert EventPage.read(f'{{"events":[],{rest}}}').next_after == after


def test_a_page_that_goes_backwards_has_a_cursor_too() -> None:
    page = EventPage.read('{"events":[{"type":"x"}],"total":"?","hasMore":true,"nextBefore":"e_5"}')
    assert (page.next_before, page.next_after, page.total) == ("e_5", None, None)
    assert [event.type for event in page.events] == ["x"]


def test_sessions_are_kept_to_the_byte() -> None:
    page = SessionPage.read('{"sessions":[ {"id": "sess_1"} ],"nextAfter":"5.sess_1"}')
    assert page.texts == ['{"id": "sess_1"}']
    assert [session["id"] for session in page.sessions] == ["sess_1"]
    assert page.next_after == "5.sess_1"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        "<html>",
        '{"events":[',
        '{"events" 3}',
        '{"events":{}}',
        "{",
        '{"events":[7]}',
        '{"events":' + "[" * 100_000,
    ],
)
def test_what_is_no_page_is_refused(text: str) -> None:
    with pytest.raises(NotTarko):
        EventPage.read(text)


def test_a_page_that_leads_to_itself_ends_the_paging() -> None:
    paging = Paging("sess_a", {}, after=0, limit=10)
    paging.take(EventPage([], 0, "e_1", None))
    assert dict(paging.call().request.params) == {"sessionId": "sess_a", "limit": 10, "after": "e_1"}
    with pytest.raises(NotTarko, match="leads to itself"):
        paging.take(EventPage([], 0, "e_1", None))


def test_a_filter_is_spelled_as_the_protocol_has_it() -> None:
    asked = params_of(
        {
            "types": ["a", "b"],
            "since": 1,
            "until": 2,
            "turn_id": "t",
            "deltas": True,
            "before": 9,
            "order": "desc",
        }
    )
    assert asked == {
        "types": "a,b",
        "since": 1,
        "until": 2,
        "turnId": "t",
        "deltas": "true",
        "before": 9,
        "order": "desc",
    }
    assert params_of({"deltas": False, "offset": 0}) == {"offset": 0}
