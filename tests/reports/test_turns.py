"""Reports of turns that run on, run twice, end twice or never end."""

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.agents.contract import AgentEvent, Prompt, Scope
from app.turns.admission import Query
from tests.conftest import Server, own_database
from tests.log.storing import memory_stores
from tests.reports.machine import ROOT, cut, running
from tests.server import (
    COMPLETED,
    PATIENCE,
    Client,
    Json,
    Script,
    Serving,
    Step,
    Stream,
    places,
    said,
    saying,
    serving,
    soon,
    types,
    until,
)
from tests.turns.running import process

Stop = Callable[[Client, str], Awaitable[None]]


# ── stopping ─────────────────────────────────────────────────────────────────────────────────────────────────────────


class Model:
    """An agent that asks its model again and again, and notes when it was told to stop."""

    def __init__(self, file: Path) -> None:
        self.calls = 0
        self.step = Step()
        self.has_cleaned_up = asyncio.Event()
        self._file = file

    async def script(self, _: Scope, __: Prompt) -> AsyncIterator[AgentEvent]:
        try:
            for _call in range(100):
                self.calls += 1
                yield said(f"answer {self.calls} ")
                await self.step.wait()
        finally:
            self._file.write_text("cleaned up")
            self.has_cleaned_up.set()


@asynccontextmanager
async def asking(client: Client, session_id: str, **fields: Any) -> AsyncIterator[None]:
    """A query in the background whose answer nobody needs."""
    query = asyncio.create_task(client.query(session_id, **fields))
    try:
        yield
    finally:
        query.cancel()
        await asyncio.wait([query])


async def _abort(client: Client, session_id: str) -> None:
    await client.abort(session_id)


async def _abort_by_socket(client: Client, session_id: str) -> None:
    async with client.socket() as socket:
        await socket.ask({"type": "abort_query", "sessionId": session_id}, "abort_result")


async def _delete(client: Client, session_id: str) -> None:
    await client.delete(session_id)


async def _interrupt(client: Client, session_id: str) -> None:
    client.server.agent.in_session[session_id] = saying(said("the next"))
    await client.query(session_id, onBusy="interrupt")


@pytest.mark.parametrize("stop", [_abort, _abort_by_socket, _delete, _interrupt], ids=lambda s: s.__name__)
async def test_d03_an_agent_that_nobody_reads_any_more_cleans_up(
    client: Client, stop: Stop, tmp_path: Path
) -> None:
    """agentscope-ai/agentscope#1252: the consumer stopped, the agent went on and called its model again."""
    model = Model(tmp_path / "finally")
    session_id = await client.session(model.script)
    async with asking(client, session_id):
        await soon(model.step.reached.wait())
        await stop(client, session_id)
        await soon(model.has_cleaned_up.wait())

    assert (tmp_path / "finally").read_text() == "cleaned up"
    assert model.calls == 1


@pytest.mark.parametrize("way", ["query", "query/stream", "/ws"])
async def test_d03_an_asker_that_hangs_up_may_take_its_agent_along(
    client: Client, way: str, tmp_path: Path
) -> None:
    """agentscope-ai/agentscope#1252: with `onDisconnect: abort` the agent stops with its only reader."""
    model = Model(tmp_path / "finally")
    session_id = await client.session(model.script)
    await ask_and_hang_up(client, session_id, way, model.step, onDisconnect="abort")
    await soon(model.has_cleaned_up.wait())

    async with client.stream(session_id) as stream:
        events = await stream.upto("agent_run_end")
    assert events[-1]["data"]["status"] == "aborted"
    assert model.calls == 1


async def ask_and_hang_up(client: Client, session_id: str, way: str, step: Step, **fields: Any) -> None:
    """Start a turn, and go without a word when its agent has said something."""
    body = {"sessionId": session_id, "query": "x", **fields}
    if way == "/ws":
        async with client.socket() as socket:
            await socket.say({"type": "send_query", **body})
            await socket.until("assistant_message_delta")
            await soon(step.reached.wait())
            cut(socket.connection.transport.get_extra_info("socket").dup())
            socket.connection.transport.abort()
        return
    async with httpx.AsyncClient(base_url=client.server.url, timeout=PATIENCE) as own:
        asking = asyncio.create_task(own.post(f"/api/v1/sessions/{way}", json=body))
        await soon(step.reached.wait())
        asking.cancel()
        await asyncio.wait([asking])


