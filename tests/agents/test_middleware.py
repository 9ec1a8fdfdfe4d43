"""What each middleware does besides relaying; that it relays is the conformance kit's affair."""

import asyncio
import contextlib
import logging
import sys
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import aclosing
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import regex
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry import trace
from opentelemetry.trace import NonRecordingSpan, SpanContext, Status, StatusCode, TraceFlags

from app.agents.contract import Agent, AgentEvent, Prompt, Scope
from app.agents.demo import DemoAgent
from app.agents.driver import Bounds, Drive
from app.agents.loading import BareAgent
from app.agents.middleware.budget import Budget
from app.agents.middleware.composing import BUILT_IN, middleware, wrapped
from app.agents.middleware.deadline import Deadline
from app.agents.middleware.driven import Driven
from app.agents.middleware.enforce import Enforce
from app.agents.middleware.logging import Logging
from app.agents.middleware.rate_limit import RateLimit
from app.agents.middleware.redact import Redact
from app.agents.middleware.relay import relay
from app.agents.middleware.retry import Retry
from app.agents.middleware.tracing import Tracing
from app.agents.options import options_of
from app.agents.outcome import Cancelled, Outcome, as_event
from app.agents.shapes import wrong_field
from app.conformance.gallery import misbehaving
from app.conformance.gallery.sound import Handmade
from app.errors import ConfigurationError
from tests.agents.driving import COMPLETED, PATIENCE, nothing_left, text

Events = AsyncIterator[AgentEvent]

SHORT = Bounds(grace=0.05, recancel=0.02, recancels=2, close=0.05, tail=0.05)
RETRYABLE: AgentEvent = {"type": "failed", "details": "overloaded", "retryable": True}
SCOPE: Scope = {"session": "s"}
TOOL: AgentEvent = {"type": "tool_started", "id": "t", "name": "pay", "args": {}}


def saying(*events: Any) -> Agent:
    async def say(_: Scope, __: Prompt) -> Events:
        for event in events:
            yield event

    return BareAgent(say)


def in_turn(*scripts: Iterable[AgentEvent]) -> Agent:
    """An agent that says another of these in each turn."""
    left = [list(script) for script in scripts]

    async def say(_: Scope, __: Prompt) -> Events:
        for event in left.pop(0):
            yield event

    return BareAgent(say)


class Waiting:
    """It says one thing, waits, and knows whether it was cancelled and has cleaned up."""

    def __init__(self, *events: AgentEvent) -> None:
        self.events = events
        self.is_waiting = asyncio.Event()
        self.is_closed = False

    async def invoke(self, scope: Scope, prompt: Prompt, /) -> Events:
        try:
            for event in self.events:
                yield event
            self.is_waiting.set()
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            self.is_closed = True


async def said(agent: Agent, **scope: Any) -> list[AgentEvent]:
    async with asyncio.timeout(PATIENCE):
        found: Any = {**SCOPE, **scope}
        return [event async for event in agent.invoke(found, {"text": "t"})]


def failed(code: str, *, retryable: bool = False) -> dict[str, Any]:
    return {"type": "failed", "code": code, "retryable": retryable}


def ends_with(events: list[AgentEvent], expected: dict[str, Any]) -> bool:
    return {key: events[-1][key] for key in expected} == expected


# ── relay ────────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_coroutine_that_gives_a_stream_is_borne_with() -> None:
    async def late(scope: Scope, prompt: Prompt) -> Any:
        return saying(text("a"), COMPLETED).invoke(scope, prompt)

    agent: Any = BareAgent(late)  # type: ignore[arg-type]
    assert [event async for event in relay(agent, SCOPE, {"text": "t"})] == [text("a"), COMPLETED]


