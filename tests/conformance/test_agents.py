"""The kit finds what is wrong with each misbehaving agent, and nothing wrong with the sound ones."""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator
from dataclasses import replace
from enum import StrEnum
from http import HTTPStatus
from typing import Any

import pytest
from anyio.from_thread import start_blocking_portal

from app.agents.adapters.openai_chat import OpenAIChatAgent
from app.agents.contract import AgentEvent, Prompt, Scope
from app.agents.demo import DemoAgent
from app.agents.loading import BareAgent
from app.conformance import playing
from app.conformance.agent import examine_agent
from app.conformance.gallery import DUBIOUS, MISBEHAVING, SOUND, Exhibit
from app.conformance.gallery.exhibit import COMPLETED, saying
from app.conformance.gallery.misbehaving import raises_after_the_terminal
from app.conformance.playing import Limits
from app.conformance.report import Verdict
from app.conformance.statements import AGENT, named
from app.conformance.subject import Conversation, Subject, new_scope
from app.conformance.witnesses import ClosableByHand
from tests.agents.openai_server import OpenAIServer

SHORT = Limits(patience=2, stop=0.15, settle=0.1, quiet=0.05)
LONG = Limits(patience=60, stop=60, settle=60, quiet=0.05)  # for what is sound: none of them is waited for
TALK = Conversation("My name is Ada.", "Who am I?", "Ada")


@pytest.mark.parametrize("exhibit", MISBEHAVING, ids=str)
async def test_each_fault_is_found(exhibit: Exhibit) -> None:
    statements = [statement for statement in AGENT if statement.id in exhibit.breaks]
    report = await examine_agent(Subject(exhibit.make, conversation=TALK, limits=SHORT), statements)
    assert set(report.verdicts().values()) == {Verdict.FAIL}, report


@pytest.mark.parametrize("exhibit", DUBIOUS, ids=str)
async def test_of_what_is_dubious_the_kit_warns(exhibit: Exhibit) -> None:
    statements = [statement for statement in AGENT if statement.id in exhibit.breaks]
    report = await examine_agent(Subject(exhibit.make, limits=SHORT), statements)
    assert set(report.verdicts().values()) == {Verdict.WARN}, report


@pytest.mark.parametrize("exhibit", SOUND, ids=str)
async def test_a_sound_agent_passes(exhibit: Exhibit) -> None:
    report = await examine_agent(Subject(exhibit.make, limits=LONG))
    assert report.failures == []
    assert Verdict.WARN not in report.verdicts().values(), report


async def test_the_openai_agent_passes() -> None:
    """Its model is in another thread, with a loop of its own: what the kit finds left is the agent's."""
    with (
        start_blocking_portal("asyncio") as portal,
        portal.wrap_async_context_manager(OpenAIServer()) as model,
    ):
        agent = OpenAIChatAgent(model="m", base_url=model.base_url, api_key="k")
        # Its open connections stay, and are waited for once.
        report = await examine_agent(Subject(lambda: agent, limits=replace(LONG, settle=1)))
        await agent.aclose()
    assert report.failures == []


async def test_the_demo_agent_passes_with_every_prompt() -> None:
    subject = Subject(
        lambda: DemoAgent(delay=0),
        {"text": "thinking tools unknown markdown"},
        failing={"text": "fail"},
        waiting={"text": "hang"},
        limits=LONG,
    )
    report = await examine_agent(subject)
    assert report.failures == []
    assert {statement for statement, verdict in report.verdicts().items() if verdict is not Verdict.PASS} == {
        "A8",
        "A9",
    }


async def lingers(_: Scope, __: Prompt) -> AsyncIterator[AgentEvent]:
    yield {"type": "completed"}
    await asyncio.Event().wait()


async def chatters_for_ever(_: Scope, __: Prompt) -> AsyncIterator[AgentEvent]:
    while True:
        yield {"type": "text", "delta": "a"}


async def repeats_its_end_for_ever(_: Scope, __: Prompt) -> AsyncIterator[AgentEvent]:
    while True:
        yield {"type": "completed"}


async def never_fails(_: Scope, __: Prompt) -> AsyncIterator[AgentEvent]:
    yield {"type": "completed"}


async def leaks_when_it_fails(_: Scope, prompt: Prompt) -> AsyncIterator[AgentEvent]:
    if prompt["text"] == "fail":
        LEFT.append(asyncio.create_task(asyncio.sleep(3600), name="left when it failed"))
        yield {"type": "failed", "details": "no", "retryable": False}
    else:
        yield {"type": "completed"}


