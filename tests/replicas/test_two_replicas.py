"""Two replicas on one database: whatever a client wants of a session, either of them does."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest

from app import wiring
from app.agents.contract import AgentEvent, Prompt, Scope
from app.postgres import signals
from tests.conftest import Server, own_database, run_on
from tests.replicas.processes import Pair, pair_of_replicas
from tests.server import (
    COMPLETED,
    Client,
    Json,
    Script,
    Socket,
    Step,
    Stream,
    elapsed,
    places,
    said,
    soon,
    types,
)


@pytest.fixture(scope="module")
async def hinted(embedded_server: Server) -> AsyncIterator[Pair]:
    """Replicas that hear of aborts and deletions by hints alone: neither ever looks for them."""
    async with own_database(embedded_server) as url, AsyncExitStack() as stack:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(wiring, "WATCH_INTERVAL", 3600.0)
            # Nor do they look for each other, who after a long pause of this process would seem to be gone.
            patch.setattr(signals, "LOOK", 3600.0)
            found = await stack.enter_async_context(pair_of_replicas(url))
        yield found


def talking(step: Step) -> Script:
    """Says something, waits for the step, says more."""

    async def agent(_: Scope, __: Prompt) -> AsyncIterator[AgentEvent]:
        yield {"type": "thinking", "delta": "hm"}
        yield said("before ")
        await step.wait()
        yield {"type": "tool_started", "id": "t", "name": "look", "args": {"n": 1.0}}
        yield {"type": "tool_result", "id": "t", "result": "é\u2028"}
        yield said("after")
        yield COMPLETED

    return agent


async def frames_upto(stream: Stream, event_type: str) -> list[str]:
    """The events as they were sent, up to the first of this type."""
    found: list[str] = []
    while not found or json.loads(found[-1])["type"] != event_type:
        found.append((await stream.event()).data or "")
    return found


async def texts_upto(socket: Socket, event_type: str) -> list[str]:
    found: list[str] = []
    while not found or json.loads(found[-1])["type"] != event_type:
        found.append(await socket.hear_text())
    return found


async def join(client: Client, session_id: str, stack: AsyncExitStack) -> Socket:
    socket = await stack.enter_async_context(client.socket())
    await socket.ask({"type": "join_session", "sessionId": session_id, "after": "0"}, "session_joined")
    return socket


def endings(events: list[Json]) -> list[str]:
    return [event["data"]["status"] for event in events if event["type"] == "agent_run_end"]


async def start(client: Client, session_id: str, step: Step, **fields: str) -> "asyncio.Task[Json]":
    """A query whose agent has reached the step."""

    async def ask() -> Json:
        answer: Json = (await client.query(session_id, **fields)).json()
        return answer

    query = asyncio.create_task(ask())
    await soon(step.reached.wait())
    return query


async def assert_one_log(pair: Pair, session_id: str) -> list[Json]:
    """Both replicas tell the same log, without a gap; returns it."""
    one, two = [await client.events(session_id) for client in (pair.one, pair.two)]
    assert one == two
    assert places(one) == list(range(1, len(one) + 1))
    return one


async def test_readers_here_follow_a_turn_that_runs_there_byte_for_byte(pair: Pair) -> None:
    step = Step()
    session = await pair.one.session(talking(step))
    async with (
        AsyncExitStack() as stack,
        pair.one.stream(session) as here,
        pair.two.stream(session) as there,
    ):
        sockets = [await join(client, session, stack) for client in (pair.one, pair.two)]
        query = await start(pair.two, session, step)
        begun = await frames_upto(here, "assistant_message_delta")
        late = await stack.enter_async_context(pair.one.stream(session))
        sockets.append(await join(pair.one, session, stack))
        assert await frames_upto(late, "assistant_message_delta") == begun
        step.passed.set()
        answer = await soon(query)

        seen = await frames_upto(there, "agent_run_end")
        assert begun + await frames_upto(here, "agent_run_end") == seen
        assert begun + await frames_upto(late, "agent_run_end") == seen
        heard = [await texts_upto(socket, "agent_run_end") for socket in sockets]
        assert heard[0] == heard[1] == heard[2] == seen

    pages = [
        await client.get("/api/v1/sessions/events", sessionId=session, deltas="true", after="0")
        for client in (pair.one, pair.two)
    ]
    assert pages[0].content == pages[1].content
    assert all(frame in pages[0].text for frame in seen)
    assert answer["response"] == "before after"
    assert places(map(json.loads, seen)) == list(range(1, len(seen) + 1))


async def test_readers_whose_hints_are_lost_see_the_turn_all_the_same(
    embedded_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F11: the replica's listening connection is cut, and does not come back."""
    monkeypatch.setattr(signals, "RETRY", 3600.0)
    step = Step()
    async with pair_of_replicas(embedded_database) as pair:
        session = await pair.one.session(talking(step))
        async with pair.one.stream(session) as here, pair.two.stream(session) as there:
            await run_on(embedded_database, f"SELECT pg_terminate_backend({pair.listeners[0]})")
            query = await start(pair.two, session, step)
            begun = await frames_upto(here, "assistant_message_delta")
            step.passed.set()
            await soon(query)
            seen = begun + await frames_upto(here, "agent_run_end")
            assert seen == await frames_upto(there, "agent_run_end")


