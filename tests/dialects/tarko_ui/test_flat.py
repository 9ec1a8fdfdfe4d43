"""The flat spelling, event by event, and as a whole against the documented one."""

import json
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from app.agents.contract import AgentEvent
from app.dialects.tarko_ui.answer import TurnAnswer
from app.dialects.tarko_ui.flat import SILENT, SPOKEN, frames, refused, spell
from app.dialects.tarko_ui.snapshot import Snapshot
from app.events.canonical import MAX_DEPTH, decode, encode
from app.events.ending import Ending
from app.events.envelope import Envelope, Placed, place
from app.events.vocabulary import SHAPES
from app.log.session_log import Page
from tests.agents.test_translate import ENDINGS, EVENTS, FAILED, IDS, Script, ended, started, text, thinking
from tests.dialects.tarko_ui.folding import fold_documented, fold_flat, history

SESSION = "sess_" + "a" * 26
PREFIX = "evt_" + "a" * 26 + "_"
TURN = "turn_x"


def envelope(
    event_type: str, data: Any, *, at: int = 7, source: str = "agent", turn: str | None = TURN, **marks: Any
) -> Envelope:
    """An event of the log."""
    metadata = encode({"source": source, "version": "1.0", **marks})
    return Envelope(SESSION, at, at, turn, event_type, 1000 + at, encode(data), metadata)


def flat(event_type: str, data: Any, **marks: Any) -> list[dict[str, Any]]:
    """What it is spelled as."""
    return [json.loads(each) for each in spell(envelope(event_type, data, **marks))]


def turn(events: list[AgentEvent], ending: Ending, used: list[str] | None = None) -> list[Envelope]:
    """All log events of a turn."""
    script = Script()
    script.translation.know_tool_ids(used or [])
    script._keep(script.translation.begin("Hello"))
    for event in events:
        script.clock.now += 10
        script.take(event)
    script.end(ending)
    return place(SESSION, TURN, script.drafts, Placed(0, 0, 0, 0))


def without_deltas(events: list[Envelope]) -> list[Envelope]:
    return [event for event in events if event.ordinal is not None]


# ── one event ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_every_event_of_the_vocabulary_is_spoken_or_silent() -> None:
    assert set(SHAPES) <= set(SPOKEN) | SILENT
    assert not set(SPOKEN) & SILENT
    for event_type in SILENT:
        assert spell(envelope(event_type, {"sessionId": SESSION})) == []


