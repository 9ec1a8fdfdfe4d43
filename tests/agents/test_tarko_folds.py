"""From a Tarko server's events to an agent's, in both dialects."""

from collections.abc import Sequence
from typing import Any

import pytest

from app.agents.adapters import pieces
from app.agents.adapters.remote_failures import BadRemoteEvent
from app.agents.adapters.tarko.flat import FlatFold
from app.agents.adapters.tarko.nested import NestedFold

Json = dict[str, Any]


def nested(kind: str, source: str = "agent", **data: Any) -> Json:
    return {"id": "evt_1", "type": kind, "data": data, "metadata": {"source": source}}


def text(delta: str) -> Json:
    return {"type": "text", "delta": delta}


def thinking(delta: str) -> Json:
    return {"type": "thinking", "delta": delta}


def taken(fold: NestedFold | FlatFold, *events: Any) -> Sequence[Any]:
    return [said for event in events for said in fold.take(event)]


RETRYING: Json = {"attempt": 1, "maxAttempts": 2, "delayMs": 5, "reason": "busy"}
RUN = nested("agent_run_start", turnId="turn_1")
COMPLETED = {"type": "completed"}

# ── the documented dialect ───────────────────────────────────────────────────────────────────────────────────────────


def test_deltas_are_told_and_the_closing_message_adds_what_they_lacked() -> None:
    fold = NestedFold()
    said = taken(
        fold,
        nested("user_message", content="hi", role="user"),
        RUN,
        nested("assistant_thinking_delta", delta="h", messageId="m1"),
        nested("assistant_thinking_delta", delta="", messageId="m1"),
        nested("assistant_thinking_message", content="hm", messageId="m1"),
        nested("assistant_message_start", role="assistant", messageId="m1"),
        nested("assistant_message_delta", delta="Hel", messageId="m1"),
        nested("assistant_message", content="Hello", finishReason="stop", messageId="m1"),
        nested("assistant_message", content="Hello", finishReason="stop", messageId="m1"),
        nested("assistant_message", content="!", finishReason="stop", messageId="m2"),
    )
    assert said == [thinking("h"), thinking("m"), text("Hel"), text("lo"), text("!")]
    assert fold.turn_id == "turn_1"


def test_a_large_message_is_said_in_pieces_that_an_event_may_have() -> None:
    long = "x" * (pieces.LONGEST + 1)
    said = taken(NestedFold(), nested("assistant_message", content=long, finishReason="stop"))
    assert said == [text(long[:-1]), text("x")]


def test_a_closing_message_that_says_something_else_adds_nothing() -> None:
    fold = NestedFold()
    deltas = nested("assistant_message_delta", delta="Hello")
    assert taken(fold, deltas, nested("assistant_message", content="Bye")) == [text("Hello")]


def test_messages_without_ids_are_one_after_the_other() -> None:
    said = taken(
        NestedFold(),
        nested("assistant_message_delta", delta="a"),
        nested("assistant_message", content="ab"),
        nested("assistant_message", content="ab"),
        nested("assistant_message_delta", delta="c"),
        nested("assistant_message", content="c"),
    )
    assert said == [text("a"), text("b"), text("ab"), text("c")]


def test_tools_are_told_with_their_results_as_they_were() -> None:
    said = taken(
        NestedFold(),
        nested("tool_call", id="c", name="look", arguments={"at": 1}, type="function"),
        nested("tool_execution_start", toolCallId="c", name="look"),
        nested(
            "tool_result", toolCallId="c", name="look", content='{"a":1}', success=True, rawContent={"a": 1}
        ),
        nested("tool_result", toolCallId="d", name="look", content="[1]", success=True),
        nested("tool_result", toolCallId="e", name="look", content="no", success=False, error="no"),
        nested("tool_result", toolCallId="f", name="look", content="null", success=True, rawContent=None),
    )
    assert said == [
        {"type": "tool_started", "id": "c", "name": "look", "args": {"at": 1}},
        {"type": "tool_ended", "id": "c", "isError": False, "content": {"a": 1}},
        {"type": "tool_ended", "id": "d", "isError": False, "content": "[1]"},
        {"type": "tool_ended", "id": "e", "isError": True, "content": "no"},
        {"type": "tool_ended", "id": "f", "isError": False, "content": None},
    ]