async def test_an_abort_here_stops_the_turn_there_at_once(hinted: Pair) -> None:
    step = Step()
    session = await hinted.one.session(talking(step))
    query = await start(hinted.two, session, step)
    status = await hinted.one.status(session)
    assert (status["isProcessing"], status) == (True, await hinted.two.status(session))

    since = time.monotonic()
    receipt = await soon(hinted.one.abort(session))
    print(f"abort through the other replica: {elapsed(since) * 1000:.0f} ms")  # noqa: T201 - shown with -s
    assert step.left.is_set()
    log = await assert_one_log(hinted, session)
    assert receipt == {
        "success": True, "turnId": status["turnId"], "status": "aborted", "lastEventId": log[-1]["id"],
    }  # fmt: skip
    assert endings(log) == ["aborted"]
    answer = await soon(query)
    assert (answer["status"], answer["response"]) == ("aborted", "before ")
    assert not (await hinted.one.status(session))["isProcessing"]
    assert not (await hinted.two.status(session))["isProcessing"]
    late = await hinted.two.abort(session, turnId=status["turnId"])
    assert (late["success"], late["status"]) == (False, "aborted")
    step.passed.set()
    assert (await hinted.one.query(session)).status_code == 200


async def test_an_abort_on_a_socket_here_stops_the_turn_there(hinted: Pair) -> None:
    step = Step()
    session = await hinted.one.session(talking(step))
    query = await start(hinted.two, session, step)
    async with AsyncExitStack() as stack:
        socket = await join(hinted.one, session, stack)
        await socket.say({"type": "abort_query", "sessionId": session})
        heard = await socket.until("agent_run_end")
        assert heard[-1]["data"]["status"] == "aborted"
    assert (await soon(query))["status"] == "aborted"
    assert endings(await assert_one_log(hinted, session)) == ["aborted"]