@pytest.mark.parametrize("way", ["query", "query/stream", "/ws"])
async def test_d04_a_page_that_is_reloaded_loses_nothing_of_its_turn(client: Client, way: str) -> None:
    """google/adk-python#4029, google/adk-python#6924: a refresh killed the run and left half a session."""
    step = Step()

    async def two_halves(_: Scope, __: Prompt) -> AsyncIterator[AgentEvent]:
        yield said("the first half, ")
        await step.wait()
        yield said("the second")
        yield COMPLETED

    session_id = await client.session(two_halves)
    readers = client.server.parts.parts.readers
    await ask_and_hang_up(client, session_id, way, step)
    await until(lambda: len(readers) == 0)
    step.passed.set()
    async with client.stream(session_id) as stream:
        await stream.upto("agent_run_end")

    events = (await client.page(session_id))["events"]
    data = {event["type"]: event["data"] for event in events}
    assert data["assistant_message"]["content"] == "the first half, the second"
    assert (types(events)[-1], data["agent_run_end"]["status"]) == ("agent_run_end", "completed")
    assert (await client.status(session_id))["isProcessing"] is False


# ── one at a time ────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("on_busy", "refused"), [("reject", 19), ("queue", 3), ("interrupt", 0)])
async def test_d11_of_twenty_queries_at_once_no_two_runs_overlap(
    client: Client, on_busy: str, refused: int
) -> None:
    """google/adk-python#4751: two runs in one session interleaved and spoiled its history."""
    may_go_on = asyncio.Event()

    async def some_words(_: Scope, prompt: Prompt) -> AsyncIterator[AgentEvent]:
        await may_go_on.wait()
        for number in range(5):
            yield said(f"{prompt['text']}.{number} ")
            await asyncio.sleep(0)
        yield COMPLETED

    session_id = await client.session(some_words)
    queries = [asyncio.create_task(client.query(session_id, str(n), onBusy=on_busy)) for n in range(20)]
    await until(lambda: sum(query.done() for query in queries) >= refused)
    may_go_on.set()
    answers = await asyncio.gather(*queries)
    events = await client.events(session_id)

    runs = runs_of(events)
    statuses = [answer.status_code for answer in answers]
    assert set(statuses) <= {200, 409 if on_busy == "reject" else 429}
    assert refused <= statuses.count(409) + statuses.count(429) <= max(refused, 3), (
        "one runs and sixteen wait"
    )
    assert len(runs) == statuses.count(200)
    assert len({run[1]["data"]["turnId"] for run in runs}) == len(runs)
    for run in runs:
        words = "".join(event["data"]["delta"] for event in run if event["type"] == "assistant_message_delta")
        asked = run[0]["data"]["content"]
        assert "".join(f"{asked}.{number} " for number in range(5)).startswith(words)
    assert (await client.status(session_id))["queued"] == 0


def runs_of(events: list[Json]) -> list[list[Json]]:
    """The session's runs, each from its user's message to its ending, nothing in between and nothing inside."""
    starts = [index for index, event in enumerate(events) if event["type"] == "user_message"]
    runs = [events[start:end] for start, end in pairwise([*starts, len(events)])]
    for run in runs:
        assert types(run)[:2] == ["user_message", "agent_run_start"]
        assert (types(run)[-1], types(run).count("agent_run_end")) == ("agent_run_end", 1)
        assert run[1]["data"]["turnId"] == run[-1]["data"]["turnId"]
    return runs


