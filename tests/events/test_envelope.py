"""From drafts to envelopes: only with places, and metadata that says where an event comes from."""

import time

from app.events.canonical import decode
from app.events.ending import ABSENT, Ending
from app.events.envelope import Draft, Envelope, Placed, now_ms, place
from app.events.metadata import metadata

LASTING = Draft("m", 5, b"1", b"{}")
PASSING = Draft("d", 6, b"2", b"{}", is_lasting=False)


def test_places_and_ordinals_count_on() -> None:
    assert place("s", "t", [LASTING, PASSING, LASTING], Placed(7, 3, 0, 10)) == [
        Envelope("s", 8, 4, "t", "m", 5, b"1", b"{}"),
        Envelope("s", 9, None, "t", "d", 6, b"2", b"{}"),
        Envelope("s", 10, 5, "t", "m", 5, b"1", b"{}"),
    ]


def test_what_an_earlier_try_had_stored_gets_no_second_place() -> None:
    assert place("s", None, [LASTING, PASSING], Placed(0, 0, 2, 9)) == []
    assert [each.type for each in place("s", None, [LASTING, PASSING], Placed(4, 2, 1, 5))] == ["d"]


def test_metadata_name_source_version_and_trace() -> None:
    assert decode(metadata("agent")) == {"source": "agent", "version": "1.0"}
    assert decode(metadata("user", "ab" * 16, toolCallId="x")) == {
        "source": "user",
        "version": "1.0",
        "traceId": "ab" * 16,
        "toolCallId": "x",
    }


def test_endings_say_whether_to_try_again() -> None:
    assert Ending.completed().data is ABSENT
    assert Ending.completed(None).data is None
    assert Ending.failed("why", code="c", is_recoverable=True) == Ending("failed", "c", "why", True)  # noqa: FBT003
    assert Ending.aborted().code == "aborted"
    assert (Ending.interrupted().code, Ending.interrupted().is_recoverable) == ("server_restarted", True)


def test_the_time_is_epoch_milliseconds() -> None:
    before = time.time() * 1000 - 1
    assert before <= now_ms() <= time.time() * 1000 + 1
