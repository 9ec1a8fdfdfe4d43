"""Our middleware passes the kit; what a middleware may get wrong is found."""

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
    report = await examine_middleware(wrap, tripping=tripping, limits=SHORT)
    assert report.failures == []
    assert (Verdict.SKIP in report.verdicts().values()) == (tripping is None)


@pytest.mark.parametrize("name", OURS)
async def test_an_agent_within_our_middleware_is_as_sound_as_before(name: str) -> None:
    wrap, _ = OURS[name]
    report = await examine_agent(Subject(lambda: wrap(SOUND[0].make()), limits=SHORT))
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


async def drops_keys(agent: Agent, scope: Scope, prompt: Prompt) -> AsyncIterator[AgentEvent]:
    async with aclosing(relay(agent, {"session": scope["session"]}, {"text": prompt["text"]})) as events:
        async for event in events:
            yield event


@pytest.mark.parametrize(
    ("invoke", "broken"),
    [
        (drops_what_it_does_not_know, "M1"),
        (changes_a_value, "M1"),
        (reorders_keys, "M1"),
        (trusts_its_agent, "M2"),
        (makes_the_best_of_it, "M2"),
        (leaves_it_open, "M3"),
        (raises_at_the_third, "M4"),
        (fails_and_leaves_it_open, "M4"),
        (collects_first, "M5"),
        (drops_keys, "M6"),
    ],
)
async def test_each_fault_of_a_middleware_is_found(invoke: Any, broken: str) -> None:
    wrap = _faulty(invoke)
    report = await examine_middleware(wrap, [named(MIDDLEWARE, broken)], tripping=wrap, limits=SHORT)
    assert report.verdicts() == {broken: Verdict.FAIL}
    KEPT.clear()
