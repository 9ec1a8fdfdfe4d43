"""Our middleware passes the kit; what a middleware may get wrong is found."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from functools import partial
from typing import Any

import pytest

from app.agents.contract import Agent, AgentEvent, Prompt, Scope
from app.agents.driver import Bounds
from app.agents.middleware.budget import Budget
from app.agents.middleware.deadline import Deadline
from app.agents.middleware.enforce import Enforce
from app.agents.middleware.logging import Logging
from app.agents.middleware.rate_limit import RateLimit
from app.agents.middleware.redact import Redact
from app.agents.middleware.relay import relay
from app.agents.middleware.retry import Retry
from app.agents.middleware.tracing import Tracing
from app.conformance.agent import examine_agent
from app.conformance.gallery import SOUND
from app.conformance.gallery.exhibit import Acting
from app.conformance.middleware import Wrap, examine_middleware
from app.conformance.playing import Limits
from app.conformance.report import Verdict
from app.conformance.statements import MIDDLEWARE, named
from app.conformance.subject import Subject

SHORT = Limits(patience=2, stop=0.3, settle=0.2, quiet=0.05)
LONG = Limits(patience=60, stop=15, settle=15, quiet=0.05)
BOUNDS = Bounds(grace=0.1, recancel=0.05, recancels=2, close=0.1, tail=0.1)


def spent(agent: Agent) -> Agent:
    """A rate limit that has let its only turn start."""
    limited = RateLimit(agent, turns=1, seconds=3600, clock=lambda: 0.0)
    limited._due["kit"] = 3600.0
    return Acting(lambda scope, prompt: limited.invoke({**scope, "principal": "kit"}, prompt))


OURS: dict[str, tuple[Wrap, Wrap | None]] = {
    "relay": (lambda agent: Acting(lambda scope, prompt: relay(agent, scope, prompt)), None),
    "enforce": (partial(Enforce, bounds=BOUNDS), None),
    "deadline": (
        partial(Deadline, seconds=60, bounds=BOUNDS),
        partial(Deadline, seconds=0.02, bounds=BOUNDS),
    ),
    "budget": (partial(Budget, tokens=10_000, tools=10_000), partial(Budget, tools=3)),
    "retry": (partial(Retry, times=1, delay=0), None),
    "rate_limit": (partial(RateLimit, turns=10_000, seconds=1), spent),
    "redact": (lambda agent: Redact(agent, "secret[0-9]+", "key-[a-z]+"), None),
    "logging": (Logging, None),
    "tracing": (Tracing, None),
}
OURS["all"] = (
    lambda agent: Logging(
        Tracing(
            RateLimit(
                Deadline(
                    Redact(Budget(Retry(Enforce(agent, bounds=BOUNDS), delay=0), tools=10_000), "key-[a-z]+"),
                    seconds=60,
                    bounds=BOUNDS,
                ),
                turns=10_000,
                seconds=1,
            )
        )
    ),
    None,
)


@pytest.mark.parametrize("name", OURS)
async def test_our_middleware_passes(name: str) -> None:
    wrap, tripping = OURS[name]
    report = await examine_middleware(wrap, tripping=tripping, limits=LONG)
    assert report.failures == []
    assert (Verdict.SKIP in report.verdicts().values()) == (tripping is None)


@pytest.mark.parametrize("name", OURS)
async def test_an_agent_within_our_middleware_is_as_sound_as_before(name: str) -> None:
    wrap, _ = OURS[name]
    report = await examine_agent(Subject(lambda: wrap(SOUND[0].make()), limits=LONG))
    assert report.failures == []
    assert Verdict.WARN not in report.verdicts().values(), report


def _faulty(invoke: Callable[[Agent, Scope, Prompt], Any]) -> Wrap:
    return lambda agent: Acting(lambda scope, prompt: invoke(agent, scope, prompt))


async def drops_what_it_does_not_know(
    agent: Agent, scope: Scope, prompt: Prompt
) -> AsyncIterator[AgentEvent]:
    async with aclosing(relay(agent, scope, prompt)) as events:
        async for event in events:
            if not event["type"].startswith("x_"):
                yield event


async def changes_a_value(agent: Agent, scope: Scope, prompt: Prompt) -> AsyncIterator[AgentEvent]:
    async with aclosing(relay(agent, scope, prompt)) as events:
        async for event in events:
            yield {**event, "x": "changed"} if "x" in event else event


async def reorders_keys(agent: Agent, scope: Scope, prompt: Prompt) -> AsyncIterator[AgentEvent]:
    async with aclosing(relay(agent, scope, prompt)) as events:
        async for event in events:
            yield dict(sorted(event.items()))


async def trusts_its_agent(agent: Agent, scope: Scope, prompt: Prompt) -> AsyncIterator[AgentEvent]:
    async with aclosing(agent.invoke(scope, prompt)) as events:  # type: ignore[type-var]
        async for event in events:
            yield event


async def makes_the_best_of_it(agent: Agent, scope: Scope, prompt: Prompt) -> AsyncIterator[AgentEvent]:
    async with aclosing(relay(agent, scope, prompt)) as events:
        async for event in events:
            yield {"type": "completed"} if event["type"] == "failed" else event


async def leaves_it_open(agent: Agent, scope: Scope, prompt: Prompt) -> AsyncIterator[AgentEvent]:
    async for event in relay(agent, scope, prompt):
        yield event


async def raises_at_the_third(agent: Agent, scope: Scope, prompt: Prompt) -> AsyncIterator[AgentEvent]:
    count = 0
    async with aclosing(relay(agent, scope, prompt)) as events:
        async for event in events:
            yield event
            if (count := count + 1) == 3:
                raise ValueError("too many")


async def fails_and_leaves_it_open(agent: Agent, scope: Scope, prompt: Prompt) -> AsyncIterator[AgentEvent]:
    events = relay(agent, scope, prompt)
    yield await anext(events)
    KEPT.append(events)
    yield {"type": "failed", "details": "too many", "retryable": False}


KEPT: list[Any] = []


async def collects_first(agent: Agent, scope: Scope, prompt: Prompt) -> AsyncIterator[AgentEvent]:
    async with aclosing(relay(agent, scope, prompt)) as events:
        for event in [event async for event in events]:
            yield event


async def drops_keys_of_the_scope(agent: Agent, scope: Scope, prompt: Prompt) -> AsyncIterator[AgentEvent]:
    async with aclosing(relay(agent, {"session": scope["session"]}, prompt)) as events:
        async for event in events:
            yield event


async def drops_keys_of_the_prompt(agent: Agent, scope: Scope, prompt: Prompt) -> AsyncIterator[AgentEvent]:
    async with aclosing(relay(agent, scope, {"text": prompt["text"]})) as events:
        async for event in events:
            yield event


async def raises_at_the_end(agent: Agent, scope: Scope, prompt: Prompt) -> AsyncIterator[AgentEvent]:
    async with aclosing(relay(agent, scope, prompt)) as events:
        async for event in events:
            yield event
    raise ValueError("after the end")


async def goes_on_after_the_end(agent: Agent, scope: Scope, prompt: Prompt) -> AsyncIterator[AgentEvent]:
    async with aclosing(relay(agent, scope, prompt)) as events:
        async for event in events:
            yield event
    yield {"type": "text", "delta": "bye"}


async def answers_a_stop(agent: Agent, scope: Scope, prompt: Prompt) -> AsyncIterator[AgentEvent]:
    async with aclosing(relay(agent, scope, prompt)) as events:
        try:
            async for event in events:
                yield event
        except asyncio.CancelledError:
            yield {"type": "failed", "details": "stopped", "retryable": False}


async def raises_when_it_is_closed(agent: Agent, scope: Scope, prompt: Prompt) -> AsyncIterator[AgentEvent]:
    async with aclosing(relay(agent, scope, prompt)) as events:
        try:
            async for event in events:
                yield event
        except GeneratorExit:
            raise ValueError("not now") from None


async def closes_in_a_task(agent: Agent, scope: Scope, prompt: Prompt) -> AsyncIterator[AgentEvent]:
    events = relay(agent, scope, prompt)
    try:
        async for event in events:
            yield event
    finally:
        KEPT.append(asyncio.ensure_future(events.aclose()))


async def leaves_a_task(agent: Agent, scope: Scope, prompt: Prompt) -> AsyncIterator[AgentEvent]:
    KEPT.append(asyncio.create_task(asyncio.sleep(3600), name="left work"))
    async with aclosing(relay(agent, scope, prompt)) as events:
        async for event in events:
            yield event


async def drops_a_generator(agent: Agent, scope: Scope, prompt: Prompt) -> AsyncIterator[AgentEvent]:
    async for _ in Acting(SOUND[0].make().invoke).invoke(scope, prompt):
        break
    async with aclosing(relay(agent, scope, prompt)) as events:
        async for event in events:
            yield event


async def ends_at_the_third(agent: Agent, scope: Scope, prompt: Prompt) -> AsyncIterator[AgentEvent]:
    count = 0
    async with aclosing(relay(agent, scope, prompt)) as events:
        async for event in events:
            yield event
            if (count := count + 1) == 3:
                break
    yield {"type": "completed"}


@pytest.mark.parametrize(
    ("invoke", "broken", "evidence"),
    [
        (drops_what_it_does_not_know, "M1", "came [{'type': 'completed'}]"),
        (changes_a_value, "M1", "came [{"),
        (reorders_keys, "M1", "the keys came in another order"),
        (trusts_its_agent, "M2", "around raises it raised ValueError"),
        (raises_at_the_end, "M2", "around raises it raised ValueError: after the end"),
        (goes_on_after_the_end, "M2", "{'delta': 'bye', 'type': 'text'}]"),
        (makes_the_best_of_it, "M2", "around raises the end was {'type': 'completed'}"),
        (answers_a_stop, "M3", "stopped while it waited it said {"),
        (raises_when_it_is_closed, "M3", "stopped between two events it raised ValueError: not now"),
        (leaves_it_open, "M3", "stopped between two events it was over before the inner agent had cleaned"),
        (closes_in_a_task, "M3", "it was over before the inner agent had cleaned up"),
        (leaves_a_task, "M3", "stopped while it waited it left behind: 1 task (left work)"),
        (drops_a_generator, "M3", "stopped while it waited it left behind: converses"),
        (raises_at_the_third, "M4", "it raised ValueError: too many"),
        (ends_at_the_third, "M4", "it ended with {'type': 'completed'}"),
        (fails_and_leaves_it_open, "M4", "the inner agent was not closed"),
        (collects_first, "M5", "the first event waited for the second"),
        (drops_keys_of_the_scope, "M6", "not all came"),
        (drops_keys_of_the_prompt, "M6", "not all came"),
    ],
)
async def test_each_fault_of_a_middleware_is_found(invoke: Any, broken: str, evidence: str) -> None:
    wrap = _faulty(invoke)
    report = await examine_middleware(wrap, [named(MIDDLEWARE, broken)], tripping=wrap, limits=SHORT)
    (finding,) = report.failures
    assert evidence in finding.evidence
    for kept in KEPT:
        if isinstance(kept, asyncio.Task):
            kept.cancel()
    KEPT.clear()
