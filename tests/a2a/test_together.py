"""One turn, watched at once over every way there is, and aborted over each of them: all end alike."""

import asyncio
from typing import Any

import pytest

from tests.a2a.calling import Caller, accumulated, state_of
from tests.a2a.test_contract import waiting
from tests.server import Client, Step, said, saying, soon


@pytest.mark.parametrize("way", ["POST abort", "abort_query", "CancelTask", "tasks/cancel"])
async def test_all_who_watch_see_the_same_text_and_the_same_end(client: Client, way: str) -> None:
    step = Step()
    session_id = await client.session(waiting(step, said("partial "), said("text")))
    new, old = Caller(client), Caller(client, "0.3")
    async with client.stream(session_id) as events, client.socket() as socket:
        await socket.ask({"type": "join_session", "sessionId": session_id}, "session_joined")
        query = asyncio.create_task(client.query(session_id))
        await soon(step.reached.wait())
        turn_id = (await client.status(session_id))["turnId"]
        async with new.subscribe(turn_id) as first, old.subscribe(turn_id) as second:
            told = [[await stream.first()] for stream in (first, second)]
            await abort(client, socket, way, session_id, turn_id)
            for stream, seen in zip((first, second), told, strict=True):
                seen += await stream.rest()
        heard = await events.upto("agent_run_end")
        spoken = await socket.until("agent_run_end")
        answer = (await soon(query)).json()

    for seen in told:
        assert state_of([body for kind, body in seen if kind == "status"][-1]) == "canceled"
        assert list(accumulated(seen).values()) == ["partial text"]
    ends = [event["data"]["status"] for event in (heard[-1], spoken[-1])]
    assert [*ends, answer["status"]] == ["aborted"] * 3
    assert answer["response"] == "partial text"
    assert heard[-1]["id"] == spoken[-1]["id"]


async def abort(client: Client, socket: Any, way: str, session_id: str, turn_id: str) -> None:
    match way:
        case "POST abort":
            await client.abort(session_id)
        case "abort_query":
            await socket.say({"type": "abort_query", "sessionId": session_id})
        case "CancelTask":
            await Caller(client).cancel(turn_id)
        case _:
            await Caller(client, "0.3").cancel(turn_id)


async def test_an_event_is_spelled_as_a_stream_of_its_task_tells_it(caller: Caller) -> None:
    client = caller.client
    session_id = await client.session(saying(said("Hi")))
    await client.query(session_id)
    events = {event["type"]: event["id"] for event in await client.events(session_id)}

    async def spelled(event_id: str) -> list[str]:
        response = await client.get("/a2a/spelling", sessionId=session_id, eventId=event_id)
        return [next(iter(event)) for event in response.raise_for_status().json()["events"]]

    assert await spelled(events["user_message"]) == ["task"]
    assert await spelled(events["agent_run_start"]) == ["statusUpdate", "artifactUpdate"]
    assert await spelled(events["assistant_message_delta"]) == ["artifactUpdate"]
    assert await spelled(events["agent_run_end"]) == ["statusUpdate"]
    assert await spelled(events["session_start"]) == await spelled("999") == []
    for fields, status in (({"sessionId": session_id, "eventId": "evt_x"}, 400), ({"eventId": "1"}, 404)):
        assert (await client.get("/a2a/spelling", **fields)).status_code == status
