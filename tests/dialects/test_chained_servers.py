"""Our own server behind itself: a session in front is a session behind, over a network that breaks between them."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest

from app.agents.adapters import comeback
from app.agents.adapters.comeback import Patience
from app.agents.adapters.tarko import turn as turns
from app.agents.adapters.tarko.agent import TarkoAgent
from app.agents.contract import AgentEvent, Prompt, Scope
from app.dialects.tarko_ui import settling
from tests.browser.proxy import Proxy, open_proxy
from tests.conftest import Server, own_database
from tests.server import (
    COMPLETED,
    Client,
    Json,
    Script,
    Scripted,
    Serving,
    Step,
    said,
    saying,
    serving,
    soon,
    types,
    until,
)

OWN = {"messageId", "turnId", "elapsedMs", "durationMs", "agentName"}
"""Fields that each server fills in itself."""


class Chained(Scripted):
    """The remote agent, where tests expect a scripted one."""

    def __init__(self, agent: TarkoAgent) -> None:
        super().__init__()
        self._agent = agent
        self.aclose = agent.aclose

    def invoke(self, scope: Scope, prompt: Prompt, /) -> AsyncIterator[AgentEvent]:
        return self._agent.invoke(scope, prompt)


@dataclass
class Chain:
    """Two servers, and what is between them."""

    behind: Client
    front: Client
    between: Proxy

    async def session(self) -> str:
        return await self.front.session()

    async def told(self, session_id: str) -> tuple[list[Json], list[Json]]:
        """The lasting events of the session in front and of the one behind, without what is each server's own."""
        front = await self.front.events(session_id, deltas=False)
        [own] = [event["data"] for event in front if event["type"] == "remote_session"]
        behind = await self.behind.events(own["sessionId"], deltas=False)
        return told(front), told(behind)


def told(events: list[Json]) -> list[Json]:
    return [
        {"type": event["type"], **{key: value for key, value in event["data"].items() if key not in OWN}}
        for event in events
        if event["type"] not in ("remote_session", "session_start")
    ]


@pytest.fixture(scope="module", params=["documented", "runtime"])
async def servers(
    request: pytest.FixtureRequest, embedded_server: Server
) -> AsyncIterator[tuple[Serving, Serving, Proxy]]:
    """A server with the remote agent, a scripted one behind it, and the network between them."""
    async with (
        own_database(embedded_server) as one,
        own_database(embedded_server) as two,
        serving(one) as behind,
        open_proxy(int(behind.url.rpartition(":")[2])) as between,
    ):
        path = "/ui" if request.param == "runtime" else ""
        agent = TarkoAgent(f"{between.url}{path}", dialect=request.param, patience=Patience(losses=5.0))
        async with serving(two, Chained(agent)) as front:
            yield behind, front, between


@pytest.fixture
async def chain(servers: tuple[Serving, Serving, Proxy], monkeypatch: pytest.MonkeyPatch) -> Chain:
    monkeypatch.setattr(comeback, "FIRST_PAUSE", 0.01)
    monkeypatch.setattr(turns, "LOOK_INTERVAL", 0.02)
    monkeypatch.setattr(settling, "LONGEST_WAY", 0.0)  # no browser is here
    behind, front, between = servers
    between.is_down, between.budget = False, None
    return Chain(await behind.client(), await front.client(), between)


def thinking(delta: str) -> AgentEvent:
    return {"type": "thinking", "delta": delta}


def call(tool: str, args: Any) -> AgentEvent:
    return {"type": "tool_started", "id": tool, "name": "look", "args": args}


def result(tool: str, content: Any, *, is_error: bool = False) -> AgentEvent:
    return {"type": "tool_ended", "id": tool, "isError": is_error, "content": content}


def failed(retryable: bool) -> AgentEvent:
    return {"type": "failed", "details": "no luck", "retryable": retryable, "code": "unlucky"}


async def crashing(_: Scope, __: Prompt) -> AsyncIterator[AgentEvent]:
    yield said("part")
    raise ValueError("crashed")