def test_what_the_user_said_is_told_as_it_came() -> None:
    parts = [
        {"type": "text", "text": "hi"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,"}},
    ]
    assert flat("user_message", {"content": parts, "role": "user"}) == [
        {"id": f"{PREFIX}7", "type": "user_message", "timestamp": 1007, "content": parts, "role": "user"}
    ]


def test_a_run_begins_in_its_session() -> None:
    assert flat("agent_run_start", {"turnId": TURN, "agentName": "demo"}) == [
        {
            "id": f"{PREFIX}7",
            "type": "agent_run_start",
            "timestamp": 1007,
            "sessionId": SESSION,
            "runOptions": {},
            "agentName": "demo",
        }
    ]


@pytest.mark.parametrize(
    ("delta", "streaming"),
    [
        ("assistant_message_delta", "assistant_streaming_message"),
        ("assistant_thinking_delta", "assistant_streaming_thinking_message"),
    ],
)
@pytest.mark.parametrize("said", ["Once", "", 'a "quote" \\ \n\u2028', "\ud800", "é🙂"])
def test_a_delta_is_content_under_its_message(delta: str, streaming: str, said: str) -> None:
    assert flat(delta, {"delta": said, "messageId": "msg_1"}) == [
        {"id": f"{PREFIX}7", "type": streaming, "timestamp": 1007, "content": said, "messageId": "msg_1"}
    ]


def test_a_message_tells_how_long_its_pieces_took() -> None:
    data = {"content": "Hi", "role": "assistant", "finishReason": "stop", "messageId": "msg_1"}
    [told] = flat("assistant_message", data, ttftMs=5, ttltMs=50)
    assert told == {
        "id": f"{PREFIX}7",
        "type": "assistant_message",
        "timestamp": 1007,
        **data,
        "ttftMs": 5,
        "ttltMs": 50,
    }
    [untimed] = flat("assistant_message", data)
    assert untimed.keys() == told.keys() - {"ttftMs", "ttltMs"}


@pytest.mark.parametrize(("finish", "is_told"), [("stop", True), ("error", False), ("abort", False)])
def test_an_empty_message_is_no_bubble_unless_it_is_the_answer(finish: str, is_told: bool) -> None:
    data = {"content": "", "role": "assistant", "finishReason": finish, "messageId": "msg_1"}
    assert len(flat("assistant_message", data)) == is_told


def test_thinking_closes_under_its_messages_id() -> None:
    [told] = flat("assistant_thinking_message", {"content": "hm", "durationMs": 9, "messageId": "msg_1"})
    assert told == {
        "id": f"{PREFIX}7",
        "type": "assistant_thinking_message",
        "timestamp": 1007,
        "content": "hm",
        "isComplete": True,
        "thinkingDurationMs": 9,
        "messageId": "msg_1",
    }


def test_a_tool_call_is_a_card_and_then_a_call() -> None:
    arguments = {"path": "a<b>", "n": 1, "big": 10**30}
    data = {"id": "t", "name": "write", "arguments": arguments, "type": "function", "messageId": "msg_1"}
    card, call = flat("tool_call", data)
    assert (card["id"], card["type"], card["content"]) == (f"{PREFIX}7~1", "assistant_message", "")
    assert (card["finishReason"], card["messageId"]) == ("tool_calls", "msg_1_t")
    [shown] = card["toolCalls"]
    assert (shown["id"], shown["type"], shown["function"]["name"]) == ("t", "function", "write")
    assert isinstance(shown["function"]["arguments"], str)
    assert json.loads(shown["function"]["arguments"]) == arguments
    assert call == {
        "id": f"{PREFIX}7",
        "type": "tool_call",
        "timestamp": 1007,
        "toolCallId": "t",
        "name": "write",
        "arguments": arguments,
        "startTime": 1007,
        "tool": {"name": "write", "description": "", "schema": {}},
    }


def test_a_result_has_the_value_that_the_tool_gave() -> None:
    data = {"toolCallId": "t", "name": "n", "content": "[1]", "success": True, "elapsedMs": 3}
    [told] = flat("tool_result", data | {"rawContent": [1]})
    assert (told["toolCallId"], told["name"], told["content"], told["elapsedMs"]) == ("t", "n", [1], 3)
    assert "error" not in told
    [as_text] = flat("tool_result", data)
    assert as_text["content"] == "[1]"
    [nothing] = flat("tool_result", data | {"rawContent": None})
    assert nothing["content"] is None
    [failed] = flat("tool_result", data | {"success": False, "error": "no"})
    assert failed["error"] == "no"


@pytest.mark.parametrize(
    ("code", "level"), [("unlucky", "error"), ("aborted", "info"), ("server_restarted", "error")]
)
def test_an_error_is_a_notice(code: str, level: str) -> None:
    [told] = flat("error", {"error": "No luck.", "code": code, "recoverable": True})
    assert (told["type"], told["level"], told["message"]) == ("system", level, "No luck.")
    assert told["details"] == {"errorCode": code, "retryable": True}


@pytest.mark.parametrize(
    ("status", "spoken"),
    [("completed", "idle"), ("failed", "error"), ("interrupted", "error"), ("aborted", "aborted")],
)
def test_a_run_ends(status: str, spoken: str) -> None:
    [end] = flat("agent_run_end", {"turnId": TURN, "status": status, "elapsedMs": 4}, iterations=3)
    assert end == {
        "id": f"{PREFIX}7",
        "type": "agent_run_end",
        "timestamp": 1007,
        "sessionId": SESSION,
        "iterations": 3,
        "elapsedMs": 4,
        "status": spoken,
    }


def test_a_run_from_before_iterations_were_counted_had_one_and_keeps_its_result() -> None:
    [end] = flat("agent_run_end", {"turnId": TURN, "status": "completed", "elapsedMs": 4, "data": None})
    assert (end["iterations"], end["data"]) == (1, None)


def test_a_retry_is_a_warning() -> None:
    [told] = flat("retrying", {"attempt": 1, "maxAttempts": 3, "delayMs": 10, "reason": "offline", "more": 1})
    assert (told["type"], told["level"]) == ("system", "warning")
    assert told["message"] == "Attempt 1 of 3 failed (offline); the next one begins in 10 ms."
    assert told["details"] == {"attempt": 1, "maxAttempts": 3, "delayMs": 10, "reason": "offline"}


@pytest.mark.parametrize("data", [{"attempt": "one"}, [1], None, {}])
def test_a_retry_in_other_words_is_passed_on(data: Any) -> None:
    assert [told["type"] for told in flat("retrying", data)] == ["retrying"]


def test_an_event_of_others_is_passed_on_with_its_fields_beside_its_type() -> None:
    data = {"step": 1, "id": "mine", "type": "mine", "timestamp": 0, "content": [None]}
    assert flat("plan_update", data) == [
        {"id": f"{PREFIX}7", "type": "plan_update", "timestamp": 1007, "step": 1, "content": [None]}
    ]
    assert flat("note", [1], source="client", turn=None)[0]["data"] == [1]
    assert flat("note", {}) == [{"id": f"{PREFIX}7", "type": "note", "timestamp": 1007}]


@pytest.mark.parametrize(
    "event_type",
    ["assistant_streaming_message", "assistant_streaming_thinking_message", "system", "session_created"],
)
def test_an_event_of_others_cannot_pass_for_one_of_this_dialect(event_type: str) -> None:
    assert flat(event_type, {"content": "x"})[0]["type"] == f"custom.{event_type}"


def test_an_event_as_deep_as_can_be_is_spelled() -> None:
    deep: Any = 1
    for _ in range(MAX_DEPTH - 2):
        deep = [deep]
    for event_type, data in (
        ("note", {"x": deep}),
        ("retrying", {"attempt": 1, "maxAttempts": 2, "delayMs": 3, "reason": "r", "x": deep}),
        ("agent_run_end", {"turnId": TURN, "status": "completed", "elapsedMs": 0, "data": deep}),
        ("tool_call", {"id": "t", "name": "n", "arguments": {"x": deep[0]}, "messageId": "m"}),
        (
            "tool_result",
            {
                "toolCallId": "t",
                "name": "n",
                "content": "",
                "success": True,
                "elapsedMs": 0,
                "rawContent": deep,
            },
        ),
    ):
        assert spell(envelope(event_type, data))


def test_a_refusal_is_a_notice_and_an_end() -> None:
    notice, end = (
        json.loads(line[6:]) for line in refused(SESSION, 4, "session_busy", "Busy.").split(b"\n\n")[:2]
    )
    assert (notice["type"], notice["level"], notice["message"]) == ("system", "error", "Busy.")
    assert (end["type"], end["status"]) == ("agent_run_end", "error")
    assert (notice["id"], end["id"]) == (f"{PREFIX}4~1", f"{PREFIX}4~2")


# ── a whole turn ─────────────────────────────────────────────────────────────────────────────────────────────────────

SAYINGS: list[AgentEvent] = [
    thinking("hm"),
    text("I look"),
    started("a", args={"x": 1}),
    started("b", args=5),
    ended("b", {"y": [1]}),
    text("Found"),
]


@given(EVENTS, st.sampled_from(ENDINGS), st.lists(IDS))
def test_frames_are_those_of_the_events_one_after_the_other(
    events: list[AgentEvent], ending: Ending, used: list[str]
) -> None:
    log = turn(events, ending, used)
    sent = frames(log)
    assert sent == b"".join(b"data: %b\n\n" % each for event in log for each in spell(event))
    assert all(block.startswith(b"data: {") and b"\n" not in block for block in sent.split(b"\n\n")[:-1])


@given(EVENTS, st.sampled_from(ENDINGS), st.lists(IDS))
def test_folding_the_flat_events_gives_what_the_documented_ones_give(
    events: list[AgentEvent], ending: Ending, used: list[str]
) -> None:
    """Live, after a reload with deltas, and after they are gone."""
    log = turn(events, ending, used)
    expected = fold_documented(log)
    live = [each for event in log for each in spell(event)]
    for told in (live, history(log), history(without_deltas(log))):
        ui = fold_flat(told)
        assert ui.conversation() == expected
        assert not ui.is_processing
        assert json.loads(told[-1])["type"] == "agent_run_end"
    ids = [json.loads(each)["id"] for each in live]
    assert len(set(ids)) == len(ids)


@given(EVENTS, st.data())
def test_a_reload_in_the_middle_of_a_turn_shows_what_was_shown_before(
    events: list[AgentEvent], chosen: st.DataObject
) -> None:
    log = turn(events, Ending.completed())
    so_far = log[: chosen.draw(st.integers(0, len(log)))]
    live = fold_flat([each for event in so_far for each in spell(event)])
    reloaded = fold_flat(history(so_far))
    key = "messageId"
    assert sorted(reloaded.bubbles, key=lambda b: str(b[key])) == sorted(
        live.bubbles, key=lambda b: str(b[key])
    )
    assert reloaded.is_processing == live.is_processing


def test_every_tool_is_closed_however_the_turn_ends() -> None:
    for ending in ENDINGS:
        ui = fold_flat([each for event in turn(SAYINGS, ending) for each in spell(event)])
        assert all(len(tool) == 4 for tool in ui.conversation().tools.values())


def test_what_is_said_in_the_moment_is_one_streaming_event() -> None:
    snapshot = Snapshot()
    log = turn([thinking("a"), thinking("b"), text("One"), text(" two")], FAILED)
    assert [json.loads(each)["type"] for each in snapshot.take(log[:-3])] == [
        "user_message", "agent_run_start", "assistant_thinking_message",
    ]  # fmt: skip
    [rest] = map(json.loads, snapshot.rest())
    assert (rest["type"], rest["content"]) == ("assistant_streaming_message", "One two")


# ── a blocking query ─────────────────────────────────────────────────────────────────────────────────────────────────


def answer(log: list[Envelope]) -> dict[str, Any]:
    found = TurnAnswer(TURN)
    assert not found.take(
        Page(0, 1, [envelope("assistant_message", {"content": "of another"}, turn="turn_y")])
    )
    assert found.take(Page(1, len(log), log))
    result: dict[str, Any] = json.loads(found.result())
    return result


def test_the_answer_is_the_last_message() -> None:
    result = answer(turn(SAYINGS, Ending.completed()))
    assert (result["content"], result["finishReason"]) == ("Found", "stop")
    assert answer(turn([], Ending.completed()))["content"] == ""
    partial = answer(turn([text("Part")], FAILED))
    assert (partial["content"], partial["finishReason"]) == ("Part", "error")


def test_the_answer_of_a_turn_that_failed_before_it_spoke_says_why() -> None:
    result = answer(turn([], FAILED))
    assert (result["content"], result["finishReason"]) == ("no luck", "error")


def test_the_log_is_decoded_as_it_was_encoded() -> None:
    """The splices of this dialect rest on it: `content` and `delta` come first."""
    for event in turn(SAYINGS, FAILED):
        if event.type in ("assistant_message", "user_message"):
            assert next(iter(decode(event.data))) == "content"
        elif event.type in ("assistant_message_delta", "assistant_thinking_delta"):
            assert next(iter(decode(event.data))) == "delta"
