"""Aborts, by HTTP and by socket: the answer comes when the ending is durable, and the session is usable at once."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from app.agents.contract import AgentEvent, Prompt, Scope
from tests.conftest import Server, own_database
from tests.server import (
    COMPLETED,
    Client,
    Json,
    Script,
    Step,
    said,
    saying,
    serving,
    short_bounds,
    soon,
    types,
)

ABORT = "/api/v1/sessions/abort"


def asleep_in_a_tool(step: Step) -> Script:
    """Says something, starts a tool, and sleeps in it."""

    async def agent(_: Scope, __: Prompt) -> AsyncIterator[AgentEvent]:
        yield {"type": "thinking", "delta": "hm"}
        yield said("partial ")
        yield said("text")
        yield {"type": "tool_started", "id": "t", "name": "sleep", "args": {}}
        await step.wait()
        yield COMPLETED

    return agent


async def aborted(client: Client, session_id: str, way: str) -> Json:
    """The answer to an abort by this way."""
    if way == "http":
        return await client.abort(session_id)
    async with client.socket() as socket:
        data: Json = (await socket.ask({"type": "abort_query", "sessionId": session_id}, "abort_result"))[
            "data"
        ]
        return data


@pytest.mark.parametrize("way", ["http", "socket"])
async def test_an_agent_asleep_in_a_tool_is_stopped_and_what_it_said_is_kept(
    client: Client, way: str
) -> None:
    step = Step()
    session_id = await client.session(asleep_in_a_tool(step))
    turn = asyncio.create_task(client.query(session_id))
    await soon(step.reached.wait())

    receipt = await aborted(client, session_id, way)

    assert step.left.is_set(), "the agent's finally ran"
    events = (await client.page(session_id))["events"]
    assert receipt == {
        "success": True,
        "turnId": events[-1]["data"]["turnId"],
        "status": "aborted",
        "lastEventId": events[-1]["id"],
    }
    assert types(events) == [
        "session_start",
        "user_message",
        "agent_run_start",
        "assistant_thinking_message",
        "assistant_message_start",
        "assistant_message",
        "tool_call",
        "tool_execution_start",
        "assistant_message_start",
        "assistant_message",
        "tool_result",
        "error",
        "agent_run_end",
    ]
    said_before, result, error, end = events[5], events[-3], events[-2], events[-1]
    assert said_before["data"]["content"] == "partial text"
    assert result["data"]["success"] is False
    assert result["data"]["error"] == "aborted"
    assert (error["data"]["code"], error["data"]["recoverable"]) == ("aborted", True)
    assert end["data"]["status"] == "aborted"
    answer = await soon(turn)
    assert (answer.status_code, answer.json()["status"]) == (200, "aborted")
    assert answer.json()["response"] == "partial text"
    client.server.agent.in_session[session_id] = saying(said("next"))
    assert (await client.query(session_id)).json()["response"] == "next"


@pytest.mark.parametrize("way", ["http", "socket"])
async def test_a_turn_can_be_aborted_before_its_first_event(client: Client, way: str) -> None:
    step = Step()

    async def agent(_: Scope, __: Prompt) -> AsyncIterator[AgentEvent]:
        await step.wait()
        yield COMPLETED

    session_id = await client.session(agent)
    turn = asyncio.create_task(client.query(session_id))
    await soon(step.reached.wait())

    assert (await aborted(client, session_id, way))["status"] == "aborted"

    answer = (await soon(turn)).json()
    assert (answer["status"], answer["response"]) == ("aborted", "")
    assert types(answer["events"])[-3:] == ["assistant_message", "error", "agent_run_end"]


async def test_a_query_and_an_abort_sent_together_leave_the_session_idle(client: Client) -> None:
    """D12: whichever comes first."""
    for _ in range(10):
        step = Step()
        session_id = await client.session(asleep_in_a_tool(step))
        turn = asyncio.create_task(client.query(session_id))
        receipt = await client.abort(session_id)
        if not receipt["success"]:
            await soon(step.reached.wait())
            assert (await client.abort(session_id))["success"] is True
        assert (await soon(turn)).json()["status"] == "aborted"
        assert (await client.status(session_id))["isProcessing"] is False


async def test_only_one_of_several_aborts_is_the_one_that_did_it(client: Client) -> None:
    step = Step()
    session_id = await client.session(asleep_in_a_tool(step))
    turn = asyncio.create_task(client.query(session_id))
    await soon(step.reached.wait())

    receipts = await asyncio.gather(*(client.abort(session_id) for _ in range(5)))
    late = await client.abort(session_id)

    assert sorted(receipt["success"] for receipt in receipts) in ([False] * 4 + [True], [False] * 4 + [True])
    assert {receipt.get("status", "aborted") for receipt in receipts} == {"aborted"}
    assert late == {"success": False}
    assert types((await soon(turn)).json()["events"]).count("agent_run_end") == 1


async def test_an_abort_after_completion_changes_nothing(client: Client) -> None:
    """D13: with the turn's id it tells how the turn ended; without, that nothing runs."""
    session_id = await client.session()
    turn_id = (await client.query(session_id)).json()["turnId"]
    before = await client.events(session_id)

    unnamed = [await client.abort(session_id) for _ in range(2)]
    named = await client.abort(session_id, turnId=turn_id)

    assert unnamed == [{"success": False}] * 2
    assert named == {
        "success": False,
        "turnId": turn_id,
        "status": "completed",
        "lastEventId": before[-1]["id"],
    }
    assert await client.events(session_id) == before