TURNS: dict[str, Script] = {
    "text": saying(said("Hello "), said("wörld\u2028 \U0001f600\0"), said("\n\ndata: x\n\n")),
    "nothing": saying(),
    "thinking": saying(thinking("h"), thinking("m"), said("so"), thinking("again"), said(" on")),
    "tools": saying(
        said("Let me look."),
        call("a", {"at": 1}),
        call("b", None),
        result("b", {"deep": [1, None, "x"]}),
        result("a", "text"),
        thinking("hm"),
        call("a", [1]),
        result("a", "no", is_error=True),
        said("Done."),
    ),
    "own events": saying(
        {"type": "plan", "steps": [1]},
        {"type": "retrying", "attempt": 1, "maxAttempts": 2, "delayMs": 5, "reason": "busy"},
        {"type": "nothing"},
    ),
    "data": saying({"type": "completed", "data": {"n": None}}, ends=False),
    "failure": saying(said("part"), call("c", {}), failed(retryable=True), ends=False),
    "final failure": saying(failed(retryable=False), ends=False),
    "dangling": saying(call("d", {}), said("never mind")),
    "crash": crashing,
    "long": saying(*(said(f"{number} " * 20) for number in range(300))),
}


@pytest.fixture
def scripts(chain: Chain) -> dict[str, Script]:
    chain.behind.server.agent.for_prompt.update(TURNS)
    return TURNS


async def test_a_turn_through_two_servers_is_told_alike(chain: Chain, scripts: dict[str, Script]) -> None:
    session_id = await chain.session()
    for prompt in scripts:
        await chain.front.query(session_id, prompt)
    front, behind = await chain.told(session_id)
    assert front == behind
    assert types(front).count("agent_run_end") == len(scripts)
    assert types(await chain.front.events(session_id)).count("remote_session") == 1


async def test_an_image_through_two_servers_is_the_same(chain: Chain) -> None:
    seen: list[Prompt] = []

    async def look(_: Scope, prompt: Prompt) -> AsyncIterator[AgentEvent]:
        seen.append(prompt)
        yield COMPLETED

    chain.behind.server.agent.for_prompt["look"] = look
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}}
    session_id = await chain.session()
    await chain.front.query(session_id, [{"type": "text", "text": "look"}, image])
    assert seen == [{"text": "look", "images": [{"mimeType": "image/png", "data": "aGk="}]}]
    front, behind = await chain.told(session_id)
    assert front == behind


@pytest.mark.parametrize("budget", [0, 150, 1_000, 3_000, 20_000, 60_000])
async def test_a_connection_that_breaks_between_them_loses_nothing(
    chain: Chain, scripts: dict[str, Script], budget: int
) -> None:
    session_id = await chain.session()
    await chain.front.query(session_id, "text")
    cuts = chain.between.cuts
    chain.between.budget = budget
    for prompt in ("tools", "long", "data"):
        await chain.front.query(session_id, prompt)
    front, behind = await chain.told(session_id)
    assert front == behind
    assert types(front).count("agent_run_end") == 4
    assert chain.between.cuts == cuts + 1 or budget > 20_000


async def test_a_turn_whose_connection_is_cut_while_it_runs_goes_on(chain: Chain) -> None:
    step = Step()

    async def run(_: Scope, __: Prompt) -> AsyncIterator[AgentEvent]:
        yield said("before ")
        await step.wait()
        yield said("after")
        yield COMPLETED

    chain.behind.server.agent.for_prompt["cut"] = run
    session_id = await chain.session()
    async with chain.front.query_stream(session_id, "cut") as stream:
        await stream.upto("assistant_message_delta")
        await soon(step.reached.wait())
        chain.between.cut()
        step.passed.set()
        rest = await stream.upto("agent_run_end")
    assert rest[-1]["data"]["status"] == "completed"
    front, behind = await chain.told(session_id)
    assert front == behind
    [message] = [event["content"] for event in front if event["type"] == "assistant_message"]
    assert message == "before after"


