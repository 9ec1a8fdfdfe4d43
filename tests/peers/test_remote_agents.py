"""Agents on the official Python SDKs of both generations, driven as agents of ours."""

import asyncio
import os
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pytest

from app.agents.adapters import comeback
from app.agents.adapters.a2a import watch
from app.agents.adapters.a2a.agent import A2AAgent
from app.agents.contract import AgentEvent, Message, Scope
from app.settings import A2ARemote
from tests.conftest import REQUIRE_ALL
from tests.peers.cutting_proxy import CuttingProxy
from tests.peers.install import HERE, is_installed, new_python_peer, python_peer

PATIENCE = 60.0
COMPLETED = {"type": "completed"}


@dataclass
class Peer:
    url: str
    version: Literal["1.0", "0.3"]


@asynccontextmanager
async def serving_peer(version: str, *options: str) -> AsyncIterator[str]:
    """The address of an agent on the SDK of that version, in a process of its own."""
    python = python_peer() if version == "0.3" else new_python_peer()
    if not is_installed(python):
        hint = f"the peers are not installed: {Path(sys.executable).name} -m tests.peers.install"
        if os.environ.get(REQUIRE_ALL) == "1":
            pytest.fail(f"{REQUIRE_ALL}=1, but {hint}")
        pytest.skip(f"NOT TESTED: {hint}")
    script = HERE / "python" / "server.py"
    process = await asyncio.create_subprocess_exec(python, script, *options, stdout=PIPE)
    assert process.stdout is not None
    try:
        async with asyncio.timeout(PATIENCE):
            yield (await process.stdout.readline()).decode().strip()
    finally:
        process.kill()
        await process.wait()


@pytest.fixture(scope="module", params=["1.0", "0.3"])
async def peer(request: pytest.FixtureRequest) -> AsyncIterator[Peer]:
    async with serving_peer(request.param) as url:
        yield Peer(url, request.param)


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comeback, "FIRST_PAUSE", 0.002)
    monkeypatch.setattr(watch, "PACE", 0.01)
    monkeypatch.setattr(watch, "FIRST_LOOK", 0.01)
    monkeypatch.setattr(watch, "LONGEST_LOOK", 0.1)


@asynccontextmanager
async def agent_at(url: str, **options: Any) -> AsyncIterator[A2AAgent]:
    agent = A2AAgent(url, options=A2ARemote(**options))
    try:
        yield agent
    finally:
        await agent.aclose()


class Remembering:
    """A transcript that has only the agent's own events."""

    def __init__(self, events: Sequence[AgentEvent]) -> None:
        self._events = [event for event in events if event["type"] == "remote_task"]

    async def messages(self) -> list[Message]:
        raise AssertionError

    async def own_events(self, event_type: str) -> AsyncGenerator[Any, None]:
        for event in self._events:
            yield event


async def asked(agent: A2AAgent, prompt: str, before: Sequence[AgentEvent] = ()) -> list[AgentEvent]:
    scope: Scope = {"session": "s", "transcript": Remembering(before)}
    async with asyncio.timeout(PATIENCE):
        return [event async for event in agent.invoke(scope, {"text": prompt})]


def text_of(events: Sequence[AgentEvent]) -> str:
    return "".join(event["delta"] for event in events if event["type"] == "text")


async def test_a_task_is_a_turn_and_its_conversation_goes_on(peer: Peer) -> None:
    async with agent_at(peer.url) as agent:
        first = await asked(agent, "hello")
        assert (text_of(first), first[-1]) == ("You said hello", COMPLETED)
        assert [event["delta"] for event in first if event["type"] == "thinking"] == ["On it"]
        second = await asked(agent, "again", first)
        assert (text_of(second), second[-1]) == ("You said again", COMPLETED)
        contexts = [event["contextId"] for event in first + second if event["type"] == "remote_task"]
        assert len(set(contexts)) == 1


async def test_a_question_is_answered_by_the_next_prompt(peer: Peer) -> None:
    async with agent_at(peer.url) as agent:
        question = await asked(agent, "ask")
        assert text_of(question) == "Let me see.\n\nWhich city?"
        assert question[-2:] == [{"type": "input_required", "text": "Which city?"}, COMPLETED]
        answer = await asked(agent, "Aarhus", question)
        assert (text_of(answer), answer[-1]) == ("It rains in Aarhus.", COMPLETED)


async def test_failures_are_told(peer: Peer) -> None:
    async with agent_at(peer.url) as agent:
        failed = await asked(agent, "fail")
        assert text_of(failed) == "half"
        assert failed[-1] == {
            "type": "failed",
            "details": "no luck",
            "retryable": False,
            "code": "agent_failed",
        }


async def test_an_agent_that_breaks_is_a_failure_or_silent(peer: Peer) -> None:
    # The old SDK leaves the task of a broken agent running for ever, with or without what it has said.
    is_silent = peer.version == "0.3"
    async with agent_at(peer.url, **({"deadline": 0.3} if is_silent else {})) as agent:
        broken = await asked(agent, "raise")
    assert is_silent or text_of(broken) == "half"
    assert broken[-1]["code"] == ("remote_silent" if is_silent else "agent_failed")


async def test_a_stream_that_is_cut_anywhere_loses_and_doubles_nothing(peer: Peer) -> None:
    whole = "".join(f"{number} " for number in range(40))
    options: Any = {"card": False, "version": peer.version, "streaming": True}
    async with CuttingProxy(peer.url) as proxy, agent_at(proxy.url, **options) as agent:
        for first in range(900, 9_000, 530):
            proxy.cuts.extend([first, 700])
            events = await asked(agent, "count 40")
            assert (text_of(events), events[-1]) == (whole, COMPLETED), f"cut after {first} bytes"
            proxy.cuts.clear()


async def test_a_task_that_goes_on_after_a_cut_is_followed(peer: Peer) -> None:
    options: Any = {"card": False, "version": peer.version, "streaming": True}
    async with (
        CuttingProxy(peer.url) as proxy,
        agent_at(proxy.url, **options) as agent,
        aclosing(agent.invoke({"session": "s"}, {"text": "hold"})) as events,  # type: ignore[type-var]
        asyncio.timeout(PATIENCE),
    ):
        heard = []
        proxy.cuts.append(1_500)
        async for event in events:
            heard.append(event)
            if text_of(heard) == "before ":
                await asked(agent, "release")
        assert (text_of(heard), heard[-1]) == ("before after", COMPLETED)


async def test_an_abort_cancels_the_task(peer: Peer) -> None:
    async with agent_at(peer.url) as agent:
        events = agent.invoke({"session": "s"}, {"text": "hold"})
        async with asyncio.timeout(PATIENCE):
            task = await anext(events)
            while (await anext(events))["type"] != "text":
                pass
            await events.aclose()  # type: ignore[attr-defined]
        remote = agent._remote
        found = await remote.call(await remote.endpoint(), "GetTask", {"id": task["taskId"]})
        assert "cancel" in found["status"]["state"].lower()


@pytest.mark.parametrize("version", ["1.0", "0.3"])
async def test_without_streams_the_task_is_looked_at(version: str) -> None:
    async with serving_peer(version, "--no-stream") as url, agent_at(url) as agent:
        events = await asked(agent, "count 20")
        assert text_of(events) == "".join(f"{number} " for number in range(20))
        assert events[-1] == COMPLETED
        question = await asked(agent, "ask")
        answer = await asked(agent, "Aarhus", question)
        assert (text_of(answer), answer[-1]) == ("It rains in Aarhus.", COMPLETED)
