"""Translation: what each agent event becomes in the log, and what closes a turn, whatever the agent did."""

import math
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings
from pydantic import ConfigDict, TypeAdapter

from app.agents.contract import AgentEvent
from app.agents.outcome import BadEvent
from app.agents.translate import Translation
from app.events.canonical import MAX_DEPTH, decode
from app.events.ending import Ending
from app.events.envelope import Draft, Placed, place
from app.events.vocabulary import RESERVED, SHAPES

TURN = "turn_x"
FAILED = Ending.failed("no luck", code="luck", is_recoverable=True)
ENDINGS = [Ending.completed(), Ending.completed({"a": 1}), FAILED, Ending.aborted(), Ending.interrupted()]


class Clock:
    """Tells the time it was set to."""

    def __init__(self) -> None:
        self.now = 1000

    def __call__(self) -> int:
        return self.now


def text(delta: str) -> AgentEvent:
    return {"type": "text", "delta": delta}


def thinking(delta: str) -> AgentEvent:
    return {"type": "thinking", "delta": delta}


def started(tool: str, name: str = "search", args: Any = None) -> AgentEvent:
    return {"type": "tool_started", "id": tool, "name": name, "args": args}


def ended(tool: str, content: Any = "ok", *, is_error: bool = False) -> AgentEvent:
    return {"type": "tool_ended", "id": tool, "isError": is_error, "content": content}


class Script:
    """A turn that is translated step by step, with a clock that the test moves."""

    def __init__(self, **options: Any) -> None:
        self.clock = Clock()
        self.translation = Translation(TURN, "demo", clock=self.clock, **options)
        self.drafts: list[Draft] = []

    def take(self, *events: AgentEvent) -> list[tuple[str, dict[str, Any]]]:
        """The events that these become, as (type, data)."""
        drafts: list[Draft] = []
        for event in events:
            if self.translation.needs_tool_ids(event):
                self.translation.know_tool_ids([])
            drafts += self.translation.take(event)
        return self._keep(drafts)

    def end(self, ending: Ending) -> list[tuple[str, dict[str, Any]]]:
        return self._keep(self.translation.end(ending))

    def _keep(self, drafts: list[Draft]) -> list[tuple[str, dict[str, Any]]]:
        self.drafts += drafts
        return [(draft.type, decode(draft.data)) for draft in drafts]


def types(events: list[tuple[str, dict[str, Any]]]) -> list[str]:
    return [event_type for event_type, _ in events]


@pytest.fixture
def script() -> Script:
    return Script()


def message(n: int) -> str:
    return f"msg_x_{n}"


# ── the turn's frame ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_turn_opens_with_what_the_user_said_and_the_start_of_the_run() -> None:
    translation = Translation(TURN, "demo", trace_id="ab" * 16)
    content = [{"type": "text", "text": "hi", "more": None}]
    user, run = translation.begin(content)
    assert (user.type, decode(user.data)) == ("user_message", {"content": content, "role": "user"})
    assert (run.type, decode(run.data)) == ("agent_run_start", {"turnId": TURN, "agentName": "demo"})
    assert decode(user.metadata) == {"source": "user", "version": "1.0", "traceId": "ab" * 16}
    assert decode(run.metadata)["source"] == "server"


def test_a_completed_turn_ends_with_its_message_and_its_run(script: Script) -> None:
    script.take(text("Hel"), text("lo"))
    script.clock.now += 70
    assert script.end(Ending.completed()) == [
        (
            "assistant_message",
            {"content": "Hello", "role": "assistant", "finishReason": "stop", "messageId": message(1)},
        ),
        ("agent_run_end", {"turnId": TURN, "status": "completed", "elapsedMs": 70}),
    ]


def marks(script: Script, event_type: str) -> list[dict[str, Any]]:
    return [decode(draft.metadata) for draft in script.drafts if draft.type == event_type]