async def test_an_abort_in_front_aborts_the_turn_behind(chain: Chain) -> None:
    step = Step()

    async def run(_: Scope, __: Prompt) -> AsyncIterator[AgentEvent]:
        yield said("part")
        yield call("slow", {})
        await step.wait()
        yield COMPLETED

    chain.behind.server.agent.for_prompt["hang"] = run
    session_id = await chain.session()
    async with chain.front.query_stream(session_id, "hang") as stream:
        await stream.upto("tool_call")
        await soon(step.reached.wait())
        receipt = await chain.front.abort(session_id)
        assert (receipt["success"], receipt["status"]) == (True, "aborted")
        assert step.left.is_set(), "the agent behind was still running when the abort was answered"
        await stream.upto("agent_run_end")
    front, behind = await chain.told(session_id)
    assert front == behind
    assert front[-1]["status"] == "aborted"
    chain.behind.server.agent.for_prompt["again"] = saying(said("still here"))
    assert (await chain.front.query(session_id, "again")).json()["response"] == "still here"


async def test_an_abort_behind_fails_the_turn_in_front(chain: Chain) -> None:
    step = Step()

    async def run(_: Scope, __: Prompt) -> AsyncIterator[AgentEvent]:
        yield said("part")
        await step.wait()
        yield COMPLETED

    chain.behind.server.agent.for_prompt["stop"] = run
    session_id = await chain.session()
    asked = asyncio.create_task(chain.front.query(session_id, "stop"))
    await soon(step.reached.wait())
    async with chain.front.stream(session_id) as stream:
        own = (await stream.upto("remote_session"))[-1]["data"]["sessionId"]
    await chain.behind.abort(own)
    answer = await soon(asked)
    assert (answer.status_code, answer.json()["code"]) == (502, "aborted")


async def test_a_session_behind_that_was_deleted_fails_the_turn(chain: Chain) -> None:
    session_id = await chain.session()
    await chain.front.query(session_id, "Hello")
    events = await chain.front.events(session_id)
    [own] = [event["data"]["sessionId"] for event in events if event["type"] == "remote_session"]
    await chain.behind.delete(own)
    answer = await chain.front.query(session_id, "Hello")
    assert (answer.status_code, answer.json()["code"]) == (502, "remote_session_lost")
    assert answer.json()["details"]["retryable"] is False


async def test_a_turn_left_over_behind_does_not_stand_in_the_way(chain: Chain) -> None:
    step = Step()

    async def run(_: Scope, __: Prompt) -> AsyncIterator[AgentEvent]:
        await step.wait()
        yield COMPLETED

    session_id = await chain.session()
    await chain.front.query(session_id, "Hello")
    events = await chain.front.events(session_id)
    [own] = [event["data"]["sessionId"] for event in events if event["type"] == "remote_session"]
    chain.behind.server.agent.for_prompt["left over"] = run
    left = asyncio.create_task(chain.behind.query(own, "left over"))
    await soon(step.reached.wait())
    answer = await chain.front.query(session_id, "Hello")
    assert answer.json()["response"] == "Hello! I'm here to help."
    assert (await soon(left)).json()["status"] == "aborted"


async def test_another_replica_goes_on_with_the_session_behind(
    servers: tuple[Serving, Serving, Proxy], chain: Chain
) -> None:
    behind, front, _ = servers
    agent = front.agent
    assert isinstance(agent, Chained)
    session_id = await chain.session()
    await chain.front.query(session_id, "Hello")
    url = front.application.settings.database_url
    assert url is not None
    remote = agent._agent
    again = TarkoAgent(remote._remote.url, dialect=remote._dialect)
    async with serving(url, Chained(again)) as replica:
        client = await replica.client()
        await client.query(session_id, "Hello")
        told_front, told_behind = await chain.told(session_id)
    assert told_front == told_behind
    assert types(told_front).count("user_message") == 2
    await until(lambda: behind.parts.parts.supervisor.running == 0)
