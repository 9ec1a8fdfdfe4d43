"""The checker against evidence with one planted fault each."""

import json
from dataclasses import replace
from typing import Any

import pytest

from app.drill.asking import Told
from app.drill.checker import Evidence, check, turns_of
from app.drill.journal import Said, hash_of
from app.drill.record import Record, Seen

SESSION = "sess_a"
ENDED_AT = 5_000


def _line(place: int, event_type: str, session_part: str = "a", **data: Any) -> bytes:
    event = {"id": f"evt_{session_part}_{place}", "type": event_type, "timestamp": ENDED_AT, "data": data}
    return json.dumps(event).encode()


def _log(*events: tuple[str, dict[str, Any]]) -> list[bytes]:
    return [_line(place, event_type, **data) for place, (event_type, data) in enumerate(events, 1)]


START = ("agent_run_start", {"turnId": "turn_1"})
ZERO = ("assistant_message_delta", {"delta": "0 "})
ONE = ("assistant_message_delta", {"delta": "1 "})
MESSAGE = ("assistant_message", {"content": "0 1 "})
END = ("agent_run_end", {"turnId": "turn_1", "status": "completed"})
ABORTED = ("agent_run_end", {"turnId": "turn_1", "status": "aborted"})
SOUND = _log(("session_start", {}), ("user_message", {}), START, ZERO, ONE, MESSAGE, END)
STOPPED = _log(START, ZERO, ONE, MESSAGE, ABORTED)
WORDS = [hash_of(b"0 "), hash_of(b"1 ")]
JOURNAL = {"turn_1": Said(WORDS, has_ended=True, over_at=ENDED_AT)}
STANDING = {"status": {"isProcessing": False}, "lastEventId": "evt_a_7"}


def _seen(log: list[bytes], *places: int) -> Record:
    return Record(SESSION, seen=[Seen(f"evt_a_{p}", hash_of(log[p - 1]), 0) for p in places])


def _told(what: str = "query", http: int = 200, **body: Any) -> Told:
    return Told(what, SESSION, http, body, 0.1)


EVERYTHING = Evidence(
    SESSION,
    SOUND,
    [_seen(SOUND, 1, 2, 3, 4, 5, 6, 7), _seen(SOUND, 1, 2)],
    JOURNAL,
    [
        _told(turnId="turn_1", status="completed"),
        _told("abort", turnId="turn_1", status="completed", success=False, lastEventId="evt_a_7"),
        _told(http=409, error="busy", code="session_busy", details={"turnId": "turn_1"}),
        _told("abort", turnId="turn_2", status="removed"),
        _told(http=0),
    ],
    STANDING,
    endings=("completed",),
    agents_live=True,
)
LATE = Said(WORDS, has_ended=False, over_at=ENDED_AT + 2_001)


def test_the_checker_passes_sound_evidence() -> None:
    assert list(check(EVERYTHING)) == []


def test_a_deleted_session_is_judged_by_its_readers_alone() -> None:
    assert list(check(replace(EVERYTHING, log=None))) == []


def test_a_turn_that_was_cut_short_may_lack_words() -> None:
    cut = _log(START, ZERO, ("assistant_message", {"content": "0 "}), ABORTED)
    evidence = Evidence(SESSION, cut, journal=JOURNAL)
    assert list(check(evidence)) == []
    assert [turn.status for turn in turns_of(cut)] == ["aborted"]


def test_a_turn_that_never_began_to_speak_may_end_in_more_ways() -> None:
    lost = Evidence(SESSION, _log(START, ABORTED), endings=("completed",), unstarted=("aborted",), journal={})
    assert list(check(lost)) == []
    assert [violation.invariant for violation in check(replace(lost, journal=JOURNAL))] == ["I4"]


@pytest.mark.parametrize(
    ("invariant", "planted"),
    [
        pytest.param(
            "I1", {"records": [Record(SESSION, seen=[Seen("evt_a_1", "other", 0)])]}, id="other bytes"
        ),
        pytest.param("I1", {"records": [_seen([*SOUND, b"8"], *range(1, 9))]}, id="one that is not stored"),
        pytest.param(
            "I1",
            {"journal": {"turn_1": Said([*WORDS, "2"], has_ended=True, over_at=0)}},
            id="a word was said and lost",
        ),
        pytest.param("I1", {"log": _log(START, ZERO, MESSAGE, ABORTED)}, id="a message of other words"),
        pytest.param("I2", {"records": [_seen(SOUND, 1, 2, 2, 3)]}, id="a reader saw one twice"),
        pytest.param("I3", {"records": [_seen(SOUND, 1, 3)]}, id="a reader missed one"),
        pytest.param("I3", {"records": [_seen(SOUND, 2, 1)]}, id="a reader saw them in another order"),
        pytest.param("I3", {"log": [*SOUND[:3], *SOUND[4:]]}, id="a place is missing in the log"),
        pytest.param(
            "I3",
            {"journal": {"turn_1": Said(WORDS[::-1], has_ended=True, over_at=0)}},
            id="words in another order",
        ),
        pytest.param("I4", {"log": SOUND[:-1]}, id="no ending"),
        pytest.param("I4", {"log": _log(START, END, END)}, id="two endings"),
        pytest.param("I4", {"log": _log(START, END, ZERO)}, id="an event after the ending"),
        pytest.param("I4", {"log": _log(START, START, END)}, id="a start inside of a turn"),
        pytest.param("I4", {"log": STOPPED}, id="an ending that the fault can't cause"),
        pytest.param("I7", {"log": STOPPED, "journal": {"turn_1": LATE}}, id="an agent that went on"),
        pytest.param(
            "I7", {"log": STOPPED, "journal": {"turn_1": replace(LATE, over_at=None)}}, id="an agent for ever"
        ),
        pytest.param(
            "I8", {"told": [_told(turnId="turn_9", status="completed")]}, id="a turn that is not there"
        ),
        pytest.param("I8", {"told": [_told(turnId="turn_1", status="aborted")]}, id="another ending"),
        pytest.param("I8", {"told": [_told(turnId="turn_1", status="removed")]}, id="removed, and it ran"),
        pytest.param(
            "I8",
            {"told": [_told("abort", turnId="turn_1", status="completed", lastEventId="evt_a_6")]},
            id="another last event",
        ),
        pytest.param("I8", {"standing": STANDING | {"lastEventId": "evt_a_6"}}, id="another standing"),
        pytest.param("I8", {"standing": STANDING | {"status": {"isProcessing": True}}}, id="still running"),
        pytest.param(
            "I9", {"records": [Record(SESSION, seen=[Seen("evt_b_1", "", 0)])]}, id="another's event"
        ),
        pytest.param("I9", {"log": [_line(1, "session_start", "b")]}, id="another's event in the log"),
        pytest.param("I10", {"told": [_told(http=500, error="oh")]}, id="a 500"),
        pytest.param("I10", {"records": [Record(SESSION, trouble=["500 oh"])]}, id="a 500 for a reader"),
    ],
)
def test_the_checker_finds(invariant: str, planted: dict[str, Any]) -> None:
    found = {violation.invariant for violation in check(replace(EVERYTHING, **planted))}
    assert invariant in found