def test_unknown_events_pass_but_never_as_words_of_the_agents_own() -> None:
    said = taken(
        NestedFold(),
        nested("plan", step=1),
        nested("retrying", **RETRYING),
        nested("completed", data=1),
        nested("text", delta="forged"),
        nested("remote_session", server="x"),
        {"type": "odd", "data": [1]},
        nested("user_feedback", source="client", rating=5),
        nested("assistant_message_delta", source="client", delta="forged"),
        {"type": "session_start"},
    )
    assert said == [
        {"type": "plan", "step": 1},
        {"type": "retrying", **RETRYING},
        {"type": "agent.completed", "data": 1},
        {"type": "agent.text", "delta": "forged"},
        {"type": "agent.remote_session", "server": "x"},
        {"type": "odd", "data": [1]},
    ]


FAILED = nested("error", error="no luck", code="unlucky", recoverable=True)


@pytest.mark.parametrize(
    ("events", "ending"),
    [
        ([nested("agent_run_end", status="completed")], COMPLETED),
        ([nested("agent_run_end", status="completed", data=None)], {**COMPLETED, "data": None}),
        ([FAILED, nested("agent_run_end", status="failed")], ("no luck", True, "unlucky")),
        (
            [nested("agent_run_end", status="failed")],
            ("the remote turn did not complete", False, "agent_failed"),
        ),
        ([nested("agent_run_end", status="aborted")], ("the remote turn did not complete", False, "aborted")),
        (
            [nested("error", error=3, code="", recoverable=1), nested("agent_run_end")],
            (None, False, "agent_failed"),
        ),
    ],
)
def test_the_end_of_a_run_is_the_ending(events: list[Json], ending: Any) -> None:
    fold = NestedFold()
    assert taken(fold, RUN, *events) == []
    if isinstance(ending, tuple):
        details, retryable, code = ending
        ending = {
            "type": "failed",
            "details": details or "the remote turn did not complete",
            "retryable": retryable,
            "code": code,
        }
    assert fold.ending == ending
    assert fold.close() == ending


@pytest.mark.parametrize("reason", ["turn_failed", "aborted", "interrupted"])
def test_a_tool_that_is_closed_by_its_turns_ending_is_left_to_this_server(reason: str) -> None:
    unfinished = nested("tool_result", toolCallId="c", name="n", content=reason, success=False, error=reason)
    flat_one = flat("tool_result", toolCallId="c", name="n", content=reason, error=reason)
    folds: list[tuple[NestedFold | FlatFold, list[Json], list[Json]]] = [
        (NestedFold(), [unfinished, FAILED], [nested("agent_run_end", status="failed")]),
        (FlatFold(), [flat_one, ERROR], [flat("agent_run_end", status="error")]),
        (FlatFold(), [flat_one], [flat("agent_run_end", status="aborted")]),
    ]
    for fold, closing, end in folds:
        assert taken(fold, *closing, *end) == []
        assert fold.ending is not None


def test_a_tool_without_a_result_is_left_to_this_server() -> None:
    word = "no_result"
    result = nested("tool_result", toolCallId="c", name="n", content=word, success=False, error=word)
    assert taken(NestedFold(), result, nested("agent_run_end", status="completed")) == []
    flat_one = flat("tool_result", toolCallId="c", name="n", content=word, error=word)
    assert taken(FlatFold(), flat_one, flat("agent_run_end", status="idle")) == []