async def test_d12_a_stop_in_the_tick_of_its_send_leaves_no_session_active() -> None:
    """Alishahryar1/free-claude-code#1618: a task that was cancelled before it began never cleaned up."""
    times = 1_000
    async with process(memory_stores()) as server:

        async def waits(_: Scope, __: Prompt) -> AsyncIterator[AgentEvent]:
            yield said("x")
            await asyncio.Event().wait()

        session = await server.new_session(waits)
        for number in range(times):
            query = Query(str(number), {"text": str(number)})
            sending = asyncio.create_task(server.supervisor.admit(session, query))
            for _ in range(number % 5):  # the stop meets the start at each of its steps
                await asyncio.sleep(0)
            stopped = await soon(server.supervisor.stops.abort(session.id))
            turn_id = (await soon(sending)).turn_id
            if stopped is None:
                stopped = await soon(server.supervisor.stops.abort(session.id, turn_id))
            assert stopped is not None
            assert (stopped.turn_id, stopped.status) == (turn_id, "aborted")
        await until(lambda: server.supervisor.running == 0)

        endings = (await server.stores.types(session.id)).count("agent_run_end")
    assert endings == times


async def test_d12_over_http_the_session_is_idle_and_takes_the_next_query(client: Client) -> None:
    """Alishahryar1/free-claude-code#1618: 50 sends, each with a stop beside it."""

    async def waits(_: Scope, prompt: Prompt) -> AsyncIterator[AgentEvent]:
        if prompt["text"] == "the next":
            yield COMPLETED
        await asyncio.Event().wait()

    session_id = await client.session(waits)
    for _ in range(50):
        query = asyncio.create_task(client.query(session_id))
        await client.abort(session_id)
        while not query.done():  # one that came before the query stopped nothing
            await client.abort(session_id)
        assert (await query).json()["status"] == "aborted"
        assert (await client.status(session_id))["state"] == "idle"
    assert (await client.query(session_id, "the next")).json()["status"] == "completed"
    assert len(runs_of(await client.events(session_id))) == 51


@pytest.mark.parametrize("way", ["http", "/ws"])
async def test_d13_an_abort_after_the_end_is_a_success_that_stopped_nothing(client: Client, way: str) -> None:
    """sundi133/wb-red-team#204: a late abort was answered with 400, and the page showed an error."""
    session_id = await client.session()
    turn_id = (await client.query(session_id)).json()["turnId"]
    before = await client.events(session_id), await client.status(session_id)

    for named in ({}, {"turnId": turn_id}, {"turnId": turn_id}, {}):
        if way == "http":
            receipt = await client.abort(session_id, **named)
        else:
            async with client.socket() as socket:
                asked = {"type": "abort_query", "sessionId": session_id, **named}
                receipt = (await socket.ask(asked, "abort_result"))["data"]
        assert receipt["success"] is False
        if named:
            assert (receipt["turnId"], receipt["status"]) == (turn_id, "completed")
            assert receipt["lastEventId"] == before[0][-1]["id"]

    assert (await client.events(session_id), await client.status(session_id)) == before
    assert (await client.query(session_id)).json()["status"] == "completed"


# ── exactly one ending ───────────────────────────────────────────────────────────────────────────────────────────────

FAILED: AgentEvent = {"type": "failed", "details": "no", "retryable": False, "code": "no"}
TOOL: AgentEvent = {"type": "tool_started", "id": "t", "name": "search", "args": {}}


def a_tool_that_raises(then: AgentEvent) -> Script:
    async def agent(_: Scope, __: Prompt) -> AsyncIterator[AgentEvent]:
        yield said("Let me see. ")
        yield TOOL
        try:
            raise OSError("the tool broke")
        except OSError as error:
            yield {"type": "failed", "details": str(error), "retryable": True, "code": "tool_failed"}
        yield then

    return agent


async def raises_in_a_tool(_: Scope, __: Prompt) -> AsyncIterator[AgentEvent]:
    yield TOOL
    raise OSError("the tool broke")


async def raises_after_its_end(_: Scope, __: Prompt) -> AsyncIterator[AgentEvent]:
    yield COMPLETED
    raise OSError("too late")


ENDINGS = {
    "failed, then completed": (a_tool_that_raises(COMPLETED), "failed", "tool_failed"),
    "failed twice": (a_tool_that_raises(FAILED), "failed", "tool_failed"),
    "raises in a tool": (raises_in_a_tool, "failed", "agent_exception"),
    "completed, then failed": (saying(COMPLETED, FAILED, ends=False), "completed", None),
    "completed twice": (saying(COMPLETED, COMPLETED, ends=False), "completed", None),
    "completed, then raises": (raises_after_its_end, "completed", None),
    "completed, then goes on": (saying(COMPLETED, said("more"), TOOL, ends=False), "completed", None),
}


