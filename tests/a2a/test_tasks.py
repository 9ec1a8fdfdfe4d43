"""Tasks beside Agent Kourier's rows: questions that end otherwise, lists, outages, and what Tarko sees of it."""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import replace
from typing import Any

import httpx
import pytest

from app.agents.contract import AgentEvent
from app.dialects.a2a import tasks
from app.errors import StorageUnavailable, TarkoError
from app.events.ids import new_turn_id
from app.log import session_log, writers
from app.log.session_log import Page, SessionLog
from app.log.store import Slice
from app.postgres.exchange_store import PostgresExchangeStore
from app.transport.readers import Registration
from app.turns.stops import Stops
from tests.a2a.calling import Caller, accumulated, message_ids, state_of, status_text, texts_of
from tests.a2a.test_contract import asking, plays, waiting
from tests.conftest import Server, own_database
from tests.server import COMPLETED, PATIENCE, Client, Json, Step, said, saying, serving, soon, types, until


async def paused(caller: Caller) -> Json:
    """A task that asks."""
    plays(caller.client, "ask", asking())
    task = await caller.send("ask")
    assert state_of(task) == "input-required"
    return task


async def test_a_question_is_canceled_and_whoever_follows_is_told(caller: Caller) -> None:
    task = await paused(caller)
    async with caller.subscribe(task["id"]) as told:
        assert state_of((await told.first())[1]) == "input-required"
        canceled = await caller.cancel(task["id"])
        await told.until("status", "canceled")
        await told.rest()
    assert state_of(canceled) == state_of(await caller.get(task["id"])) == "canceled"
    assert "message" not in canceled["status"]
    assert await caller.error("CancelTask", {"id": task["id"]}) == -32002
    answer = caller.message("Aarhus", taskId=task["id"])
    assert await caller.error("SendMessage", {"message": answer}) == -32004
    assert state_of(await caller.send("next", contextId=task["contextId"])) == "completed"


async def test_a_question_is_closed_when_the_session_goes_on_without_an_answer(
    client: Client, caller: Caller
) -> None:
    task = await paused(caller)
    async with caller.subscribe(task["id"]) as told:
        await told.first()
        await client.query(task["contextId"], "something else")
        await told.until("status", "canceled")
    assert state_of(await caller.get(task["id"])) == "canceled"


async def test_a_subscription_to_a_question_sees_its_answer(client: Client, caller: Caller) -> None:
    task = await paused(caller)
    plays(client, "Aarhus", asking())
    async with caller.subscribe(task["id"]) as told:
        await told.first()
        await caller.send("Aarhus", taskId=task["id"], contextId=task["contextId"])
        states = [state_of(body) for kind, body in await told.rest() if kind == "status"]
    assert states == ["working", "completed"]


async def test_a_subscription_stays_through_a_question_that_it_is_told(
    client: Client, caller: Caller
) -> None:
    step = Step()

    async def agent(*_: Any) -> AsyncIterator[AgentEvent]:
        await step.wait()
        yield {"type": "input_required", "text": "Which city?"}
        yield COMPLETED

    plays(client, "ask later", agent)
    plays(client, "Aarhus", asking())
    async with caller.send_stream("ask later") as sent:
        task = (await sent.first())[1]
        async with caller.subscribe(task["id"]) as told:
            await told.first()
            step.passed.set()
            asked = await told.until("status", "input-required")
            assert caller.version == "1.0" or not asked["final"]
            await caller.send("Aarhus", taskId=task["id"])
            await told.until("status", "completed")


async def test_the_stream_of_an_answer_begins_where_the_answer_does(client: Client, caller: Caller) -> None:
    task = await paused(caller)
    step = Step()
    plays(client, "Aarhus", waiting(step))
    async with caller.send_stream("Aarhus", taskId=task["id"]) as told:
        opening = await told.first()
        assert state_of(opening[1]) == "working"
        step.passed.set()
        events = await told.rest()
    told_states = [state_of(body) for kind, body in events if kind == "status"]
    assert told_states == ["completed"], "that it works, the task has said"
    done = await caller.get(task["id"])
    assert list(accumulated([opening, *events]).values()) == texts_of(done)


async def test_a_question_can_be_followed_by_another_in_the_same_task(client: Client, caller: Caller) -> None:
    task = await paused(caller)
    again = await caller.send("ask", taskId=task["id"])
    assert (again["id"], state_of(again), status_text(again)) == (task["id"], "input-required", "Which city?")
    assert again["status"]["message"]["messageId"] != task["status"]["message"]["messageId"]
    plays(client, "Aarhus", asking())
    done = await caller.send("Aarhus", taskId=task["id"])
    assert (done["id"], state_of(done), len(done["history"])) == (task["id"], "completed", 5)