async def test_an_abort_whose_hint_is_lost_reaches_the_owner_by_its_row(
    embedded_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(signals, "RETRY", 3600.0)
    step = Step()
    async with pair_of_replicas(embedded_database) as pair:
        session = await pair.one.session(talking(step))
        query = await start(pair.two, session, step)
        await run_on(embedded_database, f"SELECT pg_terminate_backend({pair.listeners[1]})")
        assert (await soon(pair.one.abort(session)))["success"]
        assert (await soon(query))["status"] == "aborted"


async def test_aborts_here_and_there_at_once_end_the_turn_once(pair: Pair) -> None:
    step = Step()
    session = await pair.one.session(talking(step))
    query = await start(pair.two, session, step)
    receipts = await asyncio.gather(*(client.abort(session) for client in [pair.one, pair.two] * 5))
    told = [receipt for receipt in receipts if "turnId" in receipt]
    assert {receipt["status"] for receipt in told} == {"aborted"}
    assert any(receipt["success"] for receipt in told)
    assert (await soon(query))["status"] == "aborted"
    assert endings(await assert_one_log(pair, session)) == ["aborted"]


async def test_a_session_deleted_here_ends_its_turn_there_and_tells_the_readers_of_both(hinted: Pair) -> None:
    step = Step()
    session = await hinted.one.session(talking(step))
    async with hinted.one.stream(session) as here, hinted.two.stream(session) as there:
        query = await start(hinted.two, session, step)
        assert (await soon(hinted.one.delete(session))).status_code == 200
        assert step.left.is_set()
        seen = await frames_upto(here, "session_end")
        assert seen == await frames_upto(there, "session_end")
        assert [await stream.rest() for stream in (here, there)] == [[], []]
    assert endings([json.loads(frame) for frame in seen]) == ["aborted"]
    assert (await soon(query))["status"] == "aborted"
    for client in (hinted.one, hinted.two):
        assert (await client.query(session)).json()["code"] == "session_deleted"


async def test_a_turn_queued_here_runs_when_the_one_there_has_ended(pair: Pair) -> None:
    step = Step()
    session = await pair.one.session(talking(step))
    first = await start(pair.two, session, step)
    async with pair.one.query_stream(session, onBusy="queue") as stream:
        notice = await stream.event()
        assert notice.type == "query_queued"
        for client in (pair.one, pair.two):
            assert (await client.status(session))["queued"] == 1
            waiting = (await client.get("/api/v1/sessions/queue", sessionId=session)).json()["queue"]
            assert [turn["turnId"] for turn in waiting] == [notice.json["data"]["turnId"]]
        step.passed.set()
        seen = await stream.upto("agent_run_end")
    assert (await soon(first))["status"] == "completed"
    assert {event["data"]["turnId"] for event in seen if event["type"].startswith("agent_run")} == {
        notice.json["data"]["turnId"]
    }
    assert endings(await assert_one_log(pair, session)) == ["completed", "completed"]


async def test_a_turn_queued_here_is_removed_there(pair: Pair) -> None:
    step = Step()
    session = await pair.one.session(talking(step))
    first = await start(pair.two, session, step)
    async with pair.one.query_stream(session, onBusy="queue") as stream:
        turn_id = (await stream.event()).json["data"]["turnId"]
        assert await pair.two.abort(session, turnId=turn_id) == {
            "success": True, "turnId": turn_id, "status": "removed",
        }  # fmt: skip
        farewell = await stream.upto("error")
        assert farewell[-1]["data"]["code"] == "turn_removed"
    step.passed.set()
    assert (await soon(first))["status"] == "completed"
    assert endings(await assert_one_log(pair, session)) == ["completed"]


async def test_a_query_here_interrupts_the_turn_there(hinted: Pair) -> None:
    steps = [Step(), Step()]
    steps[1].passed.set()
    scripts = [talking(step) for step in steps]
    session = await hinted.one.session(lambda scope, prompt: scripts.pop(0)(scope, prompt))
    first = await start(hinted.two, session, steps[0])
    answer = (await soon(hinted.one.query(session, onBusy="interrupt"))).json()
    assert (answer["status"], answer["response"]) == ("completed", "before after")
    assert (await soon(first))["status"] == "aborted"
    log = await assert_one_log(hinted, session)
    assert endings(log) == ["aborted", "completed"]
    runs = [kind for kind in types(log) if kind in ("agent_run_start", "agent_run_end")]
    assert runs == ["agent_run_start", "agent_run_end"] * 2


async def test_a_key_repeated_on_the_other_replica_is_the_same_turn(pair: Pair) -> None:
    step = Step()
    session = await pair.one.session(talking(step))
    body = {"sessionId": session, "query": "once"}

    async def query(client: Client, **fields: str) -> tuple[int, Json]:
        answer = await client.post("/api/v1/sessions/query", body | fields, idempotency_key="k")
        return answer.status_code, answer.json()

    first = asyncio.create_task(query(pair.two))
    await soon(step.reached.wait())
    joined = [asyncio.create_task(query(client)) for client in (pair.one, pair.two, pair.one)]
    assert (await query(pair.one, query="another"))[0] == 422
    step.passed.set()
    outcomes = [await soon(each) for each in (first, *joined)]
    outcomes.append(await query(pair.one))
    assert outcomes == [outcomes[0]] * 5
    assert outcomes[0][0] == 200
    assert endings(await assert_one_log(pair, session)) == ["completed"]


async def test_many_repeats_of_one_key_on_both_replicas_start_one_turn(pair: Pair) -> None:
    """D29."""
    session = await pair.one.session()
    body = {"sessionId": session, "query": "once"}
    answers = await asyncio.gather(
        *(
            client.post("/api/v1/sessions/query", body, idempotency_key="k")
            for client in [pair.one, pair.two] * 15
        )
    )
    assert {answer.status_code for answer in answers} == {200}
    assert len({answer.json()["turnId"] for answer in answers}) == 1
    assert endings(await assert_one_log(pair, session)) == ["completed"]


async def test_many_queries_on_both_replicas_run_one_after_another(pair: Pair) -> None:
    """D11: none is lost, none overlaps, whoever starts them."""
    session = await pair.one.session()
    answers = await asyncio.gather(
        *(pair.one.query(session, str(n), onBusy="queue") for n in range(5)),
        *(pair.two.query(session, str(n), onBusy="queue") for n in range(5, 10)),
    )
    assert {answer.status_code for answer in answers} == {200}
    log = await assert_one_log(pair, session)
    runs = [kind for kind in types(log) if kind in ("agent_run_start", "agent_run_end")]
    assert runs == ["agent_run_start", "agent_run_end"] * 10
    asked = [event["data"]["content"] for event in log if event["type"] == "user_message"]
    assert sorted(asked) == [str(n) for n in range(10)]


async def test_what_a_client_appends_here_lies_between_the_events_of_a_turn_there(pair: Pair) -> None:
    async def chatty(_: Scope, __: Prompt) -> AsyncIterator[AgentEvent]:
        for number in range(300):
            yield said(f"{number} ")
            await asyncio.sleep(0)
            if number == 150:
                await half.wait()
        yield COMPLETED

    half = Step()
    session = await pair.one.session(chatty)
    async with pair.one.stream(session) as here, pair.two.stream(session) as there:
        query = asyncio.create_task(pair.two.query(session))
        for number in range(20):
            assert (await pair.one.append(session, "user_feedback", number)).status_code < 300
        await soon(half.reached.wait())
        half.passed.set()
        for number in range(20, 30):
            assert (await pair.one.append(session, "user_feedback", number)).status_code < 300
        assert (await soon(query)).status_code == 200
        log = await assert_one_log(pair, session)
        for stream in (here, there):
            seen: list[Json] = []
            while len(seen) < len(log):
                seen.append((await stream.event()).json)
            assert seen == log
    notes = [event["data"] for event in log if event["type"] == "user_feedback"]
    assert notes == list(range(30))
    assert endings(log) == ["completed"]