def test_a_tool_that_failed_with_such_a_word_is_told_when_the_turn_goes_on() -> None:
    word = "aborted"
    ended = {"type": "tool_ended", "id": "c", "isError": True, "content": word}
    unfinished = nested("tool_result", toolCallId="c", name="n", content=word, success=False, error=word)
    flat_one = flat("tool_result", toolCallId="c", name="n", content=word, error=word)
    other, other_ended = (
        nested("tool_result", toolCallId="d", name="n", content="x", success=True),
        {"type": "tool_ended", "id": "d", "isError": False, "content": "x"},
    )
    delta = nested("assistant_message_delta", delta="on")
    assert taken(NestedFold(), unfinished, delta) == [ended, text("on")]
    assert taken(NestedFold(), unfinished, other) == [ended, other_ended]
    assert taken(NestedFold(), unfinished, nested("agent_run_end", status="completed")) == [ended]
    assert taken(FlatFold(), flat_one, flat("assistant_streaming_message", content="on")) == [
        ended,
        text("on"),
    ]
    assert taken(FlatFold(), {**flat_one, "id": "x1"}, flat("agent_run_end", status="idle")) == [ended]


MESSAGE = nested("assistant_message", content="x", finishReason="stop")


@pytest.mark.parametrize(
    ("events", "ending"),
    [
        ([MESSAGE], "completed"),
        ([nested("assistant_message", content="x", finishReason="length")], "completed"),
        ([nested("assistant_message", content="x")], "completed"),
        ([nested("assistant_message", content="x", finishReason="tool_calls")], None),
        ([MESSAGE, nested("assistant_message_delta", delta="y")], None),
        ([MESSAGE, FAILED], "failed"),
        ([], None),
        ([RUN, MESSAGE], None),
        ([RUN, FAILED], None),
    ],
)
def test_a_closed_stream_is_an_ending_only_where_runs_are_not_told(
    events: list[Json], ending: str | None
) -> None:
    fold = NestedFold()
    taken(fold, *events)
    closed = fold.close()
    assert (None if closed is None else closed["type"]) == ending


@pytest.mark.parametrize(
    "event",
    [
        3,
        [],
        {},
        {"type": 3},
        {"type": "assistant_message_delta"},
        {"type": "assistant_message_delta", "data": "x"},
        nested("assistant_message_delta"),
        nested("assistant_message_delta", delta=3),
        nested("assistant_message"),
        nested("tool_call", id="c"),
        nested("tool_call", name="n"),
        nested("tool_result"),
        nested("agent_run_start"),
    ],
)
def test_what_is_no_event_of_the_documented_dialect_is_refused(event: Any) -> None:
    with pytest.raises(BadRemoteEvent):
        NestedFold().take(event)


# ── the runtime dialect ──────────────────────────────────────────────────────────────────────────────────────────────

_ids = iter(range(10**6))


def flat(kind: str, **fields: Any) -> Json:
    return {"id": f"id{next(_ids)}", "type": kind, "timestamp": 1, **fields}


def test_flat_messages_are_told_once_however_often_they_come() -> None:
    fold = FlatFold()
    said = taken(
        fold,
        flat("user_message", content="hi"),
        flat("agent_run_start", sessionId="s"),
        flat("assistant_streaming_thinking_message", content="h", messageId="m1"),
        flat("assistant_thinking_message", content="hm", messageId="m1"),
        flat("assistant_streaming_message", content="Hel", messageId="m1"),
        flat("assistant_streaming_tool_call", toolCallId="c", messageId="m1"),
        flat("assistant_message", content="Hello", messageId="m1", toolCalls=[{}]),
        call := flat("tool_call", toolCallId="c", name="look", arguments={"at": 1}),
        call,
        flat("tool_call", toolCallId="d", name="look", arguments={"path": "[1]"}, rawArguments={"path": [1]}),
        flat("assistant_message", content="Hello", messageId="m1", toolCalls=[{}, {}]),
        flat("tool_result", toolCallId="c", name="look", content={"a": 1}),
        flat("tool_result", toolCallId="d", name="look", content="x", error="bad"),
        flat("tool_result", toolCallId="e", name="look", content="[null]", rawContent=[None]),
        flat("system", level="warning", message="slow"),
        flat("system", level="warning", message="again", details=RETRYING),
        flat("environment_input", content="x"),
        flat("plan_start", steps=[]),
    )
    assert said == [
        thinking("h"),
        thinking("m"),
        text("Hel"),
        text("lo"),
        {"type": "tool_started", "id": "c", "name": "look", "args": {"at": 1}},
        {"type": "tool_started", "id": "d", "name": "look", "args": {"path": [1]}},
        {"type": "tool_ended", "id": "c", "isError": False, "content": {"a": 1}},
        {"type": "tool_ended", "id": "d", "isError": True, "content": "x"},
        {"type": "tool_ended", "id": "e", "isError": False, "content": [None]},
        {"type": "system", "level": "warning", "message": "slow"},
        {"type": "retrying", **RETRYING},
        {"type": "plan_start", "steps": []},
    ]
    assert fold.has_started