async def test_an_agent_that_can_not_be_closed_and_one_that_fails_to_are_borne_with(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def raises(_: Scope, __: Prompt) -> Events:
        try:
            yield text("a")
        finally:
            raise ValueError("in finally")

    async def exits(_: Scope, __: Prompt) -> Events:
        try:
            yield text("a")
        finally:
            raise SystemExit("in finally")

    for agent in (BareAgent(raises), BareAgent(exits), BareAgent(lambda _, __: Handmade())):
        events = relay(agent, SCOPE, {"text": "t"})
        assert await anext(events) == text("a")
        await events.aclose()
    assert "did not close: ValueError: in finally" in caplog.text
    assert "did not close: SystemExit: in finally" in caplog.text


@pytest.mark.parametrize(
    ("agent", "code"),
    [
        (misbehaving.returns_none, "agent_protocol_error"),
        (misbehaving.gives_no_object, "agent_protocol_error"),
        (misbehaving.fails_untyped, "agent_protocol_error"),
        (misbehaving.has_no_terminal, "agent_protocol_error"),
        (misbehaving.raises_in_the_call, "agent_exception"),
        (misbehaving.raises, "agent_exception"),
        (misbehaving.leaks_a_cancel, "agent_exception"),
    ],
)
async def test_what_an_agent_gets_wrong_is_a_failure_with_a_code_for_it(agent: Any, code: str) -> None:
    events = [event async for event in relay(BareAgent(agent), SCOPE, {"text": "t"})]
    assert ends_with(events, failed(code))


async def test_a_cancel_during_the_call_stops_the_reader() -> None:
    is_called = asyncio.Event()

    async def never(_: Scope, __: Prompt) -> Any:
        is_called.set()
        await asyncio.Event().wait()

    agent: Any = BareAgent(never)  # type: ignore[arg-type]
    reading = asyncio.ensure_future(anext(relay(agent, SCOPE, {"text": "t"})))
    await is_called.wait()
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading


async def test_a_task_that_was_cancelled_long_ago_may_read_an_agent() -> None:
    leaky: Any = BareAgent(misbehaving.leaks_a_cancel)

    async def read() -> list[list[AgentEvent]]:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        agents = (saying(text("a"), COMPLETED), leaky)
        return [[event async for event in relay(agent, SCOPE, {"text": "t"})] for agent in agents]

    reading = asyncio.ensure_future(read())
    await asyncio.sleep(0)
    reading.cancel()
    sound, leaked = await reading
    assert sound == [text("a"), COMPLETED]
    assert ends_with(leaked, failed("agent_exception"))


async def test_code_after_the_last_event_runs_where_the_agent_expects_it() -> None:
    ends: list[str] = []

    async def agent(_: Scope, __: Prompt) -> Events:
        try:
            yield COMPLETED
            for _step in range(3):
                await asyncio.sleep(0)
            ends.append("as it expects")
        except (GeneratorExit, asyncio.CancelledError):
            ends.append("by a close")
            raise

    for layer in LAYERS.values():
        await said(layer(BareAgent(agent)))
    assert set(ends) == {"as it expects"}


# ── enforce ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("event", "details"),
    [
        ({"type": "odd", "x": float("nan")}, "'odd' event: nan is not a JSON number"),
        ({"type": "x" * 1_000, "x": float("nan")}, f"'{'x' * 80}' event: nan"),
        ({"type": "text"}, "`text` needs `delta`"),
        (
            {"type": "tool_ended", "id": "t", "isError": 0, "content": 1},
            "`tool_ended.isError` must be true or false",
        ),
        ({"type": "completed", "data": {1, 2}}, "'completed' event: set is not a JSON value"),
    ],
)
async def test_what_is_no_event_is_a_failure(event: AgentEvent, details: str) -> None:
    told: list[str] = []
    enforced = Enforce(saying(event), on_violation=told.append)
    events = await said(enforced)
    assert ends_with(events, failed("bad_event"))
    assert events[-1]["details"].startswith(details)
    assert told == [events[-1]["details"]]
    assert enforced.violations == 1


async def test_results_that_are_json_and_failures_of_the_agents_own_pass() -> None:
    enforced = Enforce(saying({"type": "completed", "data": [None]}))
    assert await said(enforced) == [{"type": "completed", "data": [None]}]
    enforced = Enforce(saying(RETRYABLE))
    assert await said(enforced) == [RETRYABLE]
    assert enforced.violations == 0


@pytest.mark.parametrize(
    "exhibit", [misbehaving.has_no_terminal, misbehaving.returns_none, misbehaving.raises]
)
async def test_a_broken_contract_is_counted_and_told(exhibit: Any) -> None:
    told: list[str] = []
    enforced = Enforce(BareAgent(exhibit), on_violation=told.append)
    events = await said(enforced)
    assert told == [events[-1]["details"]]
    assert enforced.violations == 1


async def test_what_an_agent_does_after_its_end_is_told() -> None:
    told: list[str] = []
    assert await said(Enforce(saying(COMPLETED, text("late")), on_violation=told.append)) == [COMPLETED]
    assert told == ["an event came after the terminal one"]


@pytest.mark.parametrize("layer", [Enforce, partial(Deadline, seconds=3600)])
async def test_a_deaf_agent_is_left_behind_within_the_bounds(layer: Callable[..., Agent]) -> None:
    """It is cancelled as often as they say, which is more often than the driver's own do."""
    release = asyncio.Event()
    cancels = 0

    async def deaf(_: Scope, __: Prompt) -> Events:
        nonlocal cancels
        try:
            yield text("a")
        finally:
            while not release.is_set():
                try:
                    await release.wait()
                except asyncio.CancelledError:
                    cancels += 1

    bounds = Bounds(grace=0.01, recancel=0.01, recancels=5, close=3600)
    events: Any = layer(BareAgent(deaf), bounds=bounds).invoke(SCOPE, {"text": "t"})
    async with asyncio.timeout(PATIENCE), aclosing(events):
        assert await anext(events) == text("a")
    release.set()
    await asyncio.sleep(0)
    assert cancels == 5