async def says_nan_when_it_fails(_: Scope, prompt: Prompt) -> AsyncIterator[AgentEvent]:
    if prompt["text"] == "fail":
        yield {"type": "odd", "value": float("nan")}
        yield {"type": "failed", "details": "no", "retryable": False}
    else:
        yield {"type": "completed"}


async def chokes_on_nothing(_: Scope, prompt: Prompt) -> AsyncIterator[AgentEvent]:
    if not prompt["text"]:
        raise ValueError("say something")
    yield {"type": "completed"}


async def chokes_on_odd_sessions(scope: Scope, _: Prompt) -> AsyncIterator[AgentEvent]:
    if "/" in scope["session"]:
        raise ValueError("no such file")
    yield {"type": "completed"}


async def fails_without_saying_why(_: Scope, prompt: Prompt) -> AsyncIterator[AgentEvent]:
    if prompt["text"] == "fail":
        yield {"type": "failed", "retryable": False}
    yield {"type": "completed"}


async def leaves_a_descriptor(_: Scope, __: Prompt) -> AsyncIterator[AgentEvent]:
    FILES.append(os.open(os.devnull, os.O_RDONLY))
    yield {"type": "text", "delta": "a"}
    yield {"type": "completed"}


async def keeps_a_pool(_: Scope, __: Prompt) -> AsyncIterator[AgentEvent]:
    """What it opens in its first turn serves all of them."""
    while len(FILES) < 4:
        FILES.append(os.open(os.devnull, os.O_RDONLY))
    yield {"type": "text", "delta": "a"}
    yield {"type": "completed"}


async def keeps_a_pool_of_two(_: Scope, __: Prompt) -> AsyncIterator[AgentEvent]:
    while len(FILES) < 2:
        FILES.append(os.open(os.devnull, os.O_RDONLY))
    yield {"type": "text", "delta": "a"}
    await asyncio.Event().wait()


async def raises_when_it_is_cancelled(_: Scope, __: Prompt) -> AsyncIterator[AgentEvent]:
    yield {"type": "text", "delta": "a"}
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        raise ValueError("not now") from None


class Word(StrEnum):
    """A string that says more than it is."""

    ODD = "odd"


LEFT: list[asyncio.Task[None]] = []
FILES: list[int] = []


