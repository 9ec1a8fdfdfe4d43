"""A caller that keeps the contract passes; what one may get wrong is found, each by the statement that it is about."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from functools import partial
from typing import Any

import pytest

from app.agents.contract import Agent, AgentEvent, Prompt, Scope
from app.conformance.caller import Caller, Reply, examine_caller
from app.conformance.host import examine_host
from app.conformance.playing import Limits
from app.conformance.report import Verdict
from app.conformance.statements import CALLER, HOST, named

SHORT = Limits(patience=1, stop=0.2, settle=0.1)


async def reads(
    agent: Agent,
    scope: Scope,
    prompt: Prompt,
    *,
    is_text: Callable[[AgentEvent], bool] = lambda event: event["type"] == "text",
    code_of: Callable[[AgentEvent], Any] = lambda event: event.get("code"),
) -> Reply:
    """A sound caller, unless one of its judgements is replaced."""
    said = ""
    stream: Any = agent.invoke(scope, prompt)
    async with aclosing(stream) as events:
        async for event in events:
            if is_text(event):
                said += event["delta"]
            if event["type"] == "completed":
                return Reply(said)
            if event["type"] == "failed":
                return Reply(said, is_failure=True, code=code_of(event), retryable=event["retryable"])
    raise ValueError("the stream had no end")


async def reads_on(agent: Agent, scope: Scope, prompt: Prompt) -> Reply:
    said = ""
    stream: Any = agent.invoke(scope, prompt)
    async for event in stream:
        said += event["delta"] if event["type"] == "text" else ""
    return Reply(said)


async def tries_again(agent: Agent, scope: Scope, prompt: Prompt) -> Reply:
    reply = await reads(agent, scope, prompt)
    return await reads(agent, scope, prompt) if reply.retryable else reply


async def leaves_it_open(agent: Agent, scope: Scope, prompt: Prompt) -> Reply:
    stream: Any = agent.invoke(scope, prompt)
    async for event in stream:
        if event["type"] == "completed":
            break
    return Reply("")


async def test_a_sound_caller_passes() -> None:
    report = await examine_caller(reads, limits=SHORT)
    assert set(report.verdicts().values()) == {Verdict.PASS}, report


@pytest.mark.parametrize(
    ("caller", "broken"),
    [
        (partial(reads, is_text=lambda event: "delta" in event and event["type"] != "thinking"), "C1"),
        (reads_on, "C2"),
        (leaves_it_open, "C3"),
        (partial(reads, is_text=lambda event: event["type"] in ("text", "thinking")), "C4"),
        (partial(reads, code_of=lambda event: event["details"] or event["code"]), "C5"),
        (partial(reads, code_of=lambda event: "failed"), "C5"),
        (tries_again, "C6"),
    ],
)
async def test_each_fault_of_a_caller_is_found(caller: Caller, broken: str) -> None:
    report = await examine_caller(caller, [named(CALLER, broken)], limits=SHORT)
    assert report.verdicts() == {broken: Verdict.FAIL}, report


class PassesOnTheRest:
    """A host that knows the outcome, and tells its reader what comes after it all the same."""

    def __init__(self, agent: Agent, scope: Scope, prompt: Prompt) -> None:
        self.events: list[AgentEvent] = []
        self.outcomes: list[Reply] = []
        self._reading = asyncio.ensure_future(self._read(agent.invoke(scope, prompt)))

    async def _read(self, events: Any) -> None:
        said = ""
        stream: AsyncIterator[AgentEvent] = events
        async for event in stream:
            self.events.append(event)
            if self.outcomes:
                continue
            if event["type"] == "text":
                said += event["delta"]
            elif event["type"] == "completed":
                self.outcomes.append(Reply(said))
            else:
                self.outcomes.append(Reply(said, is_failure=True, code=event["code"]))

    async def over(self) -> None:
        await self._reading

    async def stop(self) -> None:
        self._reading.cancel()


async def test_a_host_that_passes_on_what_comes_after_the_end_is_found() -> None:
    report = await examine_host(PassesOnTheRest, [named(HOST, "H2")], limits=SHORT)
    (finding,) = report.failures
    assert finding.evidence == "an event after the terminal one was passed on"
