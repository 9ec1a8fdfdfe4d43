"""Ids: unique, and an event's id is the cursor."""

import hypothesis.strategies as st
import pytest
from hypothesis import given

from app.events.ids import (
    BadCursor,
    event_id,
    event_id_prefix,
    is_session_id,
    is_turn_id,
    new_session_id,
    new_turn_id,
    place_of,
)

SESSION = "sess_" + "a2" * 13
PART = "a2" * 13


def test_new_ids_have_their_form_and_differ() -> None:
    sessions = {new_session_id() for _ in range(1000)}
    turns = {new_turn_id() for _ in range(1000)}
    assert len(sessions) == len(turns) == 1000
    assert all(is_session_id(each) and not is_turn_id(each) for each in sessions)
    assert all(is_turn_id(each) and not is_session_id(each) for each in turns)


@pytest.mark.parametrize(
    "text", ["", "sess_", PART, SESSION + "\n", SESSION.upper(), SESSION + "a", SESSION[:-1] + "1"]
)
def test_what_has_not_their_form_is_no_id(text: str) -> None:
    assert not is_session_id(text)
    assert not is_turn_id(text.replace("sess_", "turn_"))


@given(st.integers(0, 10**18 - 1))
def test_an_events_id_is_a_cursor(place: int) -> None:
    assert event_id(SESSION, place) == event_id_prefix(SESSION) + str(place)
    assert place_of(SESSION, event_id(SESSION, place)) == place
    assert place_of(SESSION, f"{event_id(SESSION, place)}~12") == place
    assert place_of(SESSION, str(place)) == place


@pytest.mark.parametrize(
    "cursor",
    [
        "", "-1", "1.0", " 1", "1\n", "x", "evt_", f"evt_{PART}", f"evt_{PART}_", f"evt_{PART}_x", f"evt_{PART}_1~",
        f"evt_{PART}_-1", f"evt_{PART}_1\n", "ctl_1", SESSION, "9" * 19, "\uff11\uff12", "\u0663", "x" * 10_000,
        "evt_" + "b2" * 13 + "_1",
    ],
)  # fmt: skip
def test_garbage_and_foreign_cursors_are_refused(cursor: str) -> None:
    with pytest.raises(BadCursor) as refused:
        place_of(SESSION, cursor)
    assert len(str(refused.value)) < 200