@pytest.mark.parametrize(
    ("invoke", "statement", "verdict", "evidence"),
    [
        (lingers, "A1b", Verdict.FAIL, "after its terminal event the iteration did not end"),
        (
            repeats_its_end_for_ever,
            "A1b",
            Verdict.FAIL,
            "after its terminal event came {'type': 'completed'}",
        ),
        (raises_after_the_terminal, "A1b", Verdict.FAIL, "after its terminal event it raised ValueError"),
        (chatters_for_ever, "A1", Verdict.FAIL, "it had not ended after 1000 events"),
        (
            never_fails,
            "A2",
            Verdict.FAIL,
            "the failing prompt ended with {'type': 'completed'}, not with `failed`",
        ),
        (leaks_when_it_fails, "A3e", Verdict.FAIL, "left behind: 1 task (left when it failed)"),
        (says_nan_when_it_fails, "A4", Verdict.FAIL, "Out of range float values are not JSON compliant"),
        (saying({"type": "odd", 1: "one"}, COMPLETED).invoke, "A4", Verdict.FAIL, "becomes"),
        (saying({"type": "odd", "n": HTTPStatus.OK}, COMPLETED).invoke, "A4", Verdict.FAIL, "becomes"),
        (saying({"type": Word.ODD, "word": Word.ODD}, COMPLETED).invoke, "A4", Verdict.PASS, "4 events"),
        (chokes_on_nothing, "A2", Verdict.FAIL, "an empty prompt made it raise ValueError: say something"),
        (chokes_on_odd_sessions, "A9", Verdict.FAIL, "in session 'a/b:c' it raised ValueError"),
        (fails_without_saying_why, "A2", Verdict.FAIL, "the failing prompt: `failed` needs `details`"),
        (leaves_a_descriptor, "A3b", Verdict.FAIL, "3 more open descriptors after 3 stops"),
        (leaves_a_descriptor, "A3e", Verdict.FAIL, "4 more open descriptors after 4 turns"),
        (keeps_a_pool, "A3e", Verdict.PASS, "nothing after 4 turns"),
        (keeps_a_pool_of_two, "A3", Verdict.PASS, "stopped 3 times"),
        (
            raises_when_it_is_cancelled,
            "A3",
            Verdict.FAIL,
            "when it was stopped it raised ValueError: not now",
        ),
        (never_fails, "A3", Verdict.SKIP, "it ended before it could be stopped"),
        (saying({"type": "completed", "data": ""}).invoke, "A5", Verdict.PASS, "0 characters"),
        (
            saying({"type": "completed", "result": 1}).invoke,
            "A5",
            Verdict.WARN,
            "`completed` has `result`: 1",
        ),
        (saying({"type": "completed", "data": None}).invoke, "A5", Verdict.WARN, "`completed.data` is null"),
    ],
)
async def test_what_is_wrong_is_told_in_words(
    invoke: Any, statement: str, verdict: Verdict, evidence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(playing, "_MOST_EVENTS", 1_000)
    limits = Limits(patience=0.3, stop=0.05, settle=0.05, quiet=0.05)
    waiting: Prompt | None = {"text": "wait"} if statement == "A3" else None
    subject = Subject(lambda: BareAgent(invoke), failing={"text": "fail"}, waiting=waiting, limits=limits)
    (finding,) = (await examine_agent(subject, [named(AGENT, statement)])).findings
    assert finding.verdict is verdict
    assert evidence in finding.evidence
    while LEFT:
        LEFT.pop().cancel()
    while FILES:
        os.close(FILES.pop())


async def remembers_in_the_log(scope: Scope, prompt: Prompt) -> AsyncIterator[AgentEvent]:
    """An agent that remembers by saying events of its own."""
    notes = [note["note"] async for note in scope["transcript"].own_events("note")]
    yield {"type": "note", "note": prompt["text"]}
    yield {"type": "text", "delta": " ".join(notes) or "nothing yet"}
    yield {"type": "completed"}


async def test_what_an_agent_says_in_events_of_its_own_it_can_read_again() -> None:
    subject = Subject(lambda: BareAgent(remembers_in_the_log), conversation=TALK, limits=SHORT)
    report = await examine_agent(subject, [statement for statement in AGENT if statement.id == "A9"])
    assert report.verdicts() == {"A9": Verdict.PASS}, report


async def test_an_agent_that_never_waits_does_not_keep_the_loop_for_the_length_of_its_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(playing, "_MOST_EVENTS", 1_000)
    is_over = False

    async def count() -> int:
        ticks = 0
        while not is_over:
            await asyncio.sleep(0)
            ticks += 1
        return ticks

    counting = asyncio.create_task(count())
    turn = await playing.play(BareAgent(chatters_for_ever), new_scope(), {"text": "x"}, SHORT)
    is_over = True
    assert len(turn.events) == 1_000
    assert await counting > 10


async def test_an_agent_that_swallows_one_cancel_and_waits_on_is_cancelled_again() -> None:
    async def waits_on(_: Scope, __: Prompt) -> AsyncIterator[AgentEvent]:
        yield {"type": "text", "delta": "a"}
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        await asyncio.Event().wait()

    before = asyncio.all_tasks()
    stop = playing.Stop(when_quiet=True)
    limits = Limits(patience=3600, stop=0.05, quiet=0.02)
    async with asyncio.timeout(60):
        turn = await playing.play(BareAgent(waits_on), new_scope(), {"text": "x"}, limits, stop)
    assert turn.overdue
    assert asyncio.all_tasks() == before


async def test_an_iterator_that_was_asked_for_nothing_is_closed_all_the_same() -> None:
    agent = ClosableByHand()
    turn = await playing.play(agent, new_scope(), {"text": "x"}, SHORT, playing.Stop(before_first=True))
    assert (turn.was_stopped, turn.events, agent.is_closed) == (True, [], True)


async def test_an_error_that_nobody_asks_for_is_left_behind() -> None:
    async def leaves_an_error(_: Scope, __: Prompt) -> AsyncIterator[AgentEvent]:
        async def fail() -> None:
            raise ValueError("nobody asks")

        asyncio.get_running_loop().call_soon(asyncio.ensure_future, fail())
        for _step in range(3):
            await asyncio.sleep(0)
        yield {"type": "completed"}

    # The first turn is played before the kit looks, and what the loop says of it is not the test's affair.
    asyncio.get_running_loop().set_exception_handler(lambda *_: None)
    subject = Subject(lambda: BareAgent(leaves_an_error), limits=SHORT)
    (finding,) = (await examine_agent(subject, [named(AGENT, "A3e")])).failures
    assert "3 complaints (Task exception was never retrieved" in finding.evidence