async def test_a_stale_abort_does_not_hit_the_next_turn(client: Client) -> None:
    session_id = await client.session()
    stale = (await client.query(session_id)).json()["turnId"]
    step = Step()
    client.server.agent.in_session[session_id] = asleep_in_a_tool(step)
    turn = asyncio.create_task(client.query(session_id))
    await soon(step.reached.wait())

    receipt = await client.abort(session_id, turnId=stale)
    status = await client.status(session_id)
    step.passed.set()

    assert receipt["success"] is False
    assert receipt["status"] == "completed"
    assert status["isProcessing"] is True
    assert (await soon(turn)).json()["status"] == "completed"


async def test_the_running_turn_can_be_aborted_by_name(client: Client) -> None:
    step = Step()
    session_id = await client.session(asleep_in_a_tool(step))
    turn = asyncio.create_task(client.query(session_id))
    await soon(step.reached.wait())
    turn_id = (await client.status(session_id))["turnId"]

    assert (await client.abort(session_id, turnId=turn_id))["success"] is True
    assert (await soon(turn)).json()["turnId"] == turn_id


@pytest.mark.parametrize("odd", ["turn_" + "a" * 26, "x", "", "\x00", "a\u2028b"])
async def test_a_turn_that_the_session_never_had_is_not_found(client: Client, odd: str) -> None:
    session_id, other = await client.session(), await client.session()
    elsewhere = (await client.query(other)).json()["turnId"]
    for turn_id in (odd, elsewhere):
        response = await client.post(ABORT, {"sessionId": session_id, "turnId": turn_id})
        assert (response.status_code, response.json()["code"]) == (404, "turn_not_found")


async def test_an_agent_that_swallows_every_cancel_is_given_up_on(
    embedded_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.wiring.Limits", short_bounds())
    released = asyncio.Event()

    async def stubborn(_: Scope, __: Prompt) -> AsyncIterator[AgentEvent]:
        yield said("never mind")
        while not released.is_set():
            try:
                await released.wait()
            except asyncio.CancelledError:
                continue
        yield said("too late")

    async with own_database(embedded_server) as url, serving(url) as server:
        client = await server.client()
        session_id = await client.session(stubborn)
        async with client.query_stream(session_id) as stream:
            await stream.upto("assistant_message_delta")
            receipt = await client.abort(session_id)
            events = [frame.json for frame in await stream.rest() if frame.data is not None]
        metrics = (await client.get("/metrics")).text
        server.agent.in_session[session_id] = saying(said("next"))
        answer = (await client.query(session_id)).json()
        released.set()
        history = await client.events(session_id)

    assert receipt["success"] is True
    assert receipt["status"] == "aborted"
    assert types(events)[-3:] == ["assistant_message", "error", "agent_run_end"]
    assert events[-3]["data"]["content"] == "never mind"
    assert "tarko_abandoned_agents 1.0" in metrics
    assert answer["response"] == "next"
    assert "too late" not in str(history)