def test_a_message_tells_when_its_first_and_its_last_piece_came(script: Script) -> None:
    """In milliseconds since the agent was last told something: the query, or a tool's result."""
    script.clock.now += 30
    script.take(thinking("hm"))
    script.clock.now += 20
    script.take(text("a"))
    script.clock.now += 5
    script.take(started("t"))
    script.clock.now += 100
    script.take(ended("t"))
    script.clock.now += 7
    script.take(text("b"))
    script.clock.now += 1
    script.end(Ending.completed())
    timings = [(m["ttftMs"], m["ttltMs"]) for m in marks(script, "assistant_message")]
    assert timings == [(30, 55), (7, 8)]
    assert marks(script, "agent_run_end")[0]["iterations"] == 2


def test_an_empty_message_has_no_timing_and_its_run_one_iteration(script: Script) -> None:
    script.end(Ending.aborted())
    assert marks(script, "assistant_message") == [{"source": "agent", "version": "1.0"}]
    assert marks(script, "agent_run_end")[0]["iterations"] == 1


@pytest.mark.parametrize("data", [None, {"a": 1}, "text", 0])
def test_a_result_is_in_the_end_of_the_run(script: Script, data: Any) -> None:
    assert script.end(Ending.completed(data))[-1][1]["data"] == data


def test_a_turn_without_text_has_an_empty_message(script: Script) -> None:
    assert script.end(Ending.completed())[:2] == [
        ("assistant_message_start", {"role": "assistant", "messageId": message(1)}),
        (
            "assistant_message",
            {"content": "", "role": "assistant", "finishReason": "stop", "messageId": message(1)},
        ),
    ]


@pytest.mark.parametrize(
    ("ending", "finish"), [(FAILED, "error"), (Ending.aborted(), "abort"), (Ending.interrupted(), "error")]
)
def test_a_turn_that_did_not_complete_keeps_its_text_and_says_why(
    script: Script, ending: Ending, finish: str
) -> None:
    script.take(text("part"))
    closing = script.end(ending)
    assert types(closing) == ["assistant_message", "error", "agent_run_end"]
    assert (closing[0][1]["content"], closing[0][1]["finishReason"]) == ("part", finish)
    assert closing[1][1] == {
        "error": ending.message,
        "code": ending.code,
        "recoverable": ending.is_recoverable,
    }
    assert closing[2][1]["status"] == ending.status


def test_time_that_runs_backwards_is_no_time(script: Script) -> None:
    script.take(thinking("hm"), started("a"))
    script.clock.now -= 500
    data = dict(script.take(thinking("hm"), ended("a")) + script.end(FAILED))
    assert data["tool_result"]["elapsedMs"] == 0
    assert data["agent_run_end"]["elapsedMs"] == 0
    assert data["assistant_thinking_message"]["durationMs"] == 0


# ── text and thinking ────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_first_text_of_a_segment_opens_its_message(script: Script) -> None:
    assert script.take(text("a"), text("\u2028b")) == [
        ("assistant_message_start", {"role": "assistant", "messageId": message(1)}),
        ("assistant_message_delta", {"delta": "a", "messageId": message(1)}),
        ("assistant_message_delta", {"delta": "\u2028b", "messageId": message(1)}),
    ]
    assert [draft.is_lasting for draft in script.drafts] == [True, False, False]


def test_empty_deltas_say_nothing(script: Script) -> None:
    assert script.take(text(""), thinking("")) == []


def test_thinking_before_text_belongs_to_the_same_segment_and_is_closed_by_it(script: Script) -> None:
    script.take(thinking("h"))
    script.clock.now += 30
    assert script.take(thinking("m"), text("so")) == [
        ("assistant_thinking_delta", {"delta": "m", "messageId": message(1)}),
        ("assistant_thinking_message", {"content": "hm", "durationMs": 30, "messageId": message(1)}),
        ("assistant_message_start", {"role": "assistant", "messageId": message(1)}),
        ("assistant_message_delta", {"delta": "so", "messageId": message(1)}),
    ]