async def test_a_turn_that_answers_is_no_task_of_its_own(client: Client, new_caller: Caller) -> None:
    task = await paused(new_caller)
    plays(client, "Aarhus", asking())
    await new_caller.send("Aarhus", taskId=task["id"])
    runs = (await client.page(task["contextId"], types="agent_run_start"))["events"]
    answering = runs[-1]["data"]["turnId"]
    assert await new_caller.error("GetTask", {"id": answering}) == -32001
    listed = await new_caller.list(contextId=task["contextId"])
    assert [each["id"] for each in listed["tasks"]] == [task["id"]]


async def test_tarko_sees_the_question_and_that_the_turn_completed(client: Client, caller: Caller) -> None:
    task = await paused(caller)
    events = await client.events(task["contextId"])
    assert [event["data"] for event in events if event["type"] == "input_required"] == [
        {"text": "Which city?"}
    ]
    assert events[-1]["data"]["status"] == "completed"
    assert (
        await client.append(task["contextId"], "question_closed", {"turnId": task["id"]})
    ).status_code == 400


async def test_a_turn_of_tarko_is_a_task_and_a_task_a_turn_of_tarko(client: Client, caller: Caller) -> None:
    answer = (await client.query(session_id := await client.session())).json()
    task = await caller.get(answer["turnId"])
    assert (task["contextId"], texts_of(task)) == (session_id, [answer["response"]])
    sent = await caller.send("hi", contextId=session_id)
    seen = await client.page(session_id, turnId=sent["id"])
    assert types(seen["events"])[0] == "user_message"


async def test_a_list_is_filtered_and_has_artifacts_if_asked(client: Client, new_caller: Caller) -> None:
    step = Step()
    plays(client, "fail", saying({"type": "failed", "details": "no", "retryable": False}, ends=False))
    plays(client, "run", waiting(step, said("partial")))
    task = await paused(new_caller)
    context = task["contextId"]
    failed = await new_caller.send("fail", contextId=context)
    completed = await new_caller.send("hi", contextId=context)
    async with new_caller.send_stream("run", contextId=context) as told:
        running = (await told.first())[1]
        await soon(step.reached.wait())
        by_state = {"WORKING": running, "FAILED": failed, "COMPLETED": completed, "CANCELED": task}
        for state, one in by_state.items():
            page = await new_caller.list(
                contextId=context, status=f"TASK_STATE_{state}", includeArtifacts=True
            )
            assert [(each["id"], page["totalSize"]) for each in page["tasks"]] == [(one["id"], 1)], state
        assert texts_of(page["tasks"][0]) == ["Let me see. "]
        await new_caller.cancel(running["id"])
    assert (await new_caller.list(contextId=context, status="TASK_STATE_AUTH_REQUIRED"))["tasks"] == []
    short = await new_caller.list(contextId=context, historyLength=0)
    assert [each["history"] for each in short["tasks"]] == [[]] * 4
    late = await new_caller.list(contextId=context, statusTimestampAfter="2100-01-01T00:00:00Z")
    assert (late["tasks"], late["nextPageToken"]) == ([], "")


async def test_a_list_with_large_answers_ends_its_page_early(
    new_caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tasks, "LIST_BYTES", 20)
    first = await new_caller.send("one")
    sent = [
        first["id"],
        *[(await new_caller.send("x", contextId=first["contextId"]))["id"] for _ in range(3)],
    ]
    found: list[str] = []
    token = ""
    pages = 0
    while pages == 0 or token:
        page = await new_caller.list(contextId=first["contextId"], includeArtifacts=True, pageToken=token)
        found += [task["id"] for task in page["tasks"]]
        token = page["nextPageToken"]
        pages += 1
    assert (found, pages) == (sent[::-1], 4)


async def test_all_contexts_of_a_caller_are_listed(new_caller: Caller) -> None:
    one, two = await new_caller.send(contextId="listed-by-name"), await new_caller.send()
    listed = await new_caller.list(pageSize=100)
    contexts = {task["id"]: task["contextId"] for task in listed["tasks"]}
    assert (contexts[one["id"]], contexts[two["id"]]) == ("listed-by-name", two["contextId"])


