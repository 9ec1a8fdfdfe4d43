"""The flat dialect over a real server: what the official UI asks, and what it gets."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any, NoReturn

import pytest

from app.agents.contract import AgentEvent
from app.dialects.tarko_ui import settling
from app.dialects.tarko_ui.routes import sessions as session_routes
from app.dialects.tarko_ui.routes import summary as summary_routes
from app.dialects.tarko_ui.session_info import is_processing
from app.dialects.tarko_ui.settling import LONGEST_WAY, Answers, Settling
from app.dialects.tarko_ui.summary import question
from app.errors import StorageUnavailable
from app.events.envelope import now_ms
from app.sessions.session import Session, Standing
from tests.conftest import Server, own_database
from tests.dialects.tarko_ui.asking import Ui, ended
from tests.server import (
    COMPLETED,
    PATIENCE,
    Client,
    Json,
    Script,
    Serving,
    Step,
    said,
    saying,
    serving,
    soon,
    types,
    until,
)

FAILED: AgentEvent = {"type": "failed", "details": "No luck.", "retryable": True, "code": "unlucky"}


@pytest.fixture
def ui(client: Client) -> Ui:
    return Ui(client)


def stepping(step: Step, *before: AgentEvent, after: tuple[AgentEvent, ...] = ()) -> Script:
    """An agent that waits in the middle."""

    async def agent(*_: Any) -> AsyncIterator[AgentEvent]:
        for event in before:
            yield event
        await step.wait()
        for event in after:
            yield event
        yield COMPLETED

    return agent


# ── sessions ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("body", ["", "{}", '{"runtimeSettings":{},"agentOptions":{}}'])
async def test_a_session_is_created_whatever_the_body(ui: Ui, body: str) -> None:
    created = await ui.post("sessions/create", body)

    assert created.status_code == 201
    found = created.json()
    assert found["session"]["id"] == found["sessionId"]
    assert found["session"]["metadata"]["agentInfo"]["name"] == "scripted"
    assert found["events"] == []


async def test_sessions_are_listed_by_their_last_change(ui: Ui) -> None:
    first, second = await ui.session(), await ui.session()
    await ui.body("POST", "sessions/update", sessionId=first, metadata={"name": "First"})

    listed = (await ui.body("GET", "sessions"))["sessions"]

    mine = [session["id"] for session in listed if session["id"] in (first, second)]
    assert mine == [first, second]
    assert next(s for s in listed if s["id"] == first)["metadata"]["name"] == "First"


async def test_all_sessions_are_listed_however_many(ui: Ui, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_routes, "PAGE", 2)
    mine = {await ui.session() for _ in range(5)}

    listed = [session["id"] for session in (await ui.body("GET", "sessions"))["sessions"]]

    assert mine <= set(listed)
    assert len(listed) == len(set(listed))


async def test_changes_are_merged_in_both_spellings(ui: Ui) -> None:
    session_id = await ui.session()
    changes: list[Json] = [
        {"metadata": {"name": "One", "tags": ["a"], "kept": 1}},
        {"metadata": {"more": [2]}},
        {"name": "Two"},
        {"tags": ["b", "c"]},
    ]

    answers = await asyncio.gather(
        *(ui.body("POST", "sessions/update", sessionId=session_id, **change) for change in changes[:2])
    )
    for change in changes[2:]:
        answers.append(await ui.body("POST", "sessions/update", sessionId=session_id, **change))

    details = await ui.body("GET", "sessions/details", sessionId=session_id)
    assert details == answers[-1]
    metadata = details["session"]["metadata"]
    assert (metadata["name"], metadata["tags"], metadata["kept"], metadata["more"]) == (
        "Two",
        ["b", "c"],
        1,
        [2],
    )


async def test_a_name_cut_out_of_a_message_is_tidied(ui: Ui) -> None:
    session_id = await ui.session()
    body = json.dumps(
        {"sessionId": session_id, "metadata": {"name": "two\nlines \ud83d", "agentInfo": {"name": "forged"}}}
    )

    answer = await ui.post("sessions/update", body)

    assert answer.status_code == 200
    metadata = answer.json()["session"]["metadata"]
    assert metadata["name"] == "two lines"
    assert metadata["agentInfo"]["name"] == "scripted"


@pytest.mark.parametrize(
    "metadata", [{"name": 5}, {"tags": "x"}, {"tags": [1]}, [], "x", {"tags": ["x"] * 101}]
)
async def test_a_wrong_change_is_refused(ui: Ui, metadata: Any) -> None:
    answer = await ui.post("sessions/update", {"sessionId": await ui.session(), "metadata": metadata})

    assert (answer.status_code, answer.json()["code"]) == (400, "bad_request")


async def test_a_deleted_session_is_gone_and_its_running_turn_stopped(ui: Ui) -> None:
    step = Step()
    session_id = await ui.session(stepping(step, said("Partial")))
    running = asyncio.create_task(ui.stream(session_id))
    await soon(step.reached.wait())

    assert await ui.body("POST", "sessions/delete", sessionId=session_id) == {"success": True}

    events = await soon(running)
    assert (events[-1]["type"], events[-1]["status"]) == ("agent_run_end", "aborted")
    assert step.left.is_set()
    for path in ("details", "events", "status"):
        answer = await ui.get(f"sessions/{path}", sessionId=session_id)
        assert (answer.status_code, answer.json()["code"]) == (404, "session_deleted")
    answer = await ui.post("sessions/query/stream", {"sessionId": session_id, "query": "x"})
    assert answer.status_code == 404


async def test_a_session_that_is_deleted_while_a_query_comes_is_a_404(
    ui: Ui, monkeypatch: pytest.MonkeyPatch
) -> None:
    session_id = await ui.session()
    supervisor = ui.client.server.parts.parts.supervisor
    admit = supervisor.admit

    async def too_late(*args: Any, **options: Any) -> Any:
        await ui.body("POST", "sessions/delete", sessionId=session_id)
        return await admit(*args, **options)

    monkeypatch.setattr(supervisor, "admit", too_late)

    answer = await ui.post("sessions/query/stream", {"sessionId": session_id, "query": "x"})

    assert (answer.status_code, answer.json()["code"]) == (404, "session_deleted")


# ── turns ────────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_turn_is_streamed_from_what_the_user_said_to_its_end(ui: Ui) -> None:
    session_id = await ui.session(saying(said("Hello")))

    events = await ui.stream(session_id)

    assert types(events) == [
        "user_message",
        "agent_run_start",
        "assistant_streaming_message",
        "assistant_message",
        "agent_run_end",
    ]
    assert [e for e in events if "streaming" not in e["type"]] == await ui.events(session_id)
    assert not await ui.is_processing(session_id)


async def test_the_second_turn_streams_itself_alone(ui: Ui) -> None:
    session_id = await ui.session()
    first = await ui.stream(session_id, "one")
    second = await ui.stream(session_id, "two")

    assert second[0]["content"] == "two"
    assert not {event["id"] for event in first} & {event["id"] for event in second}


@pytest.mark.parametrize("script", [saying(said("Part"), FAILED, ends=False), saying(FAILED, ends=False)])
async def test_a_failure_is_told_on_the_stream_and_the_end_is_last(ui: Ui, script: Script) -> None:
    events = await ui.stream(await ui.session(script))

    [notice] = [event for event in events if event["type"] == "system"]
    assert (notice["level"], notice["message"]) == ("error", "No luck.")
    assert notice["details"] == {"errorCode": "unlucky", "retryable": True}
    assert (events[-1]["type"], events[-1]["status"]) == ("agent_run_end", "error")


async def test_a_query_to_a_busy_session_is_told_why_and_leaves_nothing(ui: Ui) -> None:
    step = Step()
    session_id = await ui.session(stepping(step))
    running = asyncio.create_task(ui.stream(session_id))
    await soon(step.reached.wait())
    before = await ui.events(session_id)

    refused = await ui.stream(session_id, "Me, too")

    assert types(refused) == ["system", "agent_run_end"]
    assert refused[0]["details"]["errorCode"] == "session_busy"
    assert await ui.events(session_id) == before
    step.passed.set()
    assert "Me, too" not in str(await soon(running))


@pytest.mark.parametrize("query", [[{"type": "image_url", "image_url": {"url": "http://x"}}], [{"odd": 1}]])
async def test_a_query_that_cannot_be_read_is_told_why(ui: Ui, query: Any) -> None:
    events = await ui.stream(await ui.session(), query)

    assert types(events) == ["system", "agent_run_end"]
    assert events[0]["details"]["errorCode"] == "bad_query"


@pytest.mark.parametrize("body", [{}, {"query": 5}, {"query": None}])
async def test_a_request_without_a_query_is_a_400(ui: Ui, body: Json) -> None:
    answer = await ui.post("sessions/query/stream", {"sessionId": await ui.session(), **body})

    assert (answer.status_code, answer.json()["code"]) == (400, "bad_request")


async def test_an_image_reaches_the_agent_and_the_history(ui: Ui) -> None:
    got: list[Any] = []

    async def agent(_: Any, prompt: Any) -> AsyncIterator[AgentEvent]:
        got.append(prompt)
        yield COMPLETED

    session_id = await ui.session(agent)
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk=", "detail": "auto"}}
    query = [image, {"type": "text", "text": "What is it?"}]

    events = await ui.stream(session_id, query)

    assert events[0]["content"] == query
    assert got == [{"text": "What is it?", "images": [{"mimeType": "image/png", "data": "aGk="}]}]


async def test_a_blocking_query_answers_with_the_last_message(ui: Ui) -> None:
    session_id = await ui.session(saying(said("Hello")))

    body = await ui.body("POST", "sessions/query", sessionId=session_id, query="Hi")

    assert (body["result"]["type"], body["result"]["content"]) == ("assistant_message", "Hello")


async def test_a_one_shot_makes_a_session_with_its_name(ui: Ui) -> None:
    body = await ui.body("POST", "oneshot/query", query="Hi", sessionName="Named", sessionTags=["t"])
    session = (await ui.body("GET", "sessions/details", sessionId=body["sessionId"]))["session"]
    streamed = await ui.stream("", "Hi", "oneshot/query/stream")

    assert body["result"]["type"] == "assistant_message"
    assert (session["metadata"]["name"], session["metadata"]["tags"]) == ("Named", ["t"])
    assert streamed[0].keys() == {"type", "sessionId", "timestamp"}
    assert types(streamed)[:2] == ["session_created", "user_message"]
    assert streamed[-1]["sessionId"] == streamed[0]["sessionId"]


async def test_a_one_shot_that_cannot_be_read_makes_no_session(ui: Ui) -> None:
    before = len((await ui.body("GET", "sessions"))["sessions"])

    answer = await ui.post("oneshot/query", {"query": [{"odd": 1}]})

    assert (answer.status_code, answer.json()["code"]) == (400, "bad_query")
    assert len((await ui.body("GET", "sessions"))["sessions"]) == before


async def test_an_abort_answers_when_the_ending_is_there_and_keeps_the_partial_text(ui: Ui) -> None:
    step = Step()
    tool: AgentEvent = {"type": "tool_started", "id": "t", "name": "sleep", "args": {}}
    session_id = await ui.session(stepping(step, said("Partial"), tool))
    running = asyncio.create_task(ui.stream(session_id))
    await soon(step.reached.wait())

    assert await ui.body("POST", "sessions/abort", sessionId=session_id) == {"success": True}

    history = await ui.events(session_id)
    assert (history[-1]["type"], history[-1]["status"]) == ("agent_run_end", "aborted")
    assert "Partial" in [event.get("content") for event in history if event["type"] == "assistant_message"]
    [result] = [event for event in history if event["type"] == "tool_result"]
    assert result["error"] == "aborted"
    assert types(await soon(running))[-1] == "agent_run_end"


async def test_an_abort_of_nothing_leaves_nothing_running(ui: Ui) -> None:
    """Else the UI would wait for ever, when the turn that it saw running at a reload has ended by itself."""
    session_id = await ui.session()
    await ui.stream(session_id)

    assert await ui.body("POST", "sessions/abort", sessionId=session_id) == {"success": True}


async def test_a_turn_runs_on_without_its_client(ui: Ui) -> None:
    step = Step()
    session_id = await ui.session(stepping(step, said("One"), after=(said(" two"),)))
    async with ui.opened(session_id):
        await soon(step.reached.wait())
    step.passed.set()
    await ended(ui.client, session_id)

    assert "One two" in [event.get("content") for event in await ui.events(session_id)]


# ── the moment ───────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_reload_in_the_middle_has_what_was_said_so_far(ui: Ui) -> None:
    step = Step()
    session_id = await ui.session(
        stepping(
            step, {"type": "thinking", "delta": "hm"}, said("One"), said(" two"), after=(said(" three"),)
        )
    )
    running = asyncio.create_task(ui.stream(session_id))
    await soon(step.reached.wait())
    async with ui.client.stream(session_id) as stream:
        while (await stream.event()).json["data"].get("delta") != " two":
            pass

    middle = await ui.events(session_id)

    assert await ui.is_processing(session_id)
    assert types(middle) == [
        "user_message",
        "agent_run_start",
        "assistant_thinking_message",
        "assistant_streaming_message",
    ]
    assert middle[-1]["content"] == "One two"
    step.passed.set()
    events = await soon(running)
    [whole] = [event for event in events if event["type"] == "assistant_message"]
    assert (whole["content"], whole["messageId"]) == ("One two three", middle[-1]["messageId"])


async def test_the_end_waits_until_what_was_said_of_the_turn_has_arrived(
    ui: Ui, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, arrived = asyncio.Event(), asyncio.Event()
    waiting: list[str] = []

    async def before_end(_: Answers, principal: str, settled: str) -> None:
        assert principal == "local"
        waiting.append(settled)
        asked.set()
        await arrived.wait()

    monkeypatch.setattr(Answers, "before_end", before_end)
    session_id = await ui.session(saying(said("Hello")))
    async with ui.opened(session_id) as stream:
        await soon(asked.wait())
        events = await stream.upto("assistant_message")
        assert not await ui.is_processing(session_id)
        aborted = asyncio.create_task(ui.post("sessions/abort", {"sessionId": session_id}))
        arrived.set()
        assert types(events + await stream.upto("agent_run_end"))[-1] == "agent_run_end"
        await soon(aborted)
    assert waiting == [session_id, session_id]


def test_a_turn_that_waits_is_processing() -> None:
    session = Session("s", "p", "a", 0, 0)
    assert is_processing(Standing(session, 1, 1, None, queued=1))
    assert is_processing(Standing(session, 1, 1, "turn_x"))
    assert not is_processing(Standing(session, 1, 1, None))


def test_an_answer_is_given_its_time_to_arrive() -> None:
    now = 100.0
    answers = Settling(clock=lambda: now)
    assert answers.left("alice", "a") == 0
    answers.note("alice", "a")
    assert answers.left("alice", "a") == LONGEST_WAY
    assert answers.left("bob", "a") == 0
    now += LONGEST_WAY / 2
    answers.note("alice", "b")
    assert answers.left("alice", "a") == LONGEST_WAY / 2
    now += LONGEST_WAY
    assert answers.left("alice", "a") == 0
    answers.note("alice", "c")
    assert answers.left("alice", "c") == LONGEST_WAY
    assert list(answers._told) == [("alice", "c")]
    now += LONGEST_WAY / 2
    answers.note("alice", "d")
    answers.note("alice", "c")
    assert answers.left("alice", "c") == LONGEST_WAY
    assert list(answers._told) == [("alice", "d"), ("alice", "c")]


async def test_to_settle_is_to_wait_as_long_as_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    answers = Settling(clock=lambda: 100.0)
    answers.note("alice", "a")
    with monkeypatch.context() as patch:
        patch.setattr(asyncio, "sleep", sleep)
        await answers.settle("bob", "a")
        await answers.settle("alice", "a")
    assert slept == [LONGEST_WAY]


@pytest.fixture
def left(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long each end had to wait. None does, and answers take a minute, so no test has to be quick."""
    left: list[float] = []

    async def before_end(self: Answers, principal: str, session_id: str) -> None:
        left.append(self.running.left(principal, session_id))

    monkeypatch.setattr(Answers, "before_end", before_end)
    monkeypatch.setattr(settling, "LONGEST_WAY", 60.0)
    return left