# ── driven ───────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_wait_for_an_event_that_was_cut_short_may_begin_again() -> None:
    gate = asyncio.Event()

    async def agent(_: Scope, __: Prompt) -> Events:
        yield text("a")
        await gate.wait()
        yield text("b")

    async with Driven(BareAgent(agent), SCOPE, {"text": "t"}) as turn:
        assert await turn.next() == text("a")
        waiting = asyncio.ensure_future(turn.next())
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.wait({waiting})
        gate.set()
        assert await turn.next() == text("b")


# ── deadline ─────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_an_agent_that_takes_too_long_is_stopped() -> None:
    agent = Waiting(text("a"))
    async with nothing_left():
        events = await said(Deadline(agent, seconds=0.05, bounds=SHORT))
        assert events[0] == text("a")
        assert ends_with(events, failed("deadline_exceeded", retryable=True))
        assert agent.is_closed


async def test_a_deaf_agent_does_not_hold_the_failure_up() -> None:
    release = asyncio.Event()

    async def deaf(_: Scope, __: Prompt) -> Events:
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue
        yield COMPLETED

    events = Deadline(BareAgent(deaf), seconds=0.01, bounds=SHORT).invoke(SCOPE, {"text": "t"})
    async with asyncio.timeout(PATIENCE):
        assert (await anext(events))["code"] == "deadline_exceeded"
        assert [event async for event in events] == []
    release.set()
    await asyncio.sleep(0)