async def test_an_outage_while_a_message_is_waited_for_is_waited_out(
    caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    follow = SessionLog.follow
    outages: list[int] = []

    async def away_at_first(log: SessionLog, after: int) -> AsyncIterator[Page]:
        if not outages:
            outages.append(after)
            raise StorageUnavailable("away")
        async with aclosing(follow(log, after)) as pages:
            async for page in pages:
                yield page

    monkeypatch.setattr(SessionLog, "follow", away_at_first)
    assert state_of(await caller.send()) == "completed"
    assert len(outages) == 1


async def test_a_session_that_is_deleted_ends_what_waits_in_it(client: Client, caller: Caller) -> None:
    step = Step()
    session_id = await client.session(waiting(step))
    waits = asyncio.create_task(
        caller.post("SendMessage", {"message": caller.message("x", contextId=session_id)})
    )
    await soon(step.reached.wait())
    turn_id = (await client.status(session_id))["turnId"]
    async with caller.subscribe(turn_id) as told:
        await told.first()
        await client.delete(session_id)
        assert [state_of(body) for kind, body in await told.rest() if kind == "status"] == ["canceled"]
    result = (await soon(waits)).json()["result"]
    assert state_of(result.get("task", result)) == "canceled"


async def test_a_log_that_ends_before_its_turn_has_lost_its_session(
    caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def over(*_: Any) -> AsyncIterator[Page]:
        for page in list[Page]():
            yield page

    monkeypatch.setattr(SessionLog, "follow", over)
    assert await caller.error("SendMessage", {"message": caller.message()}) == -32001


async def test_a_stream_whose_task_cannot_be_read_at_its_end_just_ends(
    new_caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(*_: Any) -> Any:
        raise StorageUnavailable("away")

    async with new_caller.send_stream() as told:
        monkeypatch.setattr(PostgresExchangeStore, "get", away)
        events = await told.rest()
    assert (events[-1][0], state_of(events[-1][1])) == ("status", "completed")


def reader_of(client: Client, task: Json) -> Registration:
    """The reader of the task's session; those of other tests may still be there."""
    readers = client.server.parts.a2a.readers
    [reader] = [each for each in readers._open if each.outlet._log.session_id == task["contextId"]]
    return reader


async def test_a_paused_tasks_heartbeat_is_no_new_question(client: Client, new_caller: Caller) -> None:
    """A status that asks, but without its question, would be another one that cannot be shown."""
    task = await paused(new_caller)
    async with new_caller.subscribe(task["id"]) as told:
        await told.first()
        reader = reader_of(client, task)
        assert callable(reader.ping)
        assert reader.ping()["body"] == b": ping\n\n"
        await new_caller.cancel(task["id"])


async def test_a_heartbeat_says_the_state_that_was_told_last(client: Client, new_caller: Caller) -> None:
    task = await paused(new_caller)
    step = Step()
    plays(client, "Aarhus", waiting(step))
    async with new_caller.subscribe(task["id"]) as told:
        await told.first()
        answering = asyncio.create_task(new_caller.send("Aarhus", taskId=task["id"]))
        await told.until("status", "working")
        reader = reader_of(client, task)
        assert callable(reader.ping)
        assert b'"TASK_STATE_WORKING"' in reader.ping()["body"]
        step.passed.set()
        await told.until("status", "completed")
    await soon(answering)


async def test_a_stream_that_has_ended_leaves_nothing_behind(client: Client, new_caller: Caller) -> None:
    parts = client.server.parts.a2a
    async with new_caller.send_stream() as told:
        task = (await told.rest())[-1][1]
    await until(lambda: parts.logs.live(task["contextId"]) is None)
    await until(lambda: len(parts.readers) == len(parts.readers._on_drain) == 0)


async def test_a_stream_that_is_broken_off_does_not_look_complete(client: Client, new_caller: Caller) -> None:
    step = Step()
    plays(client, "cut off", waiting(step))
    async with new_caller.send_stream("cut off") as told:
        task = (await told.first())[1]
        await told.until("status", "working")
        reader_of(client, task).outlet.close(TimeoutError("too slow"))
        with pytest.raises(httpx.RemoteProtocolError):
            await told.rest()
    step.passed.set()


async def test_a_caller_that_goes_stops_nothing(client: Client, caller: Caller) -> None:
    step = Step()
    plays(client, "gone", waiting(step))
    async with caller.send_stream("gone") as told:
        task = (await told.first())[1]
        await soon(step.reached.wait())
    async with caller.subscribe(task["id"]) as told:
        step.passed.set()
        await told.until("status", "completed")


@pytest.mark.parametrize("ended", ["completed", "asking"])
async def test_a_turn_that_ends_while_it_is_being_canceled(
    caller: Caller, monkeypatch: pytest.MonkeyPatch, ended: str
) -> None:
    """It is over, and says so; or it asks by now, and the question is closed."""
    step = Step()
    abort, logs = Stops.abort, caller.client.server.parts.parts.logs

    async def late(stops: Stops, session_id: str, turn_id: str | None = None) -> Any:
        step.passed.set()
        async with logs.open(session_id) as log, aclosing(log.follow(0)) as pages:
            async for page in pages:
                if turn_id and page.end_of(turn_id):
                    break
        return await abort(stops, session_id, turn_id)

    async def agent(*_: Any) -> AsyncIterator[Json]:
        await step.wait()
        if ended == "asking":
            yield {"type": "input_required", "text": "Which?"}
        yield {"type": "completed"}

    plays(caller.client, "late", agent)
    async with caller.send_stream("late") as told:
        task = (await told.first())[1]
        await soon(step.reached.wait())
        monkeypatch.setattr(Stops, "abort", late)
        if ended == "asking":
            assert state_of(await caller.cancel(task["id"])) == "canceled"
        else:
            assert await caller.error("CancelTask", {"id": task["id"]}) == -32002


async def test_what_is_nobodys_fault_is_a_500_without_details(
    caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(error: Exception) -> Callable[..., Awaitable[Any]]:
        async def fail(*_: Any) -> Any:
            raise error

        return fail

    for error in (TarkoError("SELECT 1"), KeyError("SELECT 1")):
        monkeypatch.setattr(PostgresExchangeStore, "get", failing(error))
        try:
            response = await caller.post("GetTask", {"id": new_turn_id()})
        except KeyError:
            continue
        assert response.status_code == 500


async def test_the_histories_of_a_repeated_answer_are_one(client: Client, new_caller: Caller) -> None:
    plays(client, "Aarhus", asking())
    task = await paused(new_caller)
    params = {"message": new_caller.message("Aarhus", taskId=task["id"])}
    results = await asyncio.gather(*(new_caller.call("SendMessage", params) for _ in range(5)))
    assert {tuple(message_ids(result["task"])) for result in results} == {
        tuple(message_ids(await new_caller.get(task["id"])))
    }


async def test_a_large_answer_to_a_slow_reader_is_held_by_its_place_alone(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cursor waits, not a queue: while the reader reads nothing, the turn ends and the log lets go of its events."""
    monkeypatch.setattr(session_log, "WINDOW_BYTES", 2**20)
    monkeypatch.setattr(writers, "MAX_WAITING_BYTES", 2**18)  # pages of that size, however fast the agent is
    pieces = [f"{n} ".ljust(16_000, "x") for n in range(600)]
    plays(client, "much", saying(*map(said, pieces)))
    parts = client.server.parts.a2a
    read = parts.events.read
    reread: list[str] = []

    async def noted(session_id: str, which: Slice) -> Any:
        events = await read(session_id, which)
        reread.extend(event.type for event in events if which.whole_turn == "")
        return events

    monkeypatch.setattr(parts.events, "read", noted)
    small = [(socket.SOL_SOCKET, socket.SO_RCVBUF, 2**16)]
    transport = httpx.AsyncHTTPTransport(socket_options=small)
    async with (
        httpx.AsyncClient(base_url=client.server.url, transport=transport, timeout=60) as slow,
        Caller(Client(client.server, slow)).send_stream("much") as told,
    ):
        first = await told.first()
        task = first[1]
        outlet = reader_of(client, task).outlet
        log = outlet._log
        async with aclosing(log.follow(0)) as pages:
            async for page in pages:
                if page.end_of(task["id"]):
                    break
        assert outlet.sent < log.head
        assert log.recent(outlet.sent) is None, "the reader has not fallen behind the window"
        events = [first, *await told.rest()]
    told_text = list(accumulated(event for event in events if event[0] == "artifact").values())
    assert told_text == ["".join(pieces)]
    assert texts_of(events[-1][1]) == told_text
    assert "assistant_message" not in reread, "the whole text was at hand, and was read once more"


async def test_a_drain_ends_the_streams_of_questions_and_waits_for_those_of_turns(
    embedded_server: Server,
) -> None:
    step = Step()
    async with own_database(embedded_server) as url, serving(url, drain_grace=PATIENCE) as server:
        caller = Caller(await server.client())
        task = await paused(caller)
        plays(caller.client, "run", waiting(step))
        async with caller.subscribe(task["id"]) as asked, caller.send_stream("run") as running:
            await asked.first()
            await running.first()
            await soon(step.reached.wait())
            draining = asyncio.create_task(server.parts.drain())
            assert await asked.rest() == []
            step.passed.set()
            assert state_of(await running.until("status", "completed")) == "completed"
            await soon(draining)


async def test_a_deleted_context_has_no_tasks(client: Client, new_caller: Caller) -> None:
    task = await new_caller.send(contextId="to-be-deleted")
    [event] = (await new_caller.list(contextId="to-be-deleted"))["tasks"]
    assert event["id"] == task["id"]
    session = next(
        each
        for each in (await client.get("/api/v1/sessions", limit=1000)).json()["sessions"]
        if each["metadata"].get("a2a") == {"contextId": "to-be-deleted"}
    )
    await client.delete(session["id"])
    assert (await new_caller.list(contextId="to-be-deleted"))["tasks"] == []
    message = new_caller.message(contextId="to-be-deleted")
    assert await new_caller.error("SendMessage", {"message": message}) == -32001


async def test_a_question_that_is_sent_again_while_its_answer_runs_waits_for_the_answer(
    client: Client, caller: Caller
) -> None:
    step = Step()
    plays(client, "ask", asking())
    plays(client, "slow answer", waiting(step))
    params = {"message": caller.message("ask")}
    first = await caller.call("SendMessage", params)
    task = first.get("task", first)
    answering = asyncio.create_task(caller.send("slow answer", taskId=task["id"]))
    await soon(step.reached.wait())
    again = asyncio.create_task(caller.call("SendMessage", params))
    async with caller.stream("SendStreamingMessage", params) as told:
        assert state_of((await told.first())[1]) == "working"
        step.passed.set()
        await told.until("status", "completed")
    found = await soon(again)
    assert state_of(found.get("task", found)) == "completed"
    await soon(answering)


async def test_a_question_that_somebody_else_closes_first_was_canceled_all_the_same(
    caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    close = PostgresExchangeStore.close_question

    async def late(store: PostgresExchangeStore, exchange: Any) -> bool:
        await close(store, exchange)
        return False

    task = await paused(caller)
    monkeypatch.setattr(PostgresExchangeStore, "close_question", late)
    assert state_of(await caller.cancel(task["id"])) == "canceled"


async def test_a_question_whose_session_is_deleted_while_it_is_closed_is_gone(
    client: Client, caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    close = PostgresExchangeStore.close_question

    async def late(store: PostgresExchangeStore, exchange: Any) -> bool:
        is_closed = await close(store, exchange)
        await client.delete(exchange.session_id)
        return is_closed

    task = await paused(caller)
    monkeypatch.setattr(PostgresExchangeStore, "close_question", late)
    assert await caller.error("CancelTask", {"id": task["id"]}) == -32001


async def test_a_task_that_is_purged_before_it_is_told_is_gone(
    caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def purged(*_: Any) -> None:
        return None

    monkeypatch.setattr(PostgresExchangeStore, "get", purged)
    assert await caller.error("SendMessage", {"message": caller.message()}) == -32001


async def test_a_list_leaves_out_what_is_deleted_meanwhile(
    client: Client, new_caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept, doomed = [await new_caller.send() for _ in range(2)]
    listed = PostgresExchangeStore.list

    async def late(store: PostgresExchangeStore, *args: Any, **options: Any) -> Any:
        page = await listed(store, *args, **options)
        await client.delete(doomed["contextId"])
        return page

    monkeypatch.setattr(PostgresExchangeStore, "list", late)
    found = [task["id"] for task in (await new_caller.list())["tasks"]]
    assert kept["id"] in found
    assert doomed["id"] not in found


async def test_a_task_is_told_up_to_its_place_and_no_further(
    client: Client, caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the log shows beyond it comes on the stream, and would be told twice."""
    step = Step()
    plays(client, "one two", waiting(step, said("one "), said("two")))
    find = PostgresExchangeStore.get

    async def earlier(store: PostgresExchangeStore, first_turn: str) -> Any:
        found = await find(store, first_turn)
        return found and replace(found, last_place=found.first_place + 3)

    async with caller.send_stream("one two") as told:
        task_id = (await told.first())[1]["id"]
        while texts_of(await told.until("artifact")) != ["two"]:
            pass
        monkeypatch.setattr(PostgresExchangeStore, "get", earlier)
        assert texts_of(await caller.get(task_id)) == ["one "]
        monkeypatch.undo()
        step.passed.set()
        await told.rest()