@pytest.mark.parametrize("name", ENDINGS)
async def test_d14_a_turn_has_one_ending_the_first(client: Client, name: str) -> None:
    """ag-ui-protocol/ag-ui#1892: an error event was followed by one that said finished."""
    script, status, code = ENDINGS[name]
    session_id = await client.session(script)

    async with client.query_stream(session_id) as stream:
        frames = [frame for frame in await stream.rest() if frame.data is not None]

    kinds = [frame.type for frame in frames]
    assert (kinds[-1], kinds.count("agent_run_end")) == ("agent_run_end", 1)
    assert frames[-1].json["data"]["status"] == status
    assert [f.json["data"]["code"] for f in frames if f.type == "error"] == ([code] if code else [])
    assert kinds.count("tool_call") == kinds.count("tool_result"), "a tool that had begun has its end, too"
    assert (await client.events(session_id))[-1] == frames[-1].json


def raises_in_invoke(_: Scope, __: Prompt) -> Any:
    raise RuntimeError("in invoke")


async def raises_in_its_first_line(_: Scope, __: Prompt) -> AsyncIterator[AgentEvent]:
    raise RuntimeError("in the first line")
    yield COMPLETED


class RaisesInIter:
    """What can't be iterated."""

    def __aiter__(self) -> Any:
        raise RuntimeError("in __aiter__")


def takes_no_arguments() -> Any:
    raise AssertionError


BEFORE_THE_FIRST_EVENT: dict[str, Any] = {
    "in invoke": raises_in_invoke,
    "in its first line": raises_in_its_first_line,
    "in __aiter__": lambda *_: RaisesInIter(),
    "in its signature": takes_no_arguments,
    "in what it returns": lambda *_: 5,
}


@pytest.mark.parametrize("where", BEFORE_THE_FIRST_EVENT)
async def test_d15_a_failure_before_the_first_event_is_an_ending_at_once(client: Client, where: str) -> None:
    """langgenius/dify#36996: no terminal event came, and the client waited for 300 seconds."""
    session_id = await client.session(BEFORE_THE_FIRST_EVENT[where])

    async with client.query_stream(session_id) as stream:
        events = [frame.json for frame in await soon(stream.rest()) if frame.data is not None]
    answer = await soon(client.query(session_id))

    assert types(events)[-2:] == ["error", "agent_run_end"]
    assert events[-1]["data"]["status"] == "failed"
    assert answer.status_code == 502
    assert answer.json()["code"] == events[-2]["data"]["code"]
    assert answer.json()["code"] in ("agent_exception", "agent_protocol_error")