def test_thinking_between_texts_does_not_split_the_message(script: Script) -> None:
    events = script.take(text("a"), thinking("hm"), text("b")) + script.end(Ending.completed())
    assert types(events) == [
        "assistant_message_start", "assistant_message_delta", "assistant_thinking_delta",
        "assistant_thinking_message", "assistant_message_delta", "assistant_message", "agent_run_end",
    ]  # fmt: skip
    assert events[-2][1]["content"] == "ab"
    assert {data["messageId"] for _, data in events[:-1]} == {message(1)}


def test_thinking_after_text_is_closed_with_the_turn(script: Script) -> None:
    script.take(text("a"), thinking("hm"))
    assert types(script.end(FAILED)) == [
        "assistant_thinking_message", "assistant_message", "error", "agent_run_end"
    ]  # fmt: skip


# ── tools ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_tool_closes_the_open_text_and_the_next_text_is_a_new_segment(script: Script) -> None:
    script.clock.now = 2000
    events = script.take(text("look"), started("a", "search", {"q": "x"}))
    assert events[2:] == [
        (
            "assistant_message",
            {"content": "look", "role": "assistant", "finishReason": "tool_calls", "messageId": message(1)},
        ),
        (
            "tool_call",
            {
                "id": "a",
                "name": "search",
                "arguments": {"q": "x"},
                "type": "function",
                "messageId": message(1),
            },
        ),
        ("tool_execution_start", {"toolCallId": "a", "name": "search"}),
    ]
    script.clock.now = 2500
    assert script.take(ended("a", "found"), text("it")) == [
        (
            "tool_result",
            {"toolCallId": "a", "name": "search", "content": "found", "success": True, "elapsedMs": 500},
        ),
        ("assistant_message_start", {"role": "assistant", "messageId": message(2)}),
        ("assistant_message_delta", {"delta": "it", "messageId": message(2)}),
    ]


def test_a_tool_closes_the_open_thinking(script: Script) -> None:
    assert types(script.take(thinking("hm"), started("a"))) == [
        "assistant_thinking_delta", "assistant_thinking_message", "tool_call", "tool_execution_start"
    ]  # fmt: skip


def test_parallel_tools_share_a_segment_and_later_ones_have_their_own(script: Script) -> None:
    events = script.take(
        started("a"), started("b"), ended("a"), started("c"), ended("b"), ended("c"), started("d"), ended("d")
    )
    calls = {data["id"]: data["messageId"] for event_type, data in events if event_type == "tool_call"}
    assert calls == {"a": message(1), "b": message(1), "c": message(1), "d": message(2)}
    assert script.end(Ending.completed())[0][1]["messageId"] == message(3)


def test_text_while_tools_run_is_a_segment_that_the_next_tool_belongs_to(script: Script) -> None:
    events = script.take(started("a"), text("meanwhile"), started("b"), ended("a"), ended("b"))
    calls = {data["id"]: data["messageId"] for event_type, data in events if event_type == "tool_call"}
    assert calls == {"a": message(1), "b": message(2)}


@pytest.mark.parametrize(
    ("args", "arguments"),
    [
        (None, {}),
        ({}, {}),
        ({"a": [1]}, {"a": [1]}),
        ("x", {"value": "x"}),
        ([1, 2], {"value": [1, 2]}),
        (0, {"value": 0}),
    ],
)
def test_arguments_are_an_object(script: Script, args: Any, arguments: dict[str, Any]) -> None:
    assert script.take(started("a", args=args))[0][1]["arguments"] == arguments


def test_a_tool_that_says_nothing_of_its_arguments_has_none(script: Script) -> None:
    assert script.take({"type": "tool_started", "id": "a", "name": "n"})[0][1]["arguments"] == {}


@pytest.mark.parametrize(
    ("content", "is_error", "result"),
    [
        ("text", False, {"content": "text", "success": True}),
        ("bad", True, {"content": "bad", "success": False, "error": "bad"}),
        ("", True, {"content": "", "success": False, "error": "error"}),
        (None, False, {"content": "null", "success": True, "rawContent": None}),
        ({"a": 1}, False, {"content": '{"a":1}', "success": True, "rawContent": {"a": 1}}),
        ([1], True, {"content": "[1]", "success": False, "error": "[1]", "rawContent": [1]}),
    ],
)
def test_a_result_is_text_and_keeps_what_it_was(
    script: Script, content: Any, is_error: bool, result: dict[str, Any]
) -> None:
    script.take(started("a"))
    [(_, data)] = script.take(ended("a", content, is_error=is_error))
    assert data == {"toolCallId": "a", "name": "search", "elapsedMs": 0} | result