async def test_a_reader_that_came_too_late_is_too_late(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = asyncio.get_running_loop()
    now, later = loop.time, 0.0
    monkeypatch.setattr(loop, "time", lambda: now() + later)
    went_on = False

    async def agent(_: Scope, __: Prompt) -> Events:
        nonlocal went_on
        yield text("a")
        went_on = True
        yield COMPLETED

    events = Deadline(BareAgent(agent), seconds=60).invoke(SCOPE, {"text": "t"})
    assert await anext(events) == text("a")
    later = 61.0
    assert (await anext(events))["code"] == "deadline_exceeded"
    assert [event async for event in events] == []
    assert not went_on


async def test_in_time_is_in_time() -> None:
    assert await said(Deadline(saying(text("a"), COMPLETED), seconds=60)) == [text("a"), COMPLETED]


def test_no_time_at_all_is_no_deadline() -> None:
    with pytest.raises(ValueError, match="more than 0 seconds"):
        Deadline(saying(), seconds=0)


# ── budget ───────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_more_than_the_budget_is_not_said() -> None:
    thinking: AgentEvent = {"type": "thinking", "delta": "1234"}
    within = [thinking, text("1234")]
    assert await said(Budget(saying(*within, COMPLETED), tokens=2)) == [*within, COMPLETED]
    events = await said(Budget(saying(*within, text("5"), COMPLETED), tokens=2))
    assert events[:-1] == within
    assert ends_with(events, failed("budget_exceeded"))
    events = await said(
        Budget(saying(text("a b"), text(" c")), tokens=2, count=lambda text: len(text.split()))
    )
    assert ends_with(events, failed("budget_exceeded"))


async def test_a_delta_that_is_no_text_or_half_a_character_is_no_reason_to_fail() -> None:
    odd: list[AgentEvent] = [{"type": "text", "delta": 7}, {"type": "text"}, text("\ud83d")]
    assert await said(Budget(saying(*odd, COMPLETED), tokens=1)) == [*odd, COMPLETED]


async def test_a_tool_beyond_the_budget_does_not_run() -> None:
    ran: list[int] = []

    async def uses_tools(_: Scope, __: Prompt) -> Events:
        for number in range(5):
            yield {**TOOL, "id": str(number)}
            ran.append(number)
        yield COMPLETED

    events = await said(Budget(BareAgent(uses_tools), tools=2))
    assert [event.get("id") for event in events] == ["0", "1", None]
    assert ends_with(events, failed("budget_exceeded"))
    assert ran == [0, 1]


# ── retry ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def retrying(attempt: int, *, of: int, after: int) -> AgentEvent:
    return {
        "type": "retrying",
        "attempt": attempt,
        "maxAttempts": of,
        "delayMs": after,
        "reason": "overloaded",
    }


async def test_what_failed_before_anything_was_seen_is_tried_again() -> None:
    inner = retrying(1, of=9, after=1)
    agent = in_turn([RETRYABLE], [inner, RETRYABLE], [text("a"), COMPLETED])
    assert await said(Retry(agent, times=2, delay=0.004, chance=lambda: 1.0)) == [
        retrying(1, of=2, after=4),
        inner,
        retrying(2, of=2, after=8),
        text("a"),
        COMPLETED,
    ]


async def test_the_last_failure_is_passed_on() -> None:
    events = await said(Retry(in_turn([RETRYABLE], [RETRYABLE]), times=1, delay=0))
    assert events == [retrying(1, of=1, after=0), RETRYABLE]


async def test_after_a_thought_nothing_is_tried_again() -> None:
    thinking: AgentEvent = {"type": "thinking", "delta": "hm"}
    assert await said(Retry(in_turn([thinking, RETRYABLE]), times=1, delay=0)) == [thinking, RETRYABLE]


async def test_the_pause_grows_no_longer_than_it_may() -> None:
    tries = 1_100
    events = await said(Retry(in_turn(*[[RETRYABLE]] * tries), times=tries - 1, delay=0.0))
    assert events[-1] == RETRYABLE
    assert Retry(saying(), delay=0.5, chance=lambda: 1.0)._pause(tries) == 30.0


EVENTS = st.sampled_from(
    [text("a"), {"type": "thinking", "delta": "h"}, TOOL, {"type": "unheard_of"}, retrying(1, of=1, after=0)]
)


@given(st.lists(st.lists(EVENTS, max_size=3), min_size=1, max_size=4), st.booleans())
def test_nothing_that_was_seen_is_ever_said_again(tries: list[list[AgentEvent]], is_retryable: bool) -> None:
    """Of all tries only the last one had anything to see."""
    failure = {**RETRYABLE, "retryable": is_retryable}
    agent = in_turn(*([*events, failure] for events in tries))
    events = asyncio.run(said(Retry(agent, times=len(tries) - 1, delay=0)))
    visible = [event for event in events[:-1] if event["type"] != "retrying"]
    seen = [[event for event in events if event["type"] != "retrying"] for events in tries]
    expected = next((events for events in seen if events), []) if is_retryable else seen[0]
    assert visible == expected
    assert events[-1] == failure


async def test_a_cancel_during_the_pause_ends_it() -> None:
    events = Retry(in_turn([RETRYABLE]), times=1, delay=3600).invoke(SCOPE, {"text": "t"})
    assert (await anext(events))["type"] == "retrying"
    task = asyncio.ensure_future(anext(events))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


# ── rate limit ───────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_so_many_turns_may_start_in_a_time_for_each_principal() -> None:
    now = 0.0
    limited = RateLimit(saying(COMPLETED), turns=2, seconds=10, clock=lambda: now)

    async def is_admitted(**scope: Any) -> bool:
        events = await said(limited, **scope)
        return events == [COMPLETED] or not ends_with(events, failed("rate_limited", retryable=True))

    assert [await is_admitted(principal="alice") for _ in range(3)] == [True, True, False]
    assert await is_admitted(principal="bob")
    assert [await is_admitted() for _ in range(3)] == [True, True, False]
    now = 4.9
    assert not await is_admitted(principal="alice")
    now = 5.0
    assert [await is_admitted(principal="alice") for _ in range(2)] == [True, False]


async def test_who_comes_just_when_a_turn_is_free_is_not_sent_away_by_a_rounding_error() -> None:
    now = 0.0
    limited = RateLimit(saying(COMPLETED), turns=3, seconds=10, clock=lambda: now)
    for _ in range(3):
        await said(limited)
    (refusal,) = await said(limited)
    assert refusal["details"] == "too many turns; the next may start in 3.3 s"
    now = 10 / 3
    assert await said(limited) == [COMPLETED]


async def test_who_has_waited_for_long_may_start_no_more_at_once() -> None:
    now = 0.0
    limited = RateLimit(saying(COMPLETED), turns=2, seconds=10, clock=lambda: now)
    await said(limited, principal="alice")
    now = 1_000.0
    ends = [(await said(limited, principal="alice"))[-1]["type"] for _ in range(3)]
    assert ends == ["completed", "completed", "failed"]


async def test_whoever_has_not_come_for_long_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr("app.agents.middleware.rate_limit._LOOK_FOR_OLD_ONES", 3)
    limited = RateLimit(saying(COMPLETED), turns=1, seconds=10, clock=lambda: now)
    for who in ("a", "b", "c"):
        await said(limited, principal=who)
        now += 5
    await said(limited, principal="d")
    assert set(limited._due) == {"c", "d"}


@pytest.mark.parametrize(("turns", "seconds"), [(0, 1), (1, 0)])
def test_a_rate_must_admit_something(turns: int, seconds: float) -> None:
    with pytest.raises(ValueError, match="at least 1 turn"):
        RateLimit(saying(), turns=turns, seconds=seconds)


# ── redaction ────────────────────────────────────────────────────────────────────────────────────────────────────────

PATTERNS = ("sk-[a-z0-9]+", r"\b\d{4}-\d{4}\b")


async def redacted(*events: AgentEvent) -> list[AgentEvent]:
    return await said(Redact(saying(*events), *PATTERNS, replacement="***"))


def joined(events: Iterable[AgentEvent], kind: str = "text") -> str:
    return "".join(event["delta"] for event in events if event["type"] == kind)


async def test_only_what_may_be_a_secret_is_held_back() -> None:
    events = await redacted(text("my key is s"), text("k-"), text("abc"), text("1 ok"), COMPLETED)
    assert events == [text("my key is "), text("*** ok"), COMPLETED]


async def test_what_was_held_is_let_go_before_a_tool_and_the_end() -> None:
    events = await redacted(text("a s"), TOOL, {"type": "thinking", "delta": "sk-a"}, COMPLETED)
    assert events == [text("a "), text("s"), TOOL, {"type": "thinking", "delta": "***"}, COMPLETED]


async def test_what_was_held_is_let_go_before_a_failure() -> None:
    assert await redacted(text("a s"), RETRYABLE) == [text("a "), text("s"), RETRYABLE]


async def test_what_was_held_stays_held_over_other_events() -> None:
    odd: AgentEvent = {"type": "unheard_of", "x": "sk-a"}
    thinking: AgentEvent = {"type": "thinking", "delta": "hm"}
    again = retrying(1, of=1, after=0)
    assert await redacted(text("sk-"), odd, thinking, again, text("a"), COMPLETED) == [
        odd,
        thinking,
        again,
        text("***"),
        COMPLETED,
    ]


async def test_a_pattern_sees_what_came_before_a_delta() -> None:
    events = await redacted(
        text("id-"), text("1234-5678"), text(" "), text("x"), text("1234-5678"), COMPLETED
    )
    assert joined(events) == "id-*** x1234-5678"


async def test_strings_of_tools_results_and_failures_are_looked_at_whole() -> None:
    events = await redacted(
        {**TOOL, "args": {"key": ["sk-a", 1, None]}},
        {"type": "tool_ended", "id": "t", "isError": False, "content": "1234-5678"},
        {"type": "retrying", "attempt": 1, "maxAttempts": 1, "delayMs": 1, "reason": "sk-a"},
        {"type": "completed", "data": {"a": ("x",)}},
    )
    assert [event.get("args") or event.get("content") or event.get("reason") for event in events[:3]] == [
        {"key": ["***", 1, None]},
        "***",
        "***",
    ]
    assert events[3] == {"type": "completed", "data": {"a": ("x",)}}
    assert (await redacted({**RETRYABLE, "details": "sk-a"}))[-1]["details"] == "***"


async def test_a_secret_that_never_ends_is_not_held_for_ever() -> None:
    events = await redacted(text("sk-"), *[text("a" * 1000)] * 70, text(" b"), COMPLETED)
    assert joined(events).startswith("***")
    assert joined(events).endswith(" b")
    assert len([event for event in events if event["type"] == "text"]) >= 2


async def test_empty_and_odd_deltas_and_fields_that_are_not_known_pass() -> None:
    odd: AgentEvent = {"type": "text", "delta": 7}
    more: AgentEvent = {"type": "text", "delta": "a", "x": 1}
    assert await redacted(text(""), odd, more, COMPLETED) == [text(""), odd, more, COMPLETED]


@given(st.lists(st.text("s k-ab1204", max_size=8), max_size=8))
def test_however_a_text_is_cut_the_same_is_redacted(deltas: list[str]) -> None:
    events = asyncio.run(redacted(*map(text, deltas), COMPLETED))
    whole = regex.sub("|".join(PATTERNS), "***", "".join(deltas))
    assert joined(events) == whole
    assert events[-1] == COMPLETED


async def test_a_pattern_that_matches_nothing_at_all_between_letters_changes_nothing() -> None:
    events = await said(Redact(saying(text("ab"), text("c"), COMPLETED), "(?<=a)(?=b)"))
    assert joined(events) == "abc"


async def test_keys_and_tuples_have_no_secrets_either() -> None:
    (tool, _) = await redacted({**TOOL, "args": {"sk-a": ("sk-b", {"sk-c": 1}), 7: None}}, COMPLETED)
    assert tool["args"] == {"***": ("***", {"***": 1}), 7: None}


async def test_a_replacement_is_taken_as_it_is() -> None:
    agent = saying(text("abc"), {**TOOL, "args": ["abc"]}, COMPLETED)
    events = await said(Redact(agent, "a(b)c", replacement=r"\1"))
    assert [event.get("delta") or event.get("args") for event in events[:-1]] == [r"\1", [r"\1"]]


async def test_each_pattern_counts_its_own_groups() -> None:
    agent = saying(text("aa"), text("bb xy x ab"), COMPLETED)
    assert joined(await said(Redact(agent, "(x)y", r"(a|b)\1", replacement="*"))) == "** * x ab"


SLOW = "(a|aa)+$"
TRAP = "a" * 60 + "!"


@pytest.mark.parametrize(
    "event", [text(TRAP), {**TOOL, "args": {"x": [TRAP]}}, {"type": "completed", "data": TRAP}]
)
async def test_a_pattern_that_is_not_done_with_a_text_fails_the_turn(event: AgentEvent) -> None:
    agent = Waiting(text("before"), text("!"), event)
    events = await said(Redact(agent, SLOW))
    assert joined(events) == "before!"
    assert ends_with(events, failed("not_redacted"))
    assert agent.is_closed


async def test_what_is_nested_without_an_end_fails_the_turn() -> None:
    endless: dict[str, Any] = {}
    endless["again"] = endless
    assert ends_with(await redacted({**TOOL, "args": endless}, COMPLETED), failed("not_redacted"))


@pytest.mark.parametrize("patterns", [(), ("(",), ("a*",), ("a)(b",)])
def test_what_can_not_be_redacted_is_refused(patterns: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match="pattern"):
        Redact(saying(), *patterns)


# ── logging and tracing ──────────────────────────────────────────────────────────────────────────────────────────────


async def test_turns_are_logged_without_what_was_said(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    ended: AgentEvent = {"type": "tool_ended", "id": "t", "isError": False, "content": "secret"}
    await said(Logging(saying(text("secret"), TOOL, ended, COMPLETED)), turn="turn_1")
    await said(Logging(saying(RETRYABLE), level="debug"))
    events = Logging(saying(text("a"), {**RETRYABLE, "code": "c"})).invoke(SCOPE, {"text": "t"})
    await anext(events)
    await events.aclose()  # type: ignore[attr-defined]
    lines = [record.getMessage().rpartition(",")[0] or record.getMessage() for record in caplog.records]
    assert lines == [
        "turn_1 begins",
        "turn_1 is over: completed, 4 events, 1 tools",
        "s begins",
        "s is over: failed (no code), 1 events, 0 tools",
        "s begins",
        "s is over: stopped by its reader, 1 events, 0 tools",
    ]


async def test_a_turn_is_timed_in_milliseconds(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO)
    clock = SimpleNamespace(monotonic=iter([10.0, 11.5]).__next__)
    monkeypatch.setattr("app.agents.middleware.logging.time", clock)
    await said(Logging(saying(COMPLETED)))
    assert caplog.records[-1].getMessage().endswith(", 1500 ms")


class Spans(trace.Tracer):
    """A tracer that remembers its spans."""

    def __init__(self) -> None:
        self.made: list[Span] = []

    def start_span(
        self, name: str, context: Any = None, *_: Any, attributes: Any = None, **__: Any
    ) -> "Span":
        parent = trace.get_current_span(context).get_span_context()
        span = Span(name, parent, dict(attributes or {}), number=len(self.made) + 1)
        self.made.append(span)
        return span

    def start_as_current_span(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError


class Span(NonRecordingSpan):
    def __init__(self, name: str, parent: SpanContext, attributes: dict[str, Any], *, number: int) -> None:
        super().__init__(
            SpanContext(parent.trace_id or 1, number, is_remote=False, trace_flags=TraceFlags(1))
        )
        self.name, self.parent, self.attributes = name, parent, attributes
        self.status: StatusCode | None = None
        self.ends = 0

    def set_attribute(self, key: str, value: Any) -> None:
        self.attributes[key] = value

    def set_status(self, status: Status | StatusCode, description: str | None = None) -> None:
        assert isinstance(status, StatusCode)
        self.status = status

    def end(self, end_time: int | None = None) -> None:
        self.ends += 1


async def test_turns_and_tools_are_spans_of_their_trace() -> None:
    spans = Spans()
    current: list[Any] = []

    async def agent(_: Scope, __: Prompt) -> Events:
        current.append(trace.get_current_span())
        yield TOOL
        yield {**TOOL, "id": "again"}
        yield {**TOOL, "id": "again", "name": "look"}
        yield {"type": "tool_ended", "id": "t", "isError": True, "content": "broke"}
        yield {"type": "tool_ended", "id": "nobody", "isError": False, "content": ""}
        yield {**RETRYABLE, "code": "c"}

    tracing = Tracing(BareAgent(agent), tracer=spans)
    scope: Scope = {"session": "s", "trace": "0af7651916cd43dd8448eb211c80319c"}
    outside = [trace.get_current_span() async for _ in tracing.invoke(scope, {"text": "t"})]

    turn, pay, again, look = spans.made
    assert current == [turn]
    assert turn not in outside
    assert [span.name for span in spans.made] == [
        "invoke_agent",
        "execute_tool pay",
        "execute_tool pay",
        "execute_tool look",
    ]
    assert turn.parent.trace_id == 0x0AF7651916CD43DD8448EB211C80319C
    assert {tool.parent.span_id for tool in (pay, again, look)} == {turn.get_span_context().span_id}
    assert (turn.status, pay.status, look.status) == (StatusCode.ERROR, StatusCode.ERROR, None)
    assert (turn.attributes["gen_ai.conversation.id"], turn.attributes["error.type"]) == ("s", "c")
    assert [span.ends for span in spans.made] == [1, 1, 1, 1]


async def test_a_tool_without_an_id_is_no_span_and_what_is_no_boolean_no_error() -> None:
    spans = Spans()
    odd = [{**TOOL, "id": ["t"]}, TOOL, {"type": "tool_ended", "id": "t", "isError": "no", "content": ""}]
    assert await said(Tracing(saying(*odd, RETRYABLE), tracer=spans)) == [*odd, RETRYABLE]
    turn, tool = spans.made
    assert (tool.status, tool.ends) == (None, 1)
    assert turn.attributes["error.type"] == "failed"


async def test_without_a_trace_a_turn_begins_one() -> None:
    spans = Spans()
    assert await said(Tracing(saying(text("a"), COMPLETED), tracer=spans)) == [text("a"), COMPLETED]
    (turn,) = spans.made
    assert (turn.parent.is_valid, turn.status, turn.ends) == (False, None, 1)


# ── all of them ──────────────────────────────────────────────────────────────────────────────────────────────────────

LAYERS: dict[str, Callable[[Agent], Agent]] = {
    "enforce": lambda agent: Enforce(agent, bounds=SHORT),
    "deadline": lambda agent: Deadline(agent, seconds=60, bounds=SHORT),
    "budget": lambda agent: Budget(agent, tools=1000),
    "retry": lambda agent: Retry(agent, times=1, delay=0),
    "rate_limit": lambda agent: RateLimit(agent, turns=1000, seconds=1),
    "redact": lambda agent: Redact(agent, "secret-[0-9]+"),
    "logging": Logging,
    "tracing": Tracing,
}
UNKNOWN = st.fixed_dictionaries(
    {"type": st.sampled_from(["x_one", "x_two", "tool_progress", ""])},
    optional={
        key: st.none() | st.integers() | st.text() | st.lists(st.none() | st.text(), max_size=2)
        for key in ("id", "code", "delta", "details", "data", "name")
    },
)


@given(st.permutations(sorted(LAYERS)), st.integers(0, 8), st.lists(UNKNOWN, max_size=5))
def test_in_any_order_unknown_events_pass_unchanged(
    names: list[str], count: int, events: list[AgentEvent]
) -> None:
    async def main() -> None:
        agent = saying(*events, COMPLETED)
        for name in names[:count]:
            agent = LAYERS[name](agent)
        came = await said(agent)
        assert came == [*events, COMPLETED]
        assert [list(event) for event in came] == [list(event) for event in [*events, COMPLETED]]

    asyncio.run(main())


@pytest.mark.parametrize("is_waiting", [True, False])
async def test_a_cancel_goes_through_every_layer(is_waiting: bool) -> None:
    inner = Waiting(text("a"))
    agent: Agent = inner
    for layer in LAYERS.values():
        agent = layer(agent)
    outcomes: list[Outcome] = []
    taken, held = asyncio.Event(), asyncio.Event()

    def take(_: AgentEvent) -> Any:
        taken.set()
        return None if is_waiting else held.wait()

    async with nothing_left(), asyncio.timeout(PATIENCE):
        drive = Drive(agent, SCOPE, {"text": "t"}, take, outcomes.append, bounds=SHORT, name="turn 1")
        drive.start()
        await (inner.is_waiting if is_waiting else taken).wait()
        await drive.cancel()
        assert outcomes == [Cancelled()]
        assert inner.is_closed
        assert not drive.abandoned
        assert drive.violations == []


# ── the settings' words ──────────────────────────────────────────────────────────────────────────────────────────────


async def _fails(_: Scope, __: Prompt) -> Events:
    try:
        yield text("a")
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        raise ValueError("clean-up") from None


async def _says_it_failed(_: Scope, __: Prompt) -> Events:
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        yield RETRYABLE


@pytest.mark.parametrize("agent", [_fails, _says_it_failed])
@pytest.mark.parametrize(
    "words", ["retry(delay=0)", "logging", "budget(tokens=9), redact('x'), retry(delay=0)"]
)
async def test_a_cancel_goes_on_whatever_the_agent_makes_of_it(agent: Any, words: str) -> None:
    heard: list[AgentEvent] = []
    calls = []
    is_called = asyncio.Event()

    async def invoke(scope: Scope, prompt: Prompt) -> Events:
        calls.append(scope)
        is_called.set()
        async with aclosing(agent(scope, prompt)) as events:
            async for event in events:
                yield event

    async def read() -> None:
        async for event in wrapped(BareAgent(invoke), words).invoke(SCOPE, {"text": ""}):
            heard.append(event)  # noqa: PERF401 - what was heard before it ends counts, too

    task = asyncio.create_task(read())
    await is_called.wait()
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(task, 60)
    assert not [event for event in heard if event["type"] != "text"]
    assert len(calls) == 1


async def test_the_first_word_is_the_outermost() -> None:
    agent = wrapped(
        in_turn([RETRYABLE], [RETRYABLE]), "retry(times=1, delay=0), rate_limit(turns=1, seconds=60)"
    )
    assert [event.get("code") for event in await said(agent)] == [None, "rate_limited"]


def test_no_words_are_no_middleware() -> None:
    agent = saying()
    assert wrapped(agent, " ") is agent
    assert [layer.__name__ for layer in middleware("enforce, logging(level='debug'),")] == [
        "enforce",
        "logging",
    ]


def test_every_built_in_one_can_be_named() -> None:
    words = {
        "redact": "redact('a')",
        "rate_limit": "rate_limit(turns=1, seconds=1)",
        "deadline": "deadline(seconds=1)",
    }
    assert hasattr(wrapped(saying(), ", ".join(words.get(name, name) for name in BUILT_IN)), "invoke")


def audit(agent: Agent, *, level: int = 1) -> Agent:
    """A middleware of an operator's own."""
    return Logging(agent) if level == 2 else saying()


def makes_none(agent: Agent) -> None:
    """It forgets to return."""


not_callable = 7


def test_ones_own_is_named_with_its_module() -> None:
    agent = wrapped(saying(), f"{__name__}.audit(level=2)")
    assert isinstance(agent.invoke.__self__, Logging)  # type: ignore[attr-defined]


def test_ones_own_is_found_in_the_current_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "audits_of_an_operator.py").write_text("def audit(agent):\n    return agent\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path])
    agent = saying()
    assert wrapped(agent, "audits_of_an_operator.audit") is agent
    del sys.modules["audits_of_an_operator"]


def test_an_agent_in_middleware_declares_what_it_declares_without() -> None:
    agent = DemoAgent()
    dressed = wrapped(agent, "logging")
    assert dressed is not agent
    assert options_of(dressed) == options_of(agent) != options_of(saying())
    assert not hasattr(dressed, "aclose")


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ("retry(", "can't be read"),
        ("retry\udcff", "can't be read"),
        ("retri", "did you mean 'retry'"),
        ("xyz", "there are budget, deadline"),
        ("deadline(seconds=soon)", "only plain values"),
        ("redact({[]: 1})", "only plain values"),
        ("deadline", "seconds"),
        ("deadline(seconds=-1)", "more than 0"),
        ("logging(level='loud')", "LOUD"),
        ("7", "'7' is not a name"),
        ("no_such.thing", "needs 'no_such'"),
        (f"{__name__}.nothing", "there is no 'nothing'"),
        (f"{__name__}.not_callable", "can't be called"),
        (f"{__name__}.makes_none", "has no `invoke`"),
    ],
)
def test_words_that_are_wrong_are_told(words: str, problem: str) -> None:
    with pytest.raises(ConfigurationError, match="TARKO_MIDDLEWARE") as caught:
        wrapped(saying(), words)
    assert problem in str(caught.value)


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(_: str) -> Any:
        raise ModuleNotFoundError("no", name="opentelemetry")

    monkeypatch.setattr("importlib.import_module", missing)
    with pytest.raises(ConfigurationError, match=r"tarko-server\[tracing\]"):
        middleware("tracing")


# ── small things ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_an_outcome_is_an_event() -> None:
    assert as_event(Cancelled()) == {
        "type": "failed",
        "details": "the agent was stopped",
        "retryable": False,
        "code": "aborted",
    }


@pytest.mark.parametrize(
    ("event", "problem"),
    [
        ({"type": "text", "delta": ""}, None),
        ({"type": "unheard_of"}, None),
        ({"type": "completed"}, None),
        ({"type": "tool_started", "id": "t", "name": "n", "args": None}, None),
        (
            {"type": "failed", "details": "", "retryable": True, "code": None},
            "`failed.code` must be a string",
        ),
        (
            {"type": "retrying", "attempt": True, "maxAttempts": 1, "delayMs": 1, "reason": ""},
            "`retrying.attempt` must be a whole number, not bool",
        ),
    ],
)
def test_known_events_have_their_fields(event: AgentEvent, problem: str | None) -> None:
    found = wrong_field(event)
    assert found is None if problem is None else str(found).startswith(problem)
