"""Turn admission as clients meet it: what a busy session answers, the queue, repeated requests, hang-ups, deadlines."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from app.agents.contract import AgentEvent, Prompt, Scope
from tests.conftest import Server, own_database
from tests.server import COMPLETED, HEADERS, Client, Frame, Json, Step, Stream, said, serving, soon, until

QUERY = "/api/v1/sessions/query"
STREAM = QUERY + "/stream"
ONESHOT = "/api/v1/oneshot/query"


class Talk:
    """An agent that waits, for the prompts that it is told of, until it may go on."""

    def __init__(self) -> None:
        self.steps: dict[str, Step] = {}
        self.asked: list[str] = []

    def hold(self, prompt: str) -> Step:
        return self.steps.setdefault(prompt, Step())

    async def __call__(self, _: Scope, prompt: Prompt) -> AsyncIterator[AgentEvent]:
        self.asked.append(prompt["text"])
        yield said(f"re {prompt['text']}")
        if prompt["text"] in self.steps:
            await self.steps[prompt["text"]].wait()
        yield COMPLETED


class Busy:
    """A session in which a turn runs until `held` is passed."""

    def __init__(
        self, client: Client, session_id: str, talk: Talk, asking: "asyncio.Task[httpx.Response]"
    ) -> None:
        self.client = client
        self.id = session_id
        self.talk = talk
        self.held = talk.hold("held")
        self.asking = asking

    async def queue(self) -> Json:
        found: Json = (await self.client.get("/api/v1/sessions/queue", sessionId=self.id)).json()
        return found

    async def waiting(self, count: int) -> list[Json]:
        """The queue, when so many wait."""
        async with asyncio.timeout(60):
            while len(found := (await self.queue())["queue"]) != count:  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0.01)
        queue: list[Json] = found
        return queue

    def ask(self, query: str, **fields: Any) -> "asyncio.Task[httpx.Response]":
        return asyncio.create_task(self.client.query(self.id, query, **fields))


@asynccontextmanager
async def busy(client: Client) -> AsyncIterator[Busy]:
    talk = Talk()
    session_id = await client.session(talk)
    held = talk.hold("held")
    asking = asyncio.create_task(client.query(session_id, "held"))
    await soon(held.reached.wait())
    try:
        yield Busy(client, session_id, talk, asking)
    finally:
        for step in talk.steps.values():
            step.passed.set()
        await asyncio.wait([asking])


def refusal(response: httpx.Response) -> tuple[int, str]:
    return response.status_code, response.json()["code"]


async def starts(client: Client, session_id: str) -> list[str]:
    """The turns that the log has, in order."""
    events = await client.events(session_id)
    return [event["data"]["turnId"] for event in events if event["type"] == "agent_run_start"]


async def ending(client: Client, session_id: str, turn_id: str) -> str:
    """How a turn ended, when it has."""
    async with client.stream(session_id) as stream:
        while True:
            event = (await stream.event()).json
            if event["type"] == "agent_run_end" and event["data"]["turnId"] == turn_id:
                return str(event["data"]["status"])


def send(session_id: str, query: str, **fields: Any) -> Json:
    return {"type": "send_query", "sessionId": session_id, "query": query, **fields}


# ── a busy session ───────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_query_may_wait_for_its_turn(client: Client) -> None:
    async with busy(client) as session:
        asking = session.ask("later", onBusy="queue")
        [waiting] = await session.waiting(1)
        assert session.talk.asked == ["held"]
        session.held.passed.set()
        answer = (await soon(asking)).json()
        assert (answer["response"], answer["status"]) == ("re later", "completed")
        assert answer["turnId"] == waiting["turnId"]
        first = (await soon(session.asking)).json()["turnId"]
        assert await starts(client, session.id) == [first, answer["turnId"]]


async def test_a_query_may_interrupt(client: Client) -> None:
    async with busy(client) as session:
        answer = (await session.ask("now", onBusy="interrupt")).json()
        assert (answer["response"], answer["status"]) == ("re now", "completed")
        aborted = (await soon(session.asking)).json()
        assert (aborted["response"], aborted["status"]) == ("re held", "aborted")
        assert await starts(client, session.id) == [aborted["turnId"], answer["turnId"]]


async def test_the_server_may_have_another_default(embedded_server: Server) -> None:
    async with own_database(embedded_server) as url, serving(url, on_busy="queue", queue_limit=1) as server:
        client = await server.client()
        async with busy(client) as session:
            asking = session.ask("later")
            await session.waiting(1)
            assert refusal(await session.ask("x")) == (429, "queue_full")
            assert refusal(await session.ask("x", onBusy="reject")) == (409, "session_busy")
            async with client.socket() as socket:
                answer = await socket.ask(send(session.id, "x"), "error")
                assert answer["data"]["code"] == "queue_full"
            session.held.passed.set()
            assert (await soon(asking)).status_code == 200


async def test_a_waiting_stream_says_so_and_then_has_its_own_turn_only(client: Client) -> None:
    async with busy(client) as session:
        async with client.query_stream(session.id, "later", onBusy="queue") as stream:
            opening = await stream.next()
            notice = await stream.next()
            assert opening is not None
            assert notice is not None
            assert (opening.data, notice.event, notice.type) == (None, "query_queued", "query_queued")
            [waiting] = await session.waiting(1)
            assert notice.json["data"] == {"turnId": waiting["turnId"], "position": 1}
            assert notice.id == notice.json["id"]
            assert notice.json["sessionId"] == session.id
            session.held.passed.set()
            frames = [frame for frame in await stream.rest() if frame.data is not None]
        assert [frame.type for frame in frames] == [
            "user_message", "agent_run_start", "assistant_message_start", "assistant_message_delta",
            "assistant_message", "agent_run_end",
        ]  # fmt: skip
        assert [frame.event for frame in frames] == [frame.type for frame in frames]
        assert {frame.json["data"]["turnId"] for frame in (frames[1], frames[-1])} == {waiting["turnId"]}
        own = [event for event in await client.events(session.id) if event["id"] in {f.id for f in frames}]
        assert [frame.json for frame in frames] == own


async def test_the_notices_id_is_a_cursor(client: Client) -> None:
    async with busy(client) as session:
        async with client.query_stream(session.id, "later", onBusy="queue") as waiting:
            await waiting.next()
            notice = await waiting.event()
            session.held.passed.set()
            frames = [frame for frame in await waiting.rest() if frame.data is not None]
        async with client.stream(session.id, last=notice.id) as stream:
            seen = await stream.upto("agent_run_end")
            seen += await stream.upto("agent_run_end")
        assert [event["id"] for event in seen][-len(frames) :] == [frame.id for frame in frames]
        page = await client.page(session.id, after=notice.id, deltas="true")
        assert page["events"] == seen


async def test_a_waiting_stream_is_pinged(embedded_server: Server) -> None:
    async with own_database(embedded_server) as url, serving(url, ping_interval=0.05) as server:
        client = await server.client()
        async with busy(client) as session, client.query_stream(session.id, "x", onBusy="queue") as stream:
            assert (await stream.event()).type == "query_queued"
            pings = [await stream.next() for _ in range(3)]
            assert pings == [Frame(comment="ping")] * 3
            session.held.passed.set()
            assert (await stream.upto("agent_run_end"))[0]["type"] == "user_message"


async def test_the_queue_is_told(client: Client) -> None:
    async with busy(client) as session:
        running = (await client.status(session.id))["turnId"]
        asking = [session.ask("one", onBusy="queue")]
        await session.waiting(1)
        asking.append(session.ask("two", onBusy="queue"))
        await session.waiting(2)
        asking.append(session.ask("first", onBusy="queue"))
        await session.waiting(3)
        body = await session.queue()
        assert (body["sessionId"], body["running"]) == (session.id, running)
        assert [(each["position"], each["query"]) for each in body["queue"]] == [
            (1, "one"), (2, "two"), (3, "first"),
        ]  # fmt: skip
        assert all(isinstance(each["acceptedAt"], int) for each in body["queue"])
        status = await client.status(session.id)
        assert status == {"isProcessing": True, "state": "executing", "turnId": running, "queued": 3}
        session.held.passed.set()
        await soon(asyncio.gather(*asking))
    assert await client.status(session.id) == {
        "isProcessing": False,
        "state": "idle",
        "queued": 0,
        "lastEnding": "completed",
    }
    assert await session.queue() == {"sessionId": session.id, "running": None, "queue": []}


async def test_the_queue_of_a_session_that_is_not_there_is_not_found(client: Client) -> None:
    for session_id in ("sess_none", "x"):
        response = await client.get("/api/v1/sessions/queue", sessionId=session_id)
        assert refusal(response) == (404, "session_not_found")


async def test_a_waiting_turn_can_be_removed(client: Client) -> None:
    async with busy(client) as session:
        asking = session.ask("query", onBusy="queue")
        await session.waiting(1)
        async with (
            client.query_stream(session.id, "stream", onBusy="queue") as stream,
            client.socket() as socket,
        ):
            assert (await stream.event()).type == "query_queued"
            await socket.say(send(session.id, "socket", onBusy="queue", requestId="r"))
            queued = (await socket.until("query_queued"))[-1]
            assert (queued["data"]["position"], queued["data"]["requestId"]) == (3, "r")
            turns = [each["turnId"] for each in await session.waiting(3)]
            assert queued["data"]["turnId"] == turns[2]
            for turn in turns:
                assert await client.abort(session.id, turnId=turn) == {
                    "success": True, "status": "removed", "turnId": turn,
                }  # fmt: skip
            assert refusal(await soon(asking)) == (409, "turn_removed")
            [farewell] = await stream.rest()
            assert (farewell.event, farewell.json["data"]["code"]) == ("error", "turn_removed")
            assert farewell.id == farewell.json["id"]
            told = (await socket.until("error"))[-1]
            assert (told["data"]["code"], told["data"]["details"]["turnId"]) == ("turn_removed", turns[2])
            again = await client.post("/api/v1/sessions/abort", {"sessionId": session.id, "turnId": turns[0]})
            assert refusal(again) == (404, "turn_not_found")
        assert session.talk.asked == ["held"]
        assert len(await starts(client, session.id)) == 1


async def test_a_deletion_ends_what_waits(client: Client) -> None:
    async with busy(client) as session:
        asking = session.ask("query", onBusy="queue")
        await session.waiting(1)
        async with client.query_stream(session.id, "stream", onBusy="queue") as stream:
            assert (await stream.event()).type == "query_queued"
            assert (await client.delete(session.id)).status_code == 200
            assert [f.event for f in await stream.rest() if f.data is not None] in ([], ["error"])
            assert (await soon(asking)).status_code in (404, 409)


# ── on a socket ──────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_socket_is_told_that_its_query_waits_and_then_has_its_events(client: Client) -> None:
    async with busy(client) as session, client.socket() as socket:
        queued = await socket.ask(send(session.id, "later", onBusy="queue"), "query_queued")
        [waiting] = await session.waiting(1)
        assert queued["data"] == {"turnId": waiting["turnId"], "position": 1}
        assert queued["sessionId"] == session.id
        assert queued["id"].startswith(f"evt_{session.id.removeprefix('sess_')}_")
        session.held.passed.set()
        events = await socket.until("agent_run_end")
        events += await socket.until("agent_run_end")
        page = await client.page(session.id, after=queued["id"], deltas="true")
        assert page["events"] == events
        assert events[-1]["data"]["turnId"] == waiting["turnId"]


async def test_a_query_on_a_socket_may_interrupt(client: Client) -> None:
    async with busy(client) as session, client.socket() as socket:
        await socket.say(send(session.id, "now", onBusy="interrupt"))
        ends = [(await socket.until("agent_run_end"))[-1]["data"]["status"] for _ in range(2)]
        assert ends == ["aborted", "completed"]


# ── keys ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_repeat_is_the_same_turn_while_it_runs_and_when_it_has_ended(client: Client) -> None:
    talk = Talk()
    step = talk.hold("x")
    session_id = await client.session(talk)
    body = {"sessionId": session_id, "query": "x"}
    asking = [asyncio.create_task(client.post(QUERY, body, idempotency_key="k")) for _ in range(5)]
    await soon(step.reached.wait())
    async with keyed_stream(client, body) as stream:
        await stream.event()
        step.passed.set()
        await stream.upto("agent_run_end")
    answers = [(await soon(each)) for each in asking]
    answers.append(await client.post(QUERY, body, idempotency_key="k"))
    assert {answer.content for answer in answers} == {answers[0].content}
    assert answers[0].json()["response"] == "re x"
    assert talk.asked == ["x"]
    assert len(await starts(client, session_id)) == 1


@asynccontextmanager
async def keyed_stream(
    client: Client, body: Json, path: str = STREAM, key: str = "k"
) -> AsyncIterator[Stream]:
    headers = HEADERS | {"idempotency-key": key}
    async with client.http.stream("POST", path, content=json.dumps(body), headers=headers) as response:
        assert response.status_code == 200, await response.aread()
        yield Stream(response)


async def test_a_repeated_stream_has_the_same_bytes(client: Client) -> None:
    """While the turn runs, and again when it has ended."""
    talk = Talk()
    step = talk.hold("x")
    session_id = await client.session(talk)
    body = {"sessionId": session_id, "query": "x"}
    async with keyed_stream(client, body) as first:
        await first.upto("assistant_message_delta")
        async with keyed_stream(client, body) as second:
            await second.upto("assistant_message_delta")
            await client.append(session_id, "user_feedback", {"rating": 5})
            step.passed.set()
            await second.upto("agent_run_end")
            assert await second.rest() == []
        await first.upto("agent_run_end")
    async with keyed_stream(client, body) as third:
        await third.rest()
    assert frames_of(second) == frames_of(third)
    own = [block for block in frames_of(first) if "user_feedback" not in block]
    assert frames_of(second) == own
    assert talk.asked == ["x"]


def frames_of(stream: Stream) -> list[str]:
    """The blocks of a stream that dispatch, as they were sent."""
    return [block for block in stream.read.split("\n\n") if "data:" in block]


async def test_a_repeat_of_a_waiting_query_waits_with_it(client: Client) -> None:
    async with busy(client) as session:
        body = {"sessionId": session.id, "query": "later", "onBusy": "queue"}
        async with keyed_stream(client, body) as first, keyed_stream(client, body) as second:
            notices = [await stream.event() for stream in (first, second)]
            [waiting] = await session.waiting(1)
            assert [notice.json["data"]["turnId"] for notice in notices] == [waiting["turnId"]] * 2
            session.held.passed.set()
            for stream in (first, second):
                await stream.upto("agent_run_end")
        assert frames_of(first)[1:] == frames_of(second)[1:]


async def test_a_key_with_another_body_is_refused(client: Client) -> None:
    session_id = await client.session()
    assert (await client.post(QUERY, {"sessionId": session_id, "query": "x"}, idempotency_key="k")).is_success
    for path in (QUERY, STREAM):
        other = {"sessionId": session_id, "query": "y"}
        assert refusal(await client.post(path, other, idempotency_key="k")) == (422, "idempotency_key_reused")
    async with client.socket() as socket:
        answer = await socket.ask(send(session_id, "y", idempotencyKey="k"), "error")
        assert answer["data"]["code"] == "idempotency_key_reused"
    assert len(await starts(client, session_id)) == 1


BAD_KEYS = ["", "x" * 201, "two words", "é"]


@pytest.mark.parametrize("key", BAD_KEYS)
@pytest.mark.parametrize("path", [QUERY, STREAM, ONESHOT, ONESHOT + "/stream"])
async def test_a_key_that_is_none_is_refused(client: Client, path: str, key: str) -> None:
    session_id = await client.session()
    body = json.dumps({"sessionId": session_id, "query": "x"}).encode()
    headers = [*HEADERS.items(), (b"idempotency-key", key.encode())]
    response = await soon(client.http.post(path, content=body, headers=headers))  # type: ignore[arg-type]
    assert refusal(response) == (400, "bad_request")
    assert (await client.page(session_id))["total"] == 1


@pytest.mark.parametrize("key", [*BAD_KEYS, "\x00", "\ud800", 5, None])
async def test_a_key_that_is_none_is_refused_on_a_socket(client: Client, key: Any) -> None:
    session_id = await client.session()
    async with client.socket() as socket:
        if key is None:
            await socket.say(send(session_id, "x", idempotencyKey=None))
            assert (await socket.until("agent_run_end"))[-1]["data"]["status"] == "completed"
        else:
            answer = await socket.ask(send(session_id, "x", idempotencyKey=key), "error")
            assert answer["data"]["code"] in ("bad_message", "bad_json")


async def test_a_repeat_on_a_socket_joins_the_turn(client: Client) -> None:
    talk = Talk()
    step = talk.hold("x")
    session_id = await client.session(talk)
    async with client.socket() as one, client.socket() as two:
        await one.say(send(session_id, "x", idempotencyKey="k", requestId="r1"))
        await soon(step.reached.wait())
        await two.say(send(session_id, "x", idempotencyKey="k", requestId="r2"))
        step.passed.set()
        heard = [await socket.until("agent_run_end") for socket in (one, two)]
        assert heard[0] == heard[1]
        answer = await client.post(QUERY, {"sessionId": session_id, "query": "x"}, idempotency_key="k")
        assert answer.json()["turnId"] == heard[0][-1]["data"]["turnId"]
    assert talk.asked == ["x"]


async def test_a_repeated_one_shot_query_is_the_same_session_and_turn(client: Client) -> None:
    talk = Talk()
    client.server.agent.for_prompt["once"] = talk
    held = talk.hold("once")
    body = {"query": "once", "sessionName": "one"}
    asking = [asyncio.create_task(client.post(ONESHOT, body, idempotency_key="one-shot")) for _ in range(5)]
    await soon(held.reached.wait())
    async with keyed_stream(client, body, ONESHOT + "/stream", "one-shot") as stream:
        await stream.event()
        held.passed.set()
        await stream.upto("agent_run_end")
    answers = [await soon(each) for each in asking]
    answers.append(await client.post(ONESHOT, body, idempotency_key="one-shot"))
    assert {answer.content for answer in answers} == {answers[0].content}, [a.text[:200] for a in answers]
    assert answers[0].status_code == 200
    session_id = answers[0].json()["sessionId"]
    assert len(await starts(client, session_id)) == 1
    other = await client.post(ONESHOT, {"query": "other"}, idempotency_key="one-shot")
    assert refusal(other) == (422, "idempotency_key_reused")
    another = await client.post(ONESHOT, {"query": "once"}, idempotency_key="another")
    assert another.json()["sessionId"] != session_id


async def test_one_shot_queries_of_two_principals_with_one_key_are_two(embedded_server: Server) -> None:
    async with (
        own_database(embedded_server) as url,
        serving(url, tokens=f"alice={'a' * 16},bob={'b' * 16}") as server,
    ):
        clients = [await server.client(name * 16) for name in "ab"]
        sessions = [
            (await client.post(ONESHOT, {"query": "x"}, idempotency_key="k")).json() for client in clients
        ]
        assert sessions[0]["sessionId"] != sessions[1]["sessionId"]


# ── clients that hang up ─────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("path", [QUERY, STREAM, ONESHOT, ONESHOT + "/stream"])
async def test_hanging_up_aborts_the_turn_if_it_was_asked_to(client: Client, path: str) -> None:
    talk = Talk()
    prompt = f"hangs up on {path}"
    client.server.agent.for_prompt[prompt] = talk
    step = talk.hold(prompt)
    session_id = await client.session()
    body = {"query": prompt, "onDisconnect": "abort"} | (
        {"sessionId": session_id} if "sessions" in path else {}
    )
    asking = asyncio.create_task(client.http.post(path, content=json.dumps(body), headers=HEADERS))
    await soon(step.reached.wait())
    asking.cancel()
    await asyncio.wait([asking])
    await soon(step.left.wait())
    if "sessions" in path:
        [turn] = await starts(client, session_id)
        assert await ending(client, session_id, turn) == "aborted"


async def test_hanging_up_a_socket_aborts_its_own_turns_only(client: Client) -> None:
    talk, other = Talk(), Talk()
    steps = [talk.hold("own"), other.hold("kept")]
    sessions = [await client.session(talk), await client.session(other)]
    async with client.socket() as socket:
        await socket.say(send(sessions[0], "own", onDisconnect="abort"))
        await socket.say(send(sessions[1], "kept"))
        for step in steps:
            await soon(step.reached.wait())
    [own], [kept] = [await starts(client, session) for session in sessions]
    assert await ending(client, sessions[0], own) == "aborted"
    assert not steps[1].left.is_set()
    steps[1].passed.set()
    assert await ending(client, sessions[1], kept) == "completed"


async def test_a_socket_forgets_its_own_turns_that_have_ended(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    talk = Talk()
    step = talk.hold("held")
    session_id = await client.session(talk)
    abandoned: set[str] = set()
    stops = client.server.parts.parts.supervisor.stops
    monkeypatch.setattr(stops, "abandon", lambda _, turn_id: abandoned.add(turn_id))
    async with client.socket() as socket:
        for words in ("one", "two"):
            await socket.say(send(session_id, words, onDisconnect="abort"))
            await socket.until("agent_run_end")
        await socket.say(send(session_id, "held", onDisconnect="abort"))
        await soon(step.reached.wait())
        refused = await socket.ask(send(session_id, "refused", onDisconnect="abort"), "error")
        assert refused["data"]["code"] == "session_busy"
        await socket.say(send(session_id, "later", onDisconnect="abort", onBusy="queue"))
        queued = (await socket.until("query_queued"))[-1]["data"]["turnId"]
    await until(lambda: bool(abandoned))
    assert abandoned == {(await starts(client, session_id))[-1], queued}
    step.passed.set()


@pytest.mark.parametrize("path", [QUERY, STREAM])
async def test_hanging_up_on_a_waiting_query_removes_just_that(client: Client, path: str) -> None:
    async with busy(client) as session:
        body = {"sessionId": session.id, "query": "later", "onBusy": "queue", "onDisconnect": "abort"}
        asking = asyncio.create_task(client.http.post(path, content=json.dumps(body), headers=HEADERS))
        await session.waiting(1)
        asking.cancel()
        await asyncio.wait([asking])
        await session.waiting(0)
        assert not session.asking.done()
        session.held.passed.set()
        assert (await soon(session.asking)).json()["status"] == "completed"
        assert session.talk.asked == ["held"]


async def test_a_late_hang_up_does_not_hit_the_next_turn(client: Client) -> None:
    talk = Talk()
    session_id = await client.session(talk)
    step = talk.hold("next")
    async with client.socket() as socket:
        await socket.say(send(session_id, "own", onDisconnect="abort"))
        await socket.until("agent_run_end")
        asking = asyncio.create_task(client.query(session_id, "next"))
        await soon(step.reached.wait())
    await until(lambda: len(client.server.parts.parts.supervisor._aside) == 0)
    step.passed.set()
    assert (await soon(asking)).json()["status"] == "completed"


@pytest.mark.parametrize("fields", [{}, {"onDisconnect": "continue"}])
async def test_hanging_up_stops_nothing_otherwise(client: Client, fields: Json) -> None:
    talk = Talk()
    step = talk.hold("x")
    session_id = await client.session(talk)
    async with client.query_stream(session_id, "x", **fields):
        await soon(step.reached.wait())
    async with client.socket() as socket:
        await socket.say(send(session_id, "y", onBusy="queue", **fields))
        await socket.until("query_queued")
    step.passed.set()
    async with client.stream(session_id) as stream:
        ends = [(await stream.upto("agent_run_end"))[-1] for _ in range(2)]
    assert [end["data"]["status"] for end in ends] == ["completed"] * 2


# ── deadlines ────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_turn_that_takes_too_long_is_a_504(client: Client) -> None:
    talk = Talk()
    talk.hold("x")
    session_id = await client.session(talk)
    response = await client.query(session_id, "x", timeoutMs=50)
    assert refusal(response) == (504, "deadline_exceeded")
    details = response.json()["details"]
    assert (details["status"], details["retryable"], details["response"]) == ("failed", True, "re x")
    assert details["events"][-1]["type"] == "agent_run_end"


async def test_an_agent_that_says_nothing_for_too_long_is_a_502(client: Client) -> None:
    talk = Talk()
    talk.hold("x")
    session_id = await client.session(talk)
    response = await client.query(session_id, "x", silenceTimeoutMs=50)
    assert refusal(response) == (502, "agent_silent")


async def test_the_servers_bounds_are_overridden_by_the_querys(embedded_server: Server) -> None:
    async with (
        own_database(embedded_server) as url,
        serving(url, turn_deadline=0.2, turn_silence=0.1) as server,
    ):
        client = await server.client()
        talk = Talk()
        step = talk.hold("x")
        session_id = await client.session(talk)
        assert refusal(await client.query(session_id, "x")) == (502, "agent_silent")
        assert refusal(await client.query(session_id, "x", silenceTimeoutMs=60_000)) == (
            504,
            "deadline_exceeded",
        )
        asking = asyncio.create_task(client.query(session_id, "x", silenceTimeoutMs=60_000, timeoutMs=60_000))
        step.reached.clear()
        await soon(step.reached.wait())
        step.passed.set()
        assert (await soon(asking)).json()["status"] == "completed"


async def test_a_socket_may_set_bounds(client: Client) -> None:
    talk = Talk()
    talk.hold("x")
    session_id = await client.session(talk)
    async with client.socket() as socket:
        await socket.say(send(session_id, "x", timeoutMs=50))
        [error] = [event for event in await socket.until("agent_run_end") if event["type"] == "error"]
        assert error["data"]["code"] == "deadline_exceeded"


BAD_OPTIONS: list[Json] = [
    {"onBusy": "dance"}, {"onBusy": 1}, {"onDisconnect": "dance"}, {"onDisconnect": None},
    *({field: value} for field in ("timeoutMs", "silenceTimeoutMs")
      for value in (0, -1, 1.5, "50", True, 7 * 86_400_000 + 1, 2**70)),
]  # fmt: skip


@pytest.mark.parametrize("options", BAD_OPTIONS)
async def test_options_have_limits(client: Client, options: Json) -> None:
    session_id = await client.session()
    for path in (QUERY, STREAM, ONESHOT, ONESHOT + "/stream"):
        response = await client.post(path, {"sessionId": session_id, "query": "x"} | options)
        assert refusal(response) == (400, "bad_request"), path
    async with client.socket() as socket:
        answer = await socket.ask(send(session_id, "x", **options), "error")
        assert answer["data"]["code"] == "bad_message"
    assert (await client.page(session_id))["total"] == 1


async def test_the_widest_bounds_are_taken(client: Client) -> None:
    session_id = await client.session()
    for field in ("timeoutMs", "silenceTimeoutMs"):
        assert (await client.query(session_id, "x", **{field: 7 * 86_400_000})).status_code == 200


# ── a server that stops ──────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_stopping_server_sends_those_that_wait_away_with_a_cursor(embedded_server: Server) -> None:
    async with own_database(embedded_server) as url:
        async with serving(url, drain_grace=2) as server:
            client = await server.client()
            talk = Talk()
            step = talk.hold("held")
            session_id = await client.session(talk)
            holding = asyncio.create_task(client.query(session_id, "held"))
            await soon(step.reached.wait())
            asking = asyncio.create_task(client.query(session_id, "first", onBusy="queue"))
            await until(lambda: bool(server.parts.parts.supervisor.queue._removed))
            async with client.query_stream(session_id, "later", onBusy="queue") as stream:
                notice = await stream.event()
                turn = notice.json["data"]["turnId"]
                drain = asyncio.create_task(server.parts.drain())
                last = (await stream.rest())[-1]
                assert (last.data, last.id) == (None, notice.json["id"].partition("~")[0])
                assert refusal(await soon(asking)) == (503, "server_shutdown")
            await drain
            assert (await soon(holding)).json()["status"] == "aborted"
        async with serving(url, server.agent) as again:
            client = await again.client()
            assert await ending(client, session_id, turn) == "completed"
            assert talk.asked == ["held", "first", "later"]