def test_a_result_without_a_start_gets_one(script: Script) -> None:
    events = script.take({"type": "tool_ended", "id": "a", "content": "x"})
    assert types(events) == ["tool_call", "tool_execution_start", "tool_result"]
    assert {data["name"] for _, data in events} == {"unknown"}


def test_a_tool_id_that_the_session_used_before_is_made_unique_and_keeps_its_own(script: Script) -> None:
    assert script.translation.needs_tool_ids(started("a"))
    script.translation.know_tool_ids(["a", "a~2", "b"])
    assert not script.translation.needs_tool_ids(started("a"))
    events = script.take(started("a"), ended("a"), started("c"))
    assert [data.get("id") or data.get("toolCallId") for _, data in events] == ["a~3", "a~3", "a~3", "c", "c"]
    assert [decode(draft.metadata).get("toolCallId") for draft in script.drafts] == ["a"] * 3 + [None] * 2


def test_a_tool_id_that_is_used_again_in_the_turn_is_made_unique(script: Script) -> None:
    events = script.take(started("a"), ended("a"), started("a"), ended("a"), ended("a"))
    calls = [data["id"] for event_type, data in events if event_type == "tool_call"]
    results = [data["toolCallId"] for event_type, data in events if event_type == "tool_result"]
    assert calls == results == ["a", "a~2", "a~3"]


def test_a_tool_id_that_is_used_again_while_it_runs_closes_the_last_one_first(script: Script) -> None:
    script.take(started("a", "one"), started("a", "two"))
    results = script.take(ended("a"), ended("a"))
    assert [(data["toolCallId"], data["name"]) for _, data in results] == [("a~2", "two"), ("a", "one")]


def test_tool_ids_are_asked_for_once_and_only_for_tools(script: Script) -> None:
    assert not script.translation.needs_tool_ids(text("a"))
    assert script.translation.needs_tool_ids(ended("a"))
    script.translation.know_tool_ids(["a"])
    script.translation.know_tool_ids(["b"])
    assert [data["id"] for event_type, data in script.take(started("a"), started("b")) if event_type == "tool_call"] == [
        "a~2", "b~2"
    ]  # fmt: skip


def test_tool_ids_that_nobody_told_are_none(script: Script) -> None:
    assert decode(script.translation.take(started("a"))[0].data)["id"] == "a"


@pytest.mark.parametrize(
    ("ending", "reason"),
    [
        (Ending.completed(), "no_result"),
        (FAILED, "turn_failed"),
        (Ending.aborted(), "aborted"),
        (Ending.interrupted(), "interrupted"),
    ],
)
def test_tools_that_still_run_are_closed_by_the_ending(script: Script, ending: Ending, reason: str) -> None:
    script.take(started("a"), started("a"), started("b"))
    results = [data for event_type, data in script.end(ending) if event_type == "tool_result"]
    assert [(data["toolCallId"], data["error"], data["success"]) for data in results] == [
        ("a", reason, False),
        ("a~2", reason, False),
        ("b", reason, False),
    ]


# ── everything else ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_retrying_and_unknown_events_pass_with_their_fields(script: Script) -> None:
    retrying = {"attempt": 1, "maxAttempts": 3, "delayMs": 100, "reason": "busy"}
    assert script.take(
        {"type": "retrying", **retrying}, {"type": "plan", "steps": [None]}, {"type": "größe"}
    ) == [
        ("retrying", retrying),
        ("plan", {"steps": [None]}),
        ("größe", {}),
    ]
    assert all(draft.is_lasting for draft in script.drafts)


