"""The readings, as pure functions of frames: what is new, what is asked for next, when there is nothing more to come."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarko_client import Event, NotTarko, TurnFailed
from tarko_client.answer import Answering
from tarko_client.event import place_of
from tarko_client.reading import Asking, Following, Frame, Join, Reading
from tarko_client.request import EVENTS_STREAM, QUERY_STREAM, Request

END = {"turnId": "t", "status": "completed", "elapsedMs": 1}


def event(place: int | str, kind: str = "x", data: Any = None, source: str = "agent") -> Event:
    envelope = {
        "id": f"evt_s_{place}",
        "type": kind,
        "timestamp": 1,
        "sessionId": "sess_s",
        "data": data,
        "metadata": {"source": source},
    }
    return Event.read(json.dumps(envelope))


def frame(place: int | str, kind: str = "x", data: Any = None, source: str = "agent") -> Frame:
    return Frame(f"evt_s_{place}", event(place, kind, data, source))


def asked(reading: Reading) -> tuple[str, dict[str, Any]]:
    opening = reading.opening()
    assert isinstance(opening, Request)
    return opening.path, dict(opening.params)


def following(after: str | int | None = None, *, from_now: bool = False) -> Following:
    return Following("sess_s", after=after, from_now=from_now, transport="sse")


def asking() -> Asking:
    return Asking("sess_s", {"query": "Hi"}, "key-1")


@pytest.mark.parametrize(
    ("cursor", "place"),
    [
        ("7", 7),
        ("evt_abc_12", 12),
        ("evt_abc_12~3", 12),
        ("ctl_4", 4),
        ("evt_abc", None),
        ("", None),
        ("abc7", None),
    ],
)
def test_the_place_of_a_cursor(cursor: str, place: int | None) -> None:
    assert place_of(cursor) == place


@given(st.lists(st.integers(1, 9)))
def test_every_place_is_given_once_and_in_order(places: list[int]) -> None:
    reading = following()
    taken = [reading.take(frame(place)) for place in places]
    new = [each.place or 0 for each in taken if each is not None]
    assert new == sorted(set(new))
    assert not new or new[0] == places[0]


def test_what_lies_before_the_cursor_is_not_new() -> None:
    reading = following("evt_s_4")
    assert reading.take(frame(4)) is None
    assert reading.take(frame(5)) == event(5)


def test_events_of_a_server_without_places_are_compared_with_the_last() -> None:
    reading = following()
    foreign = [Event("", name, "x", None, None) for name in ("a", "a", "b", "a", "", "")]
    assert [reading.take(Frame(None, each)) is not None for each in foreign] == [
        True,
        False,
        True,
        True,
        True,
        True,
    ]


@pytest.mark.parametrize(
    ("reading", "start"),
    [
        (following(), {}),
        (following(0), {"after": "0"}),
        (following("evt_s_3"), {"after": "evt_s_3"}),
        (following(from_now=True), {"from": "now"}),
        (following("e_3", from_now=True), {"after": "e_3"}),
    ],
)
def test_where_a_following_begins(reading: Following, start: dict[str, str]) -> None:
    assert asked(reading) == (EVENTS_STREAM, {"sessionId": "sess_s", **start})


def test_a_bare_cursor_is_where_it_goes_on() -> None:
    reading = following(from_now=True)
    assert reading.take(Frame("evt_s_9")) is None
    assert asked(reading)[1] == {"sessionId": "sess_s", "after": "evt_s_9"}
    reading.take(Frame(retry=5))
    assert asked(reading)[1]["after"] == "evt_s_9"


def test_on_a_socket_the_same_is_said_in_a_message() -> None:
    reading = Following("sess_s", after=None, from_now=True, transport="websocket")
    opening = reading.opening()
    assert isinstance(opening, Join)
    assert json.loads(opening.message) == {"type": "join_session", "sessionId": "sess_s", "from": "now"}
    reading.take(Frame("evt_s_3~1"))
    assert reading.opening() == Join("sess_s", {"after": "evt_s_3~1"})


def test_a_following_ends_with_the_session() -> None:
    reading = following()
    reading.take(frame(1, "agent_run_end"))
    assert not reading.is_over
    assert reading.take(frame(2, "session_end")) is not None
    assert reading.is_over


def test_a_query_is_sent_again_with_its_key_until_the_turn_speaks() -> None:
    reading = asking()
    first = reading.opening()
    reading.take(Frame("evt_s_4", retry=1))
    assert reading.take(frame("4~1", "query_queued", {"turnId": "t", "position": 1})) is not None
    assert reading.take(frame(5, "user_feedback", source="client")) is None
    again = reading.opening()
    assert (
        again
        == first
        == Request(
            QUERY_STREAM, body={"sessionId": "sess_s", "query": "Hi"}, headers={"Idempotency-Key": "key-1"}
        )
    )
    assert first.method == "POST"


def test_once_the_turn_speaks_the_log_is_read_on() -> None:
    reading = asking()
    reading.take(frame(5, "user_message", {"content": "Hi"}))
    assert asked(reading) == (EVENTS_STREAM, {"sessionId": "sess_s", "after": "evt_s_5"})
    assert reading.take(frame(5, "user_message", {"content": "Hi"})) is None
    reading.take(frame(6, "agent_run_start", {"turnId": "t"}))
    reading.take(frame(7, "agent_run_end", {"turnId": "another"}))
    assert not reading.is_over
    reading.take(frame(8, "agent_run_end", END))
    assert reading.is_over


@pytest.mark.parametrize("last", [frame(6, "agent_run_end", END), frame(6, "session_end")])
def test_a_turn_whose_start_was_not_seen_ends_too(last: Frame) -> None:
    reading = asking()
    reading.take(last)
    assert reading.is_over


def test_an_answer_about_the_queue_is_given_once() -> None:
    reading = asking()
    given = [
        reading.take(frame(f"4~{n}", "query_queued", {"turnId": "t", "position": position})) is not None
        for n, position in enumerate((2, 2, 1), 1)
    ]
    assert given == [True, False, True]
    assert not reading.is_over
    assert reading.take(frame("4~9", "error", {"code": "turn_removed", "error": "Removed."})) is not None
    assert reading.is_over


def test_an_answer_is_the_turns_text_and_its_lasting_events() -> None:
    answering = Answering()
    events = [
        event("1~1", "query_queued", {"turnId": "t", "position": 1}),
        event(2, "assistant_message_delta", {"delta": "Hel"}),
        event(3, "assistant_message", {"content": "Hel"}),
        event(4, "assistant_message", {"content": "lo"}),
        event(5, "agent_run_end", {**END, "data": {"n": 1}}),
    ]
    for each in events:
        answering.take(each)
    answer = answering.answer()
    assert (answer.response, answer.events) == ("Hello", events[2:])
    assert (answer.status, answer.turn_id, answer.data) == ("completed", "t", {"n": 1})


def test_a_failed_turn_is_raised_with_what_it_said() -> None:
    answering = Answering()
    answering.take(event(1, "assistant_message", {"content": "Hel"}))
    answering.take(event(2, "error", {"error": "It broke.", "code": "agent_exception", "recoverable": True}))
    answering.take(event(3, "agent_run_end", {**END, "status": "failed"}))
    with pytest.raises(TurnFailed, match="It broke") as failure:
        answering.answer()
    failed = failure.value
    assert (failed.code, failed.status, failed.response) == ("agent_exception", "failed", "Hel")
    assert (failed.turn_id, failed.is_recoverable) == ("t", True)


def test_a_turn_that_was_removed_or_says_no_reason_is_raised_too() -> None:
    removed = Answering()
    removed.take(event("1~1", "error", {"error": "Removed.", "code": "turn_removed", "recoverable": True}))
    with pytest.raises(TurnFailed) as failure:
        removed.answer()
    assert (failure.value.status, failure.value.code) == ("removed", "turn_removed")
    unexplained = Answering()
    unexplained.take(event(1, "agent_run_end", {**END, "status": "interrupted"}))
    with pytest.raises(TurnFailed, match="ended interrupted") as failure:
        unexplained.answer()
    assert failure.value.code == "agent_failed"


def test_events_without_an_id_are_all_given() -> None:
    reading = following()
    nameless = Event.read('{"id":null,"type":"x"}')
    assert [reading.take(Frame(None, nameless)) for _ in range(2)] == [nameless, nameless]


@pytest.mark.parametrize("text", ["", "7", "[]", "{}", '{"type":7}', "{", "[" * 100_000])
def test_what_is_no_event_is_refused(text: str) -> None:
    with pytest.raises(NotTarko):
        Event.read(text)


def test_an_event_tells_what_it_is() -> None:
    odd = Event.read('{"type":"a_delta","id":"ctl_1","timestamp":"soon","data":{"n":1}}')
    assert (odd.is_control, odd.is_passing, odd.timestamp, odd.text_of("n")) == (True, True, None, "1")
    assert event(1, data=[]).get("n", 7) == 7
