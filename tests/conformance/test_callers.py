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
LONG = Limits(patience=60, stop=60, settle=60)


async def reads(
    agent: Agent,
    scope: Scope,
    prompt: Prompt,
    *,
    is_text: Callable[[AgentEvent], bool] = lambda event: event["type"] == "text",
    code_of: Callable[[AgentEvent], Any] = lambda event: event.get("code"),
    is_retryable: Callable[[AgentEvent], bool] = lambda event: event["retryable"],
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
                return Reply(said, is_failure=True, code=code_of(event), retryable=is_retryable(event))
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


async def waits_for_a_later_end(agent: Agent, scope: Scope, prompt: Prompt) -> Reply:
    said, last = "", None
    stream: Any = agent.invoke(scope, prompt)
    async for event in stream:
        said += event["delta"] if event["type"] == "text" else ""
        last = event
    return Reply(said, is_failure=last is None or last["type"] != "completed")


async def takes_silence_for_an_end(agent: Agent, scope: Scope, prompt: Prompt) -> Reply:
    try:
        return await reads(agent, scope, prompt)
    except ValueError:
        return Reply("")


async def closes_at_the_end_only(agent: Agent, scope: Scope, prompt: Prompt) -> Reply:
    stream: Any = agent.invoke(scope, prompt)
    while (await anext(stream))["type"] != "completed":
        pass
    await stream.aclose()
    return Reply("")


async def closes_when_it_is_left_only(agent: Agent, scope: Scope, prompt: Prompt) -> Reply:
    stream: Any = agent.invoke(scope, prompt)
    try:
        while (await anext(stream))["type"] != "completed":
            pass
    except asyncio.CancelledError:
        await stream.aclose()
        raise
    return Reply("")


async def closes_in_a_task(agent: Agent, scope: Scope, prompt: Prompt) -> Reply:
    stream: Any = agent.invoke(scope, prompt)
    while (await anext(stream))["type"] != "completed":
        pass
    KEPT.append(asyncio.ensure_future(stream.aclose()))
    return Reply("")


KEPT: list[Any] = []


async def leaves_it_open(agent: Agent, scope: Scope, prompt: Prompt) -> Reply:
    stream: Any = agent.invoke(scope, prompt)
    async for event in stream:
        if event["type"] == "completed":
            break
    return Reply("")


async def test_a_sound_caller_passes() -> None:
    report = await examine_caller(reads, limits=LONG)
    assert set(report.verdicts().values()) == {Verdict.PASS}, report


@pytest.mark.parametrize(
    ("caller", "broken", "evidence"),
    [
        (
            partial(reads, is_text=lambda event: "delta" in event and event["type"] != "thinking"),
            "C1",
            "it made Reply(text='not texta",
        ),
        (reads_on, "C2", "with events after the terminal one it made Reply(text='alate'"),
        (waits_for_a_later_end, "C2", "with events after the terminal one it made Reply(text='alate'"),
        (takes_silence_for_an_end, "C2", "a stream of 0 events without a terminal one was no error"),
        (leaves_it_open, "C3", "a generator: after the terminal event it was not closed"),
        (closes_in_a_task, "C3", "a generator: after the terminal event it was not closed"),
        (closes_at_the_end_only, "C3", "an iterator: when its caller left it was not closed"),
        (closes_when_it_is_left_only, "C3", "a generator: after the terminal event it was not closed"),
        (
            partial(reads, is_text=lambda event: event["type"] in ("text", "thinking")),
            "C4",
            "it made Reply(text='hmahmb'",
        ),
        (
            partial(reads, code_of=lambda event: event["details"] or event["code"]),
            "C5",
            "'session_busy' was understood differently with other details",
        ),
        (partial(reads, code_of=lambda event: "failed"), "C5", "'session_busy' became Reply("),
        (partial(reads, is_retryable=lambda event: False), "C5", "'session_busy' became Reply("),
        (tries_again, "C6", "the turn was run 2 times"),
    ],
)
async def test_each_fault_of_a_caller_is_found(caller: Caller, broken: str, evidence: str) -> None:
    report = await examine_caller(caller, [named(CALLER, broken)], limits=SHORT)
    (finding,) = report.failures
    assert evidence in finding.evidence
    while KEPT:
        await KEPT.pop()


async def test_a_caller_that_never_comes_back_is_found_and_stopped() -> None:
    is_stopped = asyncio.Event()

    async def never_comes_back(_: Agent, __: Scope, ___: Prompt) -> Reply:
        try:
            await asyncio.Event().wait()
        finally:
            is_stopped.set()
        return Reply("")

    report = await examine_caller(never_comes_back, [named(CALLER, "C6")], limits=Limits(patience=0.05))
    assert [each.evidence for each in report.failures] == ["it raised Late: a turn took longer than 0.05 s"]
    async with asyncio.timeout(60):
        await is_stopped.wait()


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