@pytest.mark.parametrize("event_type", sorted(RESERVED))
def test_an_unknown_event_cannot_pretend_to_be_ours(script: Script, event_type: str) -> None:
    assert types(script.take({"type": event_type, "x": 1})) == [f"agent.{event_type}"]


@pytest.mark.parametrize(
    "event",
    [
        {"type": "text"},
        {"type": "text", "delta": None},
        {"type": "text", "delta": 1},
        {"type": "thinking", "delta": ["x"]},
        {"type": "tool_started", "name": "n"},
        {"type": "tool_started", "id": "a"},
        {"type": "tool_started", "id": 1, "name": "n"},
        {"type": "tool_ended", "content": ""},
        {"type": "tool_ended", "id": "a", "isError": "no"},
        {"type": "tool_ended", "id": "a", "isError": 1},
        {"type": ""},
        {"type": "a\nb"},
        {"type": "x" * 201},
        {"type": "plan", "x": math.nan},
        {"type": "plan", 1: "x"},
        {"type": "plan", "x": Ellipsis},
        {"type": "tool_started", "id": "a", "name": "n", "args": {"x": math.inf}},
        {"type": "tool_ended", "id": "a", "content": b"bytes"},
        {"type": "tool_ended", "id": "a", "content": {1: 2}},
    ],
    ids=str,
)
def test_a_bad_event_is_refused_and_changes_nothing(script: Script, event: AgentEvent) -> None:
    script.take(text("a"), started("a"), thinking("hm"))
    with pytest.raises(BadEvent) as refused:
        script.take(event)
    assert refused.value.code == "bad_event"
    assert len(str(refused.value)) < 400
    assert types(script.end(FAILED)) == [
        "assistant_thinking_message", "assistant_message_start", "assistant_message", "tool_result", "error",
        "agent_run_end",
    ]  # fmt: skip


