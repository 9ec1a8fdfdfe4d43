"""Every client against the real server, over a network that breaks and a server that is replaced in mid-turn."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from app.agents.contract import AgentEvent, Prompt, Scope
from tarko_client.reading import Transport
from tests.clients.drivers import Job, Result, Run
from tests.clients.network import open_network
from tests.clients.scenarios import Fault
from tests.server import COMPLETED, Client, Scripted, Serving, Step, said, serving, soon

TRANSPORTS: tuple[Transport, ...] = ("sse", "websocket")
OVER = "that_is_all"
SWEEP = [Fault(cut_after=size) for size in range(150, 4000, 70)]


@pytest.fixture(autouse=True)
def soon_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server asks readers to come back after 1 to 3 seconds; here after as many milliseconds."""
    monkeypatch.setattr("app.transport.sse.RETRY_MS", (1, 3))


@pytest.fixture(params=TRANSPORTS)
def transport(request: pytest.FixtureRequest) -> Transport:
    found: Transport = request.param
    return found


async def talkative(_: Scope, __: Prompt) -> AsyncIterator[AgentEvent]:
    yield {"type": "thinking", "delta": "Hm\u2028"}
    for number in range(40):
        yield said(f"word {number} ")
        await asyncio.sleep(0)
    yield COMPLETED


async def ended(client: Client, session_id: str) -> list[Any]:
    """Write the event at which readers stop; returns the log."""
    assert (await client.append(session_id, OVER)).status_code == 201
    return await client.events(session_id)


async def test_a_follower_over_a_breaking_network_sees_exactly_the_log(
    embedded_database: str, run: Run, transport: Transport
) -> None:
    async with serving(embedded_database) as server, open_network(_port(server)) as network:
        client = await server.client()
        session_id = await client.session(talkative)
        network.expect(SWEEP)
        following = asyncio.create_task(
            run(Job(network.url, session_id, transport, after=0, stop_at=OVER)), name="follower"
        )
        for _ in range(2):
            assert (await client.query(session_id)).status_code == 200
        network.cut()
        log = await ended(client, session_id)
        result: Result = await soon(following)
    assert result.events == log
    assert result.error is None
    assert len(network.began) > 1


async def test_a_query_over_a_breaking_network_is_one_turn(embedded_database: str, run: Run) -> None:
    async with serving(embedded_database) as server, open_network(_port(server)) as network:
        client = await server.client()
        session_id = await client.session(talkative)
        network.expect([Fault(drop=True), *SWEEP])
        result = await soon(run(Job(network.url, session_id, do="stream")))
        log = await client.events(session_id)
    assert result.error is None
    assert result.events == log[1:]
    assert len(network.began) > 2


async def test_a_server_that_is_replaced_in_mid_turn_is_no_loss(
    embedded_database: str, run: Run, transport: Transport
) -> None:
    step = Step()
    agent = Scripted()

    async def slow(_: Scope, __: Prompt) -> AsyncIterator[AgentEvent]:
        yield said("before ")
        await step.wait()
        yield said("never")

    async with open_network(0) as network:
        async with serving(embedded_database, agent, drain_grace=0.2) as first:
            network.target_port = _port(first)
            client = await first.client()
            session_id = await client.session(slow)
            following = asyncio.create_task(
                run(Job(network.url, session_id, transport, after=0, stop_at=OVER)), name="follower"
            )
            asking = asyncio.create_task(run(Job(network.url, session_id, do="stream")), name="asker")
            await soon(step.reached.wait())
        async with serving(embedded_database, Scripted()) as second:
            network.target_port = _port(second)
            answer = await soon(asking)
            client = await second.client()
            assert (await client.query(session_id)).status_code == 200
            log = await ended(client, session_id)
            result = await soon(following)
    assert result.events == log
    ending = next(n for n, event in enumerate(log) if event["type"] == "agent_run_end")
    assert answer.events == log[1 : ending + 1]


async def test_two_readers_stop_where_they_like_and_resume_there(
    embedded_database: str, run: Run, transport: Transport
) -> None:
    async with serving(embedded_database) as server:
        client = await server.client()
        session_id = await client.session(talkative)
        await client.query(session_id)
        log = await client.events(session_id)
        head = await run(Job(server.url, session_id, transport, after=0, stop_after=7))
        tail = await run(
            Job(server.url, session_id, transport, after=head.events[-1]["id"], stop_after=len(log) - 7)
        )
    assert head.events + tail.events == log
    assert head.states == ["connecting", "live", "closed"]


def _port(server: Serving) -> int:
    return int(server.url.rpartition(":")[2])