async def test_the_end_waits_for_an_answer_that_is_on_its_way(
    ui: Ui, left: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may have been looked up before the turn ended, and be told after."""
    step, looked, told = Step(), asyncio.Event(), asyncio.Event()
    session_id = await ui.session(stepping(step))
    running = asyncio.create_task(ui.stream(session_id))
    await soon(step.reached.wait())
    directory = ui.client.server.parts.parts.directory
    find = directory.find

    async def slow(*args: Any) -> Any:
        found = await find(*args)
        looked.set()
        await told.wait()
        return found

    with monkeypatch.context() as patch:
        patch.setattr(directory, "find", slow)
        asking = asyncio.create_task(ui.is_processing(session_id))
        await soon(looked.wait())
    step.passed.set()
    await soon(running)
    assert left[0] > 0
    told.set()
    assert await soon(asking)


async def test_the_end_comes_later_than_the_answer_that_the_turn_runs(
    ui: Ui, left: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also than one that was long in coming."""
    noted: list[str] = []
    note = Settling.note

    def counted(self: Settling, principal: str, session_id: str) -> None:
        noted.append(session_id)
        note(self, principal, session_id)

    monkeypatch.setattr(Settling, "note", counted)
    step = Step()
    session_id = await ui.session(stepping(step))
    running = asyncio.create_task(ui.stream(session_id))
    await soon(step.reached.wait())
    assert await ui.is_processing(session_id)
    step.passed.set()
    await soon(running)
    assert left[0] > 0
    assert noted == [session_id, session_id]


async def test_the_start_waits_until_what_was_said_before_it_has_arrived(
    ui: Ui, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A `false` that comes after the start unlocks the UI's input, and takes its stop button away.

    The turn does not wait: when it is over, and the storage away, its stream has all of it.
    """
    asked, arrived = asyncio.Event(), asyncio.Event()

    async def before_start(*_: Any) -> None:
        asked.set()
        await arrived.wait()

    async def is_away(*_: Any) -> NoReturn:
        raise StorageUnavailable("away")

    monkeypatch.setattr(Answers, "before_start", before_start)
    session_id = await ui.session(saying(said("Hello")))
    running = asyncio.create_task(ui.stream(session_id))
    await soon(asked.wait())
    async with asyncio.timeout(PATIENCE):
        while "agent_run_end" not in types(await ui.events(session_id)):
            pass
    assert not running.done()
    store = ui.client.server.parts.parts.logs._store
    with monkeypatch.context() as patch:
        patch.setattr(store, "head", is_away)
        patch.setattr(store, "read", is_away)
        arrived.set()
        told = types(await soon(running))
    assert told.index("agent_run_start") < told.index("assistant_message") < told.index("agent_run_end")


@pytest.mark.parametrize("look", [1, 2])
async def test_a_turn_that_starts_at_a_look_is_seen_by_the_next_or_waits_for_the_answer(
    ui: Ui, monkeypatch: pytest.MonkeyPatch, look: int
) -> None:
    step, begins, left, looks = Step(), asyncio.Event(), list[float](), list[bool]()
    session_id = await ui.session(saying(said("Hello")))
    await ui.stream(session_id)
    ui.client.server.agent.in_session[session_id] = stepping(step)
    directory = ui.client.server.parts.parts.directory
    find, running = directory.find, list["asyncio.Task[list[Json]]"]()

    async def before_start(self: Answers, principal: str, session_id: str) -> None:
        left.append(self.idle.left(principal, session_id))
        begins.set()

    async def starting(*args: Any) -> Standing:
        found = await find(*args)
        looks.append(is_processing(found))
        if len(looks) == look:
            monkeypatch.setattr(directory, "find", find)
            running.append(asyncio.create_task(ui.stream(session_id)))
            await soon(begins.wait())
            monkeypatch.setattr(directory, "find", starting)
        return found

    monkeypatch.setattr(settling, "LONGEST_WAY", 600.0)
    monkeypatch.setattr(Answers, "before_start", before_start)
    monkeypatch.setattr(directory, "find", starting)
    assert await ui.is_processing(session_id) is (look == 1)
    assert looks == [False, look == 1]
    monkeypatch.setattr(settling, "LONGEST_WAY", 0.0)
    step.passed.set()
    await soon(running[0])
    assert [seconds > 0 for seconds in left] == [look == 2]


async def test_a_new_session_is_not_told_to_be_idle_before_its_first_message_has_had_time_to_come(
    ui: Ui, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The UI asks between making a session and sending into it."""
    monkeypatch.setattr(settling, "LONGEST_WAY", 600.0)
    step, noted = Step(), list[str]()
    session_id = await ui.session(stepping(step))
    monkeypatch.setattr(Settling, "note", lambda *told: noted.append(told[-1]))
    asking = asyncio.create_task(ui.is_processing(session_id))
    await until(lambda: is_watched(ui, session_id))
    await ui.client.append(session_id, "custom.note", {"of": "no turn"})
    await ui.events(session_id)
    assert not asking.done()
    running = asyncio.create_task(ui.stream(session_id))
    assert await soon(asking)
    assert noted == [session_id] * 3, "before each look, and before the answer"
    monkeypatch.setattr(settling, "LONGEST_WAY", 0.0)
    step.passed.set()
    await soon(running)
    assert not await ui.is_processing(session_id)


async def test_a_new_session_that_gets_no_message_is_told_to_be_idle(
    ui: Ui, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settling, "now_ms", lambda: 0)  # as a clock behind that of another replica
    monkeypatch.setattr(settling, "LONGEST_WAY", 0.01)
    session_id = await ui.session()
    assert not await soon(ui.is_processing(session_id))
    assert ui.client.server.parts.parts.logs.live(session_id) is None


async def test_a_new_session_that_is_deleted_while_it_is_asked_about_is_told_to_be_gone(
    ui: Ui, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settling, "LONGEST_WAY", 600.0)
    session_id = await ui.session()
    asking = asyncio.create_task(ui.get("sessions/status", sessionId=session_id))
    await until(lambda: is_watched(ui, session_id))
    await ui.body("POST", "sessions/delete", sessionId=session_id)
    answer = await soon(asking)
    assert (answer.status_code, answer.json()["code"]) == (404, "session_deleted")


async def test_a_session_that_is_no_longer_new_is_told_to_be_idle_at_once(
    ui: Ui, monkeypatch: pytest.MonkeyPatch
) -> None:
    fresh, used = await ui.session(), await ui.session(saying(said("Hello")))
    await ui.stream(used)
    monkeypatch.setattr(settling, "now_ms", lambda: now_ms() + 600_000)
    monkeypatch.setattr(settling, "LONGEST_WAY", 600.0)
    assert not await soon(ui.is_processing(fresh))
    monkeypatch.setattr(settling, "now_ms", now_ms)
    assert not await soon(ui.is_processing(used))


def is_watched(ui: Ui, session_id: str) -> bool:
    log = ui.client.server.parts.parts.logs.live(session_id)
    return log is not None and log.readers > 0


async def test_an_end_that_is_told_inside_of_another_event_holds_nothing_up(
    ui: Ui, left: list[float]
) -> None:
    step = Step()
    note = {"type": "note", "told": {"type": "agent_run_end", "of": {"type": "agent_run_end"}}}
    session_id = await ui.session(stepping(step, note, said("Hello")))
    async with ui.opened(session_id) as stream:
        await stream.upto("assistant_streaming_message")
        assert left == []
        step.passed.set()
        await stream.upto("agent_run_end")
    assert len(left) == 1


async def test_the_latest_session_is_the_one_that_was_changed_last(ui: Ui) -> None:
    first, second = await ui.session(), await ui.session()
    await ui.stream(first)
    await ui.body("POST", "sessions/update", sessionId=first, metadata={"name": "Latest"})

    latest = await ui.body("GET", "sessions/events/latest")

    assert second != first == latest["sessionId"] == latest["sessionInfo"]["id"]
    assert latest["events"] == await ui.events(first)


async def test_a_session_without_events_has_an_empty_list(ui: Ui) -> None:
    assert await ui.events(await ui.session()) == []


async def test_a_long_history_comes_whole(ui: Ui) -> None:
    many = [{"type": "note", "number": number} for number in range(2500)]
    session_id = await ui.session(saying(*many))
    await ui.stream(session_id)

    events = await ui.events(session_id)

    assert [event["number"] for event in events if event["type"] == "note"] == list(range(2500))


async def test_both_dialects_tell_the_same_log(ui: Ui) -> None:
    session_id = await ui.session(saying(said("Hello")))
    await ui.client.query(session_id, "from there")
    await ui.stream(session_id, "from here")

    flat = await ui.events(session_id)
    documented = {event["id"]: event for event in await ui.client.events(session_id, deltas=False)}

    assert [event["content"] for event in flat if event["type"] == "user_message"] == [
        "from there",
        "from here",
    ]
    assert {event["id"] for event in flat} <= set(documented)


# ── the rest ─────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_what_the_ui_asks_of_the_server(ui: Ui) -> None:
    assert await ui.body("GET", "health") == {"status": "ok"}
    version = await ui.body("GET", "version")
    assert version["version"]
    assert isinstance(version["buildTime"], int)
    assert await ui.body("GET", "share/config") == {"hasShareProvider": False, "shareProvider": None}


@pytest.mark.parametrize(
    ("script", "title"),
    [
        (saying(said('"A fine\n'), said("title")), "A fine"),
        (saying(FAILED, ends=False), "What is it?"),
        (saying({"type": "thinking", "delta": "hm"}), "What is it?"),
    ],
)
async def test_a_title_is_the_agents_answer_or_the_first_words(ui: Ui, script: Script, title: str) -> None:
    messages = [{"role": "user", "content": [{"type": "text", "text": "What is it?"}]}]
    asked: list[Any] = []

    async def agent(scope: Any, prompt: Any) -> AsyncIterator[AgentEvent]:
        asked.append((scope, prompt))
        async for event in script(scope, prompt):
            yield event

    session_id = await ui.session()
    ui.client.server.agent.for_prompt[question(messages)] = agent

    body = await ui.body(
        "POST", "sessions/generate-summary", sessionId=session_id, messages=messages, model="m", provider="p"
    )

    assert body == {"summary": title, "model": "m", "provider": "p"}
    assert asked[0][0]["session"] != session_id
    assert await ui.events(session_id) == []
    empty = await ui.post("sessions/generate-summary", {"sessionId": session_id, "messages": []})
    assert empty.status_code == 400


async def test_a_title_is_not_waited_for_longer_than_a_visitor_would(
    ui: Ui, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(summary_routes, "PATIENCE", 0.01)
    messages = [{"role": "user", "content": "What takes so long?"}]
    ui.client.server.agent.for_prompt[question(messages)] = stepping(Step(), said("A title"))
    session_id = await ui.session()

    body = await ui.body("POST", "sessions/generate-summary", sessionId=session_id, messages=messages)

    assert body["summary"] == "What takes so long?"


async def test_a_shared_page_has_the_session_and_is_refused_while_a_turn_runs(ui: Ui) -> None:
    step = Step()
    hostile = "</script><script>alert(1)</script>"
    session_id = await ui.session(saying(said(hostile)))
    await ui.stream(session_id, hostile)
    await ui.body("POST", "sessions/update", sessionId=session_id, metadata={"name": hostile})

    shared = await ui.body("POST", "sessions/share", sessionId=session_id, upload=False)

    assert hostile not in shared["html"]
    block = shared["html"].split('id="tarko-server">')[1].split("</script>")[0]
    told = json.loads(block)
    assert told["AGENT_REPLAY_MODE"] is True
    assert told["AGENT_SESSION_DATA"]["metadata"]["name"] == hostile
    assert told["AGENT_EVENT_STREAM"] == await ui.events(session_id)
    assert told["AGENT_WEB_UI_CONFIG"]["title"] == "Tarko"
    upload = await ui.post("sessions/share", {"sessionId": session_id, "upload": True})
    assert (upload.status_code, upload.json()["code"]) == (400, "no_share_provider")

    ui.client.server.agent.in_session[session_id] = stepping(step)
    running = asyncio.create_task(ui.stream(session_id))
    await soon(step.reached.wait())
    busy = await ui.post("sessions/share", {"sessionId": session_id, "upload": False})
    assert (busy.status_code, busy.json()["code"]) == (409, "session_busy")
    step.passed.set()
    await soon(running)


async def test_a_server_that_stops_says_so_on_the_stream(ui: Ui, monkeypatch: pytest.MonkeyPatch) -> None:
    session_id = await ui.session()
    monkeypatch.setattr(ui.client.server.parts.parts.supervisor, "is_draining", True)

    events = await ui.stream(session_id)
    summary = await ui.post(
        "sessions/generate-summary", {"sessionId": session_id, "messages": [{"content": "x"}]}
    )

    assert (events[0]["details"]["errorCode"], events[-1]["type"]) == ("server_shutdown", "agent_run_end")
    assert summary.status_code == 503


# ── with a queue, and with tokens ────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
async def queueing(embedded_server: Server) -> AsyncIterator[Serving]:
    """A server whose busy sessions let turns wait, and that knows two principals."""
    tokens = "alice=alice-token-alice-token,bob=bob-token-bob-token-bob"
    async with own_database(embedded_server) as url, serving(url, on_busy="queue", tokens=tokens) as server:
        yield server


async def waiting_turn(ui: Ui, session_id: str) -> str:
    """The turn that waits in the session, as soon as one does."""
    async with asyncio.timeout(PATIENCE):
        while True:
            queue = (await ui.client.get("/api/v1/sessions/queue", sessionId=session_id)).json()["queue"]
            if queue:
                return str(queue[0]["turnId"])


async def test_a_turn_that_waits_streams_itself(queueing: Serving) -> None:
    ui = Ui(await queueing.client("alice-token-alice-token"))
    step = Step()
    session_id = await ui.session(stepping(step))
    first = asyncio.create_task(ui.stream(session_id, "first"))
    await soon(step.reached.wait())
    second = asyncio.create_task(ui.stream(session_id, "second"))
    await waiting_turn(ui, session_id)
    step.passed.set()

    assert (await soon(first))[0]["content"] == "first"
    events = await soon(second)
    assert (events[0]["content"], events[-1]["type"]) == ("second", "agent_run_end")


async def test_a_turn_that_is_removed_before_it_starts_ends_its_stream(queueing: Serving) -> None:
    ui = Ui(await queueing.client("alice-token-alice-token"))
    step = Step()
    session_id = await ui.session(stepping(step))
    first = asyncio.create_task(ui.stream(session_id, "first"))
    await soon(step.reached.wait())
    second = asyncio.create_task(ui.stream(session_id, "second"))
    await ui.client.abort(session_id, turnId=await waiting_turn(ui, session_id))

    events = await soon(second)
    assert events[-2]["details"]["errorCode"] == "turn_removed"
    assert (events[-1]["type"], events[-1]["status"]) == ("agent_run_end", "error")
    step.passed.set()
    await soon(first)


async def test_a_turn_that_waits_when_the_server_stops_ends_its_stream(embedded_server: Server) -> None:
    async with own_database(embedded_server) as url, serving(url, on_busy="queue") as server:
        ui = Ui(await server.client())
        step = Step()
        session_id = await ui.session(stepping(step))
        first = asyncio.create_task(ui.stream(session_id, "first"))
        await soon(step.reached.wait())
        second = asyncio.create_task(ui.stream(session_id, "second"))
        await waiting_turn(ui, session_id)
        server.parts.parts.readers.drain()

        events = await soon(second)

        assert types(events) == ["system", "agent_run_end"]
        assert events[0]["details"]["errorCode"] == "server_shutdown"
        step.passed.set()
        assert types(await soon(first))[-1] == "agent_run_end"


async def test_lists_have_only_what_is_ones_own(queueing: Serving) -> None:
    alice = Ui(await queueing.client("alice-token-alice-token"))
    bob = Ui(await queueing.client("bob-token-bob-token-bob"))
    theirs = await alice.session()

    nothing = await bob.get("sessions/events/latest")
    assert (nothing.status_code, nothing.json()["code"]) == (404, "session_not_found")
    mine = await bob.session()
    assert [session["id"] for session in (await bob.body("GET", "sessions"))["sessions"]] == [mine]
    await alice.body("POST", "sessions/update", sessionId=theirs, metadata={"name": "newer"})
    assert (await bob.body("GET", "sessions/events/latest"))["sessionId"] == mine


async def test_the_page_sends_a_visitor_without_a_login_to_log_in(queueing: Serving) -> None:
    nobody = await queueing.client()
    for path in ("/ui", "/ui/", "/ui/creating", "/ui/sess_x"):
        answer = await nobody.get(path)
        assert (answer.status_code, answer.headers["location"]) == (303, f"/login?next={path}")
        assert answer.headers["cache-control"] == "no-store"
    asking = await nobody.http.get("/ui/?q=From%20here")
    login = await nobody.http.get(asking.headers["location"])
    assert 'value="/ui/?q=From%20here"' in login.text
    assert (await nobody.get("/ui/api/v1/health")).status_code == 401
    login = await nobody.http.post("/login", data={"token": "alice-token-alice-token", "next": "/ui/"})
    assert login.headers["location"] == "/ui/"
    assert (await nobody.get("/ui/")).status_code == 200
    assert (await nobody.get("/ui/api/v1/sessions")).status_code == 200


# ── one event ────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_an_event_is_spelled_by_its_documented_id(client: Client, ui: Ui) -> None:
    tool: tuple[AgentEvent, ...] = (
        {"type": "tool_started", "id": "a", "name": "look", "args": {"at": 1}},
        {"type": "tool_ended", "id": "a", "isError": False, "content": "seen"},
    )
    session_id = await client.session(saying(*tool, said("Hi")))
    await client.query(session_id)
    by_type = {event["type"]: event["id"] for event in await client.events(session_id)}

    async def spelled(event_id: str) -> list[str]:
        path = "/ui/api/v1/sessions/events/spelling"
        response = await client.get(path, sessionId=session_id, eventId=event_id)
        return [event["type"] for event in response.raise_for_status().json()["events"]]

    assert await spelled(by_type["assistant_message_delta"]) == ["assistant_streaming_message"]
    assert await spelled(by_type["tool_call"]) == ["assistant_message", "tool_call"]
    assert await spelled(by_type["session_start"]) == []
    assert await spelled("999") == []
    refused = await client.get(
        "/ui/api/v1/sessions/events/spelling", sessionId=session_id, eventId="evt_of_another"
    )
    assert (refused.status_code, refused.json()["code"]) == (400, "bad_cursor")