def deep(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize("levels", range(MAX_DEPTH - 3, MAX_DEPTH + 2))
def test_nesting_is_refused_before_anything_is_kept(script: Script, levels: int) -> None:
    """What is wrapped on its way into the log may not be too deep only then."""
    script.take(started("a"))
    for event in (
        ended("a", deep(levels)),
        started("b", args=deep(levels)),
        {"type": "plan", "x": deep(levels)},
    ):
        try:
            script.take(event)
        except BadEvent:
            assert levels > MAX_DEPTH - 3
    data: Any = deep(levels)
    try:
        script.translation.check_result(data)
    except BadEvent:
        assert levels > MAX_DEPTH - 2
        data = None
    results = [event for event in script.end(Ending.completed(data)) if event[0] == "tool_result"]
    assert len(results) + len([draft for draft in script.drafts if draft.type == "tool_result"]) >= 1


def test_an_event_that_is_too_large_is_refused_and_the_text_kept() -> None:
    script = Script(max_event=100)
    script.take(text("kept"), started("b"))
    for event in (
        text("x" * 100),
        thinking("\u2028" * 20),
        started("a", args="x" * 100),
        ended("a", "x" * 100),
        ended("b", ["\\" * 10] * 2, is_error=True),
        {"type": "plan", "x": "x" * 100},
    ):
        with pytest.raises(BadEvent) as refused:
            script.take(event)
        assert refused.value.code == "event_too_large"
    with pytest.raises(BadEvent) as refused:
        script.translation.check_result("x" * 100)
    assert refused.value.code == "event_too_large"
    script.translation.check_result("x" * 80)
    assert types(script.end(FAILED)) == [
        "assistant_message_start", "assistant_message", "tool_result", "error", "agent_run_end"
    ]  # fmt: skip
    assert decode(script.drafts[2].data)["content"] == "kept"


def test_the_name_that_a_result_repeats_counts_too() -> None:
    script = Script(max_event=120)
    script.take(started("a", "n" * 50))
    with pytest.raises(BadEvent) as refused:
        script.take(ended("a", "x" * 20))
    assert refused.value.code == "event_too_large"
    assert script.take(ended("a", "x"))[0][1]["success"]


def test_a_closing_message_may_be_larger_than_an_event() -> None:
    script = Script(max_event=20, max_turn=40)
    script.take(text("x" * 15), text("y" * 15))
    assert dict(script.end(Ending.completed()))["assistant_message"]["content"] == "x" * 15 + "y" * 15


def test_a_turn_that_says_too_much_is_refused_and_what_it_said_is_kept() -> None:
    script = Script(max_turn=26)
    script.take(*(text("x") for _ in range(18)), thinking("y" * 8))
    with pytest.raises(BadEvent) as refused:
        script.take(text("z"))
    assert refused.value.code == "turn_too_large"
    closing = dict(script.end(FAILED))
    assert closing["assistant_message"]["content"] == "x" * 18
    assert closing["assistant_thinking_message"]["content"] == "y" * 8


def test_a_result_that_is_not_json_is_refused(script: Script) -> None:
    with pytest.raises(BadEvent, match="completed"):
        script.translation.check_result({"x": math.nan})
    script.translation.check_result(None)


def test_the_trace_is_on_every_event() -> None:
    script = Script(trace_id="ab" * 16)
    script._keep(script.translation.begin("hi"))
    script.take(text("a"), thinking("b"), started("a"), started("a"), ended("a"), {"type": "plan"})
    script.end(FAILED)
    assert {decode(draft.metadata)["traceId"] for draft in script.drafts} == {"ab" * 16}


# ── any script ───────────────────────────────────────────────────────────────────────────────────────────────────────

IDS = st.sampled_from(["a", "b", "a~2"])
SCALARS = st.none() | st.integers() | st.text(max_size=5)
ARGUMENTS = st.dictionaries(st.text(max_size=2) | st.just("path"), SCALARS)
CONTENTS = SCALARS | st.lists(SCALARS, max_size=2)
EVENTS = st.lists(
    st.one_of(
        st.builds(text, st.text(max_size=4)),
        st.builds(thinking, st.text(max_size=4)),
        st.builds(started, IDS, st.text(max_size=4), SCALARS | ARGUMENTS),
        st.builds(
            lambda tool, content, bad: ended(tool, content, is_error=bad), IDS, CONTENTS, st.booleans()
        ),
        st.builds(
            lambda n: {"type": n, "x": 1}, st.sampled_from(["plan", "retrying", "tool_call", "agent_run_end"])
        ),
    ),
    max_size=14,
)
ADAPTERS: dict[str, TypeAdapter[Any]] = {
    name: TypeAdapter(type(shape.__name__, (shape,), {"__pydantic_config__": ConfigDict(extra="forbid", strict=True)}))
    for name, shape in SHAPES.items()
}  # fmt: skip


def run(events: list[AgentEvent], ending: Ending, used: list[str]) -> Script:
    script = Script(trace_id="ab" * 16)
    script.translation.know_tool_ids(used)
    script._keep(script.translation.begin("hi"))
    for event in events:
        script.clock.now += 10
        script.take(event)
    script.clock.now += 10
    script.end(ending)
    return script


@given(EVENTS, st.sampled_from(ENDINGS), st.lists(IDS))
def test_any_turn_ends_once_and_last_and_keeps_all_that_was_said(
    events: list[AgentEvent], ending: Ending, used: list[str]
) -> None:
    drafts = [(draft.type, decode(draft.data)) for draft in run(events, ending, used).drafts]
    assert types(drafts).count("agent_run_end") == 1
    assert drafts[-1][0] == "agent_run_end"
    for kind, delta, whole in (
        ("text", "assistant_message_delta", "assistant_message"),
        ("thinking", "assistant_thinking_delta", "assistant_thinking_message"),
    ):
        said = "".join(event["delta"] for event in events if event["type"] == kind)
        assert said == "".join(data["delta"] for event_type, data in drafts if event_type == delta)
        assert said == "".join(data["content"] for event_type, data in drafts if event_type == whole)
    assert types(drafts).count("assistant_message") == types(drafts).count("assistant_message_start") >= 1
    calls = [data["id"] for event_type, data in drafts if event_type == "tool_call"]
    results = [data["toolCallId"] for event_type, data in drafts if event_type == "tool_result"]
    assert sorted(calls) == sorted(results)
    assert len(set(calls) | set(used)) == len(calls) + len(set(used))


@given(EVENTS, st.sampled_from(ENDINGS), st.lists(IDS))
def test_every_event_of_ours_has_its_documented_shape(
    events: list[AgentEvent], ending: Ending, used: list[str]
) -> None:
    for draft in run(events, ending, used).drafts:
        if draft.type in SHAPES:
            ADAPTERS[draft.type].validate_python(decode(draft.data))


@given(EVENTS, st.sampled_from(ENDINGS))
def test_messages_do_not_mix(events: list[AgentEvent], ending: Ending) -> None:
    """A message's events carry its id, and a closed message gets no more text."""
    closed: set[str] = set()
    is_open = ""
    for draft in run(events, ending, []).drafts:
        data = decode(draft.data)
        match draft.type:
            case "assistant_message_start":
                assert not is_open
                assert data["messageId"] not in closed
                is_open = data["messageId"]
            case "assistant_message_delta":
                assert data["messageId"] == is_open
            case "assistant_message":
                assert data["messageId"] == is_open
                closed.add(is_open)
                is_open = ""
            case "assistant_thinking_delta" | "assistant_thinking_message":
                assert data["messageId"] not in closed
    assert not is_open


@settings(max_examples=300)
@given(EVENTS, st.data(), st.lists(IDS))
def test_a_turn_recalled_from_its_events_closes_as_it_would_have(
    events: list[AgentEvent], chosen: st.DataObject, used: list[str]
) -> None:
    cut = chosen.draw(st.integers(0, len(events)))
    script = Script(trace_id="ab" * 16)
    script.translation.know_tool_ids(used)
    script._keep(script.translation.begin("hi"))
    for event in events[:cut]:
        script.clock.now += 10
        script.take(event)
    stored = place("s", TURN, script.drafts, Placed(0, 0, 0, 0))
    recalled = Translation(TURN, "", trace_id="ab" * 16, clock=script.clock)
    recalled.recall(stored)
    script.clock.now += 10
    assert recalled.end(Ending.interrupted()) == script.translation.end(Ending.interrupted())


def test_a_recalled_turn_counts_its_segments_on(script: Script) -> None:
    script._keep(script.translation.begin("hi"))
    script.take(text("a"), started("a"), started("b"), ended("a"), ended("b"))
    recalled = Translation(TURN, "", clock=script.clock)
    recalled.recall(place("s", TURN, script.drafts, Placed(0, 0, 0, 0)))
    assert [decode(draft.data).get("messageId") for draft in recalled.end(FAILED)][:2] == [message(2)] * 2


def question(asked: Any) -> AgentEvent:
    return {"type": "input_required", "text": asked, "extra": 1}


def test_a_question_is_passed_on_and_the_last_one_is_in_the_ending(script: Script) -> None:
    assert script.take(question("Which city?")) == [("input_required", {"text": "Which city?", "extra": 1})]
    script.take(question("Which country?"))
    ending = Ending.completed({"a": 1}, question=script.translation.question)
    end = decode(script.translation.end(ending)[-1].data)
    assert (end["status"], end["code"], end["question"]) == ("completed", "input_required", "Which country?")


@pytest.mark.parametrize("asked", [None, 5, "", " \n"])
def test_a_question_has_a_text(script: Script, asked: Any) -> None:
    with pytest.raises(BadEvent):
        script.take(question(asked))
    assert script.translation.question == ""


def test_every_event_of_a_turn_that_continues_another_says_so() -> None:
    script = Script(continues="turn_first")
    drafts = script.translation.begin("hi", {"a2a": {"messageId": "m"}})
    for event in (text("a"), thinking("b"), started("c"), started("c"), ended("c")):
        drafts += script.translation.take(event)
    drafts += script.translation.end(FAILED)
    assert {decode(draft.metadata)["continues"] for draft in drafts} == {"turn_first"}
    assert decode(drafts[0].metadata)["a2a"] == {"messageId": "m"}