async def test_d15_an_agent_that_cannot_be_imported_is_told_before_anybody_waits(
    tmp_path: Path, embedded_database: str
) -> None:
    """langgenius/dify#36996: the server does not start without its agent, so no client waits for it."""
    module = tmp_path / "broken_agent.py"
    module.write_text("import nowhere_to_be_found\n")
    serve = "import sys; from app.cli import main; sys.exit(main())"
    process = await asyncio.create_subprocess_exec(
        *("/usr/bin/env", f"PYTHONPATH={tmp_path}:{ROOT}", f"TARKO_DATABASE_URL={embedded_database}"),
        *(sys.executable, "-c", serve, "serve", "broken_agent:invoke", "--port", "0"),
        cwd=ROOT,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    _, errors = await soon(process.communicate())

    assert process.returncode == 1
    assert b"nowhere_to_be_found" in errors
    assert b"Traceback" not in errors


async def test_d26_a_turn_whose_server_was_killed_is_ended_by_the_next_start(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """bytedance/deer-flow#1087: after a crash old runs stayed `running` and blocked new ones."""
    home = tmp_path_factory.mktemp("d26")
    settings: Json = {"data_dir": home, "agent": "tests.reports.agents:patient"}
    async with (
        running(**settings) as (process, url),
        httpx.AsyncClient(base_url=url, timeout=PATIENCE) as http,
    ):
        of_session = {"sessionId": (await http.post("/api/v1/sessions/create")).json()["sessionId"]}
        body = of_session | {"query": "wait"}
        async with http.stream("POST", "/api/v1/sessions/query/stream", json=body) as response:
            await Stream(response).upto("assistant_message_delta")
            process.kill()
            await soon(process.wait())
    async with (
        running(**settings) as (process, url),
        httpx.AsyncClient(base_url=url, timeout=PATIENCE) as http,
    ):
        status = await http.get("/api/v1/sessions/status", params=of_session)
        log = await http.get("/api/v1/sessions/events", params=of_session)
        answer = await http.post("/api/v1/sessions/query", json=of_session | {"query": "hi"})
        process.terminate()
        await soon(process.wait())

    assert status.json()["status"]["state"] == "idle"
    events = log.json()["events"]
    assert types(events)[-3:] == ["assistant_message", "error", "agent_run_end"]
    assert events[-3]["data"]["content"] == "hello"
    assert (events[-2]["data"]["code"], events[-2]["data"]["recoverable"]) == ("server_restarted", True)
    assert events[-1]["data"]["status"] == "interrupted"
    assert answer.json()["response"] == "hello"


# ── the same key is the same turn ────────────────────────────────────────────────────────────────────────────────────


async def test_d29_a_key_is_one_run_however_often_it_comes_and_after_a_restart(
    embedded_server: Server,
) -> None:
    """langgenius/dify#39685: the key was taken, and each retry started a run of its own."""
    step = Step()
    runs = 0

    async def once(_: Scope, __: Prompt) -> AsyncIterator[AgentEvent]:
        nonlocal runs
        runs += 1
        yield said("only ")
        await step.wait()
        yield said("once")
        yield COMPLETED

    async def ask(client: Client, session_id: str, text: str = "x") -> httpx.Response:
        body = {"sessionId": session_id, "query": text}
        return await client.post("/api/v1/sessions/query", body, idempotency_key="the-key")

    async with own_database(embedded_server) as url:
        async with serving(url) as server:
            client = await server.client()
            session_id = await client.session(once)
            asking = [asyncio.create_task(ask(client, session_id)) for _ in range(50)]
            await soon(step.reached.wait())
            async with client.socket() as socket:
                query = {"type": "send_query", "sessionId": session_id, "query": "x"}
                await socket.say({**query, "idempotencyKey": "the-key"})
                step.passed.set()
                answers = await soon(asyncio.gather(*asking))
                await socket.until("agent_run_end")
            other = await ask(client, session_id, "another body")
        async with serving(url) as server:
            client = await server.client()
            server.agent.in_session[session_id] = once
            late, late_other = await ask(client, session_id), await ask(client, session_id, "another body")
            log = await client.events(session_id)

    assert {answer.status_code for answer in answers} == {200}
    assert {answer.json()["turnId"] for answer in [*answers, late]} == {answers[0].json()["turnId"]}
    assert {answer.json()["response"] for answer in [*answers, late]} == {"only once"}
    for refused in (other, late_other):
        assert (refused.status_code, refused.json()["code"]) == (422, "idempotency_key_reused")
    assert runs == 1
    assert types(log).count("agent_run_start") == 1


async def test_d29_a_key_of_a_one_shot_query_is_one_session_and_one_run(
    shared: Serving, client: Client
) -> None:
    """langgenius/dify#39685: a retry that creates a session is the same one, too."""
    body = {"query": "hello"}
    asking = (client.post("/api/v1/oneshot/query", body, idempotency_key="one-shot") for _ in range(20))
    answers = await asyncio.gather(*asking)

    assert {answer.status_code for answer in answers} == {200}
    assert len({answer.json()["sessionId"] for answer in answers}) == 1
    assert len({answer.json()["turnId"] for answer in answers}) == 1
    log = await client.events(answers[0].json()["sessionId"])
    assert types(log).count("session_start") == types(log).count("agent_run_start") == 1
    assert places(log) == list(range(1, len(log) + 1))