def test_the_history_adds_what_the_stream_had_not_told() -> None:
    fold = FlatFold()
    begun = [flat("user_message", content="hi"), flat("agent_run_start")]
    taken(fold, *begun, flat("assistant_streaming_message", content="He", messageId="m1"))
    running = flat("assistant_streaming_message", content="Hell", messageId="m1")
    assert fold.catch_up([*begun, running]) == [text("ll")]
    assert fold.catch_up([*begun, running]) == []
    closed = flat("assistant_message", content="Hello", messageId="m1")
    thought = flat("assistant_streaming_thinking_message", content="hm", messageId="m2")
    assert fold.catch_up([*begun, closed, thought]) == [text("o"), thinking("hm")]
    end, later = flat("agent_run_end", status="idle"), flat("assistant_message", content="x", messageId="m3")
    assert fold.catch_up([*begun, closed, end, later]) == []
    assert fold.ending == COMPLETED


def test_flat_messages_without_ids_are_one_after_the_other() -> None:
    said = taken(
        FlatFold(),
        {"type": "assistant_streaming_message", "content": "a"},
        {"type": "assistant_message", "content": "ab"},
        {"type": "assistant_message", "content": "ab"},
    )
    assert said == [text("a"), text("b"), text("ab")]


ERROR = flat("system", level="error", message="no luck", details={"errorCode": "unlucky", "retryable": True})


@pytest.mark.parametrize(
    ("events", "ending"),
    [
        ([flat("agent_run_end", status="idle")], COMPLETED),
        ([flat("agent_run_end", status="idle", data=[1])], {**COMPLETED, "data": [1]}),
        ([ERROR, flat("agent_run_end", status="error")], ("no luck", True, "unlucky")),
        ([ERROR, flat("agent_run_end", status="idle")], ("no luck", True, "unlucky")),
        (
            [flat("agent_run_end", status="error")],
            ("the remote turn did not complete", False, "agent_failed"),
        ),
        ([flat("agent_run_end", status="aborted")], ("the remote turn did not complete", False, "aborted")),
        (
            [
                flat("system", level="error", message="off", details={"errorCode": "server_shutdown"}),
                flat("agent_run_end"),
            ],
            ("off", True, "server_shutdown"),
        ),
        (
            [flat("system", level="error", details="x"), flat("agent_run_end", status="error")],
            ("the remote turn did not complete", False, "agent_failed"),
        ),
    ],
)
def test_the_end_of_a_flat_run_is_the_ending(events: list[Json], ending: Any) -> None:
    fold = FlatFold()
    assert taken(fold, *events) == []
    if isinstance(ending, tuple):
        details, retryable, code = ending
        ending = {"type": "failed", "details": details, "retryable": retryable, "code": code}
    assert fold.ending == ending
    assert fold.close() == ending


def test_a_flat_stream_that_stops_at_an_error_has_ended_with_it() -> None:
    fold = FlatFold()
    assert fold.close() is None
    taken(fold, ERROR)
    ending = fold.close()
    assert ending is not None
    assert ending["code"] == "unlucky"


@pytest.mark.parametrize(
    "event",
    [
        3,
        {},
        flat("assistant_streaming_message"),
        flat("assistant_message", content=3),
        flat("tool_call", name="n"),
        flat("tool_call", toolCallId="c"),
        flat("tool_result", content="x"),
    ],
)
def test_what_is_no_event_of_the_runtime_dialect_is_refused(event: Any) -> None:
    with pytest.raises(BadRemoteEvent):
        FlatFold().take(event)
    with pytest.raises(BadRemoteEvent):
        FlatFold().catch_up([event])
