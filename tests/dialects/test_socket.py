"""`/ws` with a real socket: conversations, mischief, slow readers, a server that stops."""

import asyncio
import json
import random
import socket as sockets
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed

from app.agents.contract import AgentEvent, Prompt, Scope
from app.dialects.tarko.routes import socket as socket_routes
from app.sessions.session import Standing
from app.transport.websocket import TOO_SLOW, JoinedSessions
from app.turns.admission import Admitted
from tests.conftest import Server, own_database
from tests.server import (
    COMPLETED,
    PATIENCE,
    Client,
    Json,
    Socket,
    Step,
    said,
    saying,
    serving,
    soon,
    types,
    until,
)


def join(session_id: str, **fields: Any) -> Json:
    return {"type": "join_session", "sessionId": session_id, **fields}


def send(session_id: str, **fields: Any) -> Json:
    return {"type": "send_query", "sessionId": session_id, "query": "Hello", **fields}


def waiting(step: Step) -> Callable[[Scope, Prompt], AsyncIterator[AgentEvent]]:
    """Says something, then waits."""

    async def agent(_: Scope, __: Prompt) -> AsyncIterator[AgentEvent]:
        yield said("begun")
        await step.wait()
        yield COMPLETED

    return agent


async def closed(socket: Socket) -> int:
    """The code with which the server closes the socket, whatever it says before."""
    try:
        while True:
            await soon(socket.connection.recv())
    except ConnectionClosed as error:
        return error.rcvd.code if error.rcvd else 1006


# ── what is said ─────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_joining_is_acknowledged_before_any_event(client: Client) -> None:
    session_id = await client.session()
    await client.query(session_id)
    last = (await client.page(session_id, order="desc", limit=1))["events"][0]["id"]

    async with client.socket() as socket:
        await socket.say(join(session_id, requestId="r1"))
        heard = await socket.until("agent_run_end")

    assert heard[0]["type"] == "session_joined"
    assert heard[0]["data"] == {
        "sessionId": session_id,
        "lastSeq": 8,
        "lastEventId": last,
        "processing": False,
        "requestId": "r1",
    }
    assert heard[0]["id"] == f"evt_{session_id.removeprefix('sess_')}_0~1"
    assert heard[0]["metadata"] == {"source": "server", "version": "1.0"}
    assert types(heard[1:]) == types(await client.events(session_id, deltas=False))


async def test_joining_may_begin_at_a_cursor_or_now(client: Client) -> None:
    session_id = await client.session()
    await client.query(session_id)
    everything = await client.events(session_id)

    async with client.socket() as socket:
        for after in (5, "5", everything[4]["id"]):
            await socket.say(join(session_id, after=after))
            heard = await socket.until("agent_run_end")
            assert heard[1:] == everything[5:]
        await socket.ask(join(session_id, **{"from": "now"}), "session_joined")
        await client.append(session_id, "note")
        assert (await socket.hear())["type"] == "note"


async def test_joining_again_moves_the_reader(client: Client) -> None:
    session_id = await client.session()

    async with client.socket() as socket:
        await socket.ask(join(session_id), "session_start")
        await socket.ask(join(session_id), "session_start")
        await client.append(session_id, "note")
        await socket.until("note")
        assert types([await socket.ask({"type": "ping"}, "pong")]) == ["pong"]


async def test_cursors_that_are_none_are_refused_and_nothing_is_joined(client: Client) -> None:
    session_id, other = await client.session(), await client.session()
    cases: list[tuple[Any, str]] = [
        (-1, "bad_cursor"),
        ("", "bad_cursor"),
        ("ctl_1", "bad_cursor"),
        (f"evt_{other.removeprefix('sess_')}_1", "bad_cursor"),
        (10**4000, "bad_cursor"),
        (2, "cursor_ahead"),
        (True, "bad_message"),
        (1.5, "bad_message"),
        ([], "bad_message"),
    ]
    async with client.socket() as socket:
        for after, code in cases:
            answer = await socket.ask(join(session_id, after=after), "error")
            assert answer["data"]["code"] == code, after
        await client.append(session_id, "note")
        assert (await socket.ask({"type": "ping"}, "pong"))["type"] == "pong"


async def test_send_query_joins_from_its_own_turn_on(client: Client) -> None:
    session_id = await client.session()
    await client.query(session_id)

    async with client.socket() as socket:
        await socket.say(send(session_id))
        heard = await socket.until("agent_run_end")

    assert types(heard)[0] == "user_message"
    assert heard == (await client.events(session_id))[8:]


async def test_a_socket_sees_turns_that_others_start(client: Client) -> None:
    session_id = await client.session()

    async with client.socket() as socket:
        await socket.ask(join(session_id), "session_start")
        await client.query(session_id, "from elsewhere")
        heard = await socket.until("agent_run_end")

    assert heard[0]["data"]["content"] == "from elsewhere"


async def test_one_socket_follows_several_sessions_and_leaves_one(client: Client) -> None:
    first, second = await client.session(), await client.session()

    async with client.socket() as socket:
        for session_id in (first, second):
            await socket.ask(join(session_id), "session_start")
        await client.append(first, "one")
        await client.append(second, "two")
        heard = [await socket.hear(), await socket.hear()]
        left = await socket.ask(
            {"type": "leave_session", "sessionId": first, "requestId": "x"}, "session_left"
        )
        await client.append(first, "three")
        await client.append(second, "four")
        after = await socket.hear()
        await socket.ask({"type": "leave_session", "sessionId": first}, "session_left")

    assert {(event["sessionId"], event["type"]) for event in heard} == {(first, "one"), (second, "two")}
    assert left["data"] == {"sessionId": first, "requestId": "x"}
    assert (after["sessionId"], after["type"]) == (second, "four")


async def test_ping_is_answered_and_says_nothing_of_a_session(client: Client) -> None:
    async with client.socket() as socket:
        answers = [await socket.ask({"type": "ping", "requestId": "a"}, "pong") for _ in range(2)]

    assert [answer["id"] for answer in answers] == ["ctl_1", "ctl_2"]
    assert answers[0]["sessionId"] == ""
    assert answers[0]["data"] == {"requestId": "a"}


async def test_an_answer_about_a_session_has_an_id_that_is_a_cursor(client: Client) -> None:
    session_id = await client.session()

    async with client.socket() as socket:
        await socket.ask(join(session_id), "session_start")
        await client.query(session_id)
        await socket.until("agent_run_end")
        answer = await socket.ask({"type": "abort_query", "sessionId": session_id}, "abort_result")
    await client.append(session_id, "note")

    assert answer["id"] == f"evt_{session_id.removeprefix('sess_')}_8~2"
    async with client.stream(session_id, last=answer["id"]) as stream:
        assert (await stream.event()).type == "note"


async def test_abort_is_answered_after_the_turns_last_event(client: Client) -> None:
    step = Step()
    session_id = await client.session(waiting(step))

    async with client.socket() as socket:
        await socket.say(join(session_id))
        await socket.say(send(session_id))
        await socket.until("assistant_message_delta")
        await soon(step.reached.wait())
        await socket.say({"type": "abort_query", "sessionId": session_id, "requestId": "stop"})
        heard = await socket.until("abort_result")
        status = await client.status(session_id)

    assert types(heard)[-3:] == ["error", "agent_run_end", "abort_result"]
    end, answer = heard[-2:]
    assert answer["data"] == {
        "success": True,
        "turnId": end["data"]["turnId"],
        "status": "aborted",
        "lastEventId": end["id"],
        "requestId": "stop",
    }
    assert status == {"isProcessing": False, "state": "idle", "queued": 0, "lastEnding": "aborted"}


async def test_an_abort_from_a_socket_that_did_not_join_is_answered_too(client: Client) -> None:
    step = Step()
    session_id = await client.session(waiting(step))
    turn = asyncio.create_task(client.query(session_id))
    await soon(step.reached.wait())

    async with client.socket() as socket:
        answer = await socket.ask({"type": "abort_query", "sessionId": session_id}, "abort_result")

    assert answer["data"]["success"] is True
    assert answer["id"] == "ctl_1"
    assert (await soon(turn)).json()["status"] == "aborted"


async def test_an_abort_is_done_although_the_socket_closes_before_its_answer(client: Client) -> None:
    step = Step()
    session_id = await client.session(waiting(step))
    turn = asyncio.create_task(client.query(session_id))
    await soon(step.reached.wait())
    directory = client.server.parts.parts.directory
    find, is_found = directory.find, asyncio.Event()

    async def finds_when_nobody_listens(session_id: str, principal: str) -> Standing:
        await soon(is_found.wait())
        return await find(session_id, principal)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(directory, "find", finds_when_nobody_listens)
        async with client.socket() as socket:
            await socket.say({"type": "abort_query", "sessionId": session_id})
            await until(lambda: "socket aside" in [task.get_name() for task in asyncio.all_tasks()])
        await until(lambda: "socket" not in [task.get_name() for task in asyncio.all_tasks()])
        is_found.set()
        assert (await soon(turn)).json()["status"] == "aborted"


async def test_the_socket_stays_awake_while_aborts_wait(client: Client) -> None:
    """More of them than are done aside; each gets its answer."""
    stubborn, step = asyncio.Event(), Step()

    async def agent(_: Scope, __: Prompt) -> AsyncIterator[AgentEvent]:
        yield said("begun")
        try:
            await step.wait()
        except asyncio.CancelledError:
            await stubborn.wait()
        yield COMPLETED

    session_id = await client.session(agent)
    async with client.socket() as socket:
        await socket.say(send(session_id))
        await soon(step.reached.wait())
        for n in range(40):
            await socket.say({"type": "abort_query", "sessionId": session_id, "requestId": str(n)})
        await socket.say({"type": "ping"})
        await soon(step.left.wait())
        stubborn.set()
        heard = await socket.until("pong")
        while len([e for e in heard if e["type"] == "abort_result"]) < 40:
            heard.append(await socket.hear())

    answers = [event["data"] for event in heard if event["type"] == "abort_result"]
    assert {answer["requestId"] for answer in answers} == {str(n) for n in range(40)}
    assert sum(answer["success"] for answer in answers) == 1


async def test_a_query_on_a_busy_session_is_an_error_that_names_the_turn(client: Client) -> None:
    step = Step()
    session_id = await client.session(waiting(step))

    async with client.socket() as socket:
        await socket.say(send(session_id))
        await socket.until("assistant_message_delta")
        answer = await socket.ask(send(session_id, requestId="again"), "error")
        step.passed.set()
        rest = await socket.until("agent_run_end")

    assert answer["data"]["code"] == "session_busy"
    assert answer["data"]["recoverable"] is True
    assert answer["data"]["details"] == {
        "requestType": "send_query",
        "requestId": "again",
        "turnId": rest[-1]["data"]["turnId"],
    }


async def test_traceparent_of_the_handshake_marks_the_sockets_turns(client: Client) -> None:
    session_id = await client.session()
    trace_id = "4bf92f3577b34da6a3ce929d0e0e4736"

    async with client.socket(headers={"traceparent": f"00-{trace_id}-00f067aa0ba902b7-01"}) as socket:
        await socket.say(send(session_id))
        heard = await socket.until("agent_run_end")

    assert {event["metadata"]["traceId"] for event in heard} == {trace_id}


async def test_a_deleted_session_ends_on_the_socket_and_the_socket_goes_on(client: Client) -> None:
    session_id, other = await client.session(), await client.session()

    async with client.socket() as socket:
        await socket.ask(join(session_id), "session_start")
        await client.delete(session_id)
        assert types(await socket.until("session_end")) == ["session_end"]
        assert (await socket.ask(join(session_id), "error"))["data"]["code"] == "session_deleted"
        assert (await socket.ask(join(other), "session_joined"))["sessionId"] == other
    await until(lambda: len(client.server.parts.parts.readers) == 0)


# ── what is not understood ───────────────────────────────────────────────────────────────────────────────────────────

NOBODY = "sess_" + "a" * 26
MISUNDERSTOOD: list[tuple[str | bytes | Json, str]] = [
    ("{", "bad_json"),
    ("", "bad_json"),
    (b"\xff\xfe", "bad_json"),
    ("NaN", "bad_json"),
    ('{"type":"ping","x":1e999}', "bad_json"),
    ("[" * 100_000, "bad_json"),
    ("1" * 5000, "bad_json"),
    ("null", "bad_message"),
    ("[]", "bad_message"),
    ('"ping"', "bad_message"),
    ("{}", "bad_message"),
    ({"type": None}, "unknown_type"),
    ({"type": "dance"}, "unknown_type"),
    ({"type": []}, "unknown_type"),
    ({"type": "join_session"}, "bad_message"),
    ({"type": "join_session", "sessionId": 5}, "bad_message"),
    ({"type": "join_session", "sessionId": "x" * 201}, "bad_message"),
    ({"type": "join_session", "sessionId": "x", "from": "yesterday"}, "bad_message"),
    ({"type": "ping", "requestId": 5}, "bad_message"),
    ({"type": "send_query", "sessionId": NOBODY}, "bad_message"),
    ({"type": "send_query", "sessionId": NOBODY, "query": 5}, "bad_message"),
    ({"type": "send_query", "sessionId": NOBODY, "query": "x", "onBusy": "dance"}, "bad_message"),
    (send(NOBODY, onBusy="queue"), "session_not_found"),
    (send(NOBODY, onBusy="interrupt"), "session_not_found"),
    (send(NOBODY, query=[{"type": "video"}]), "bad_query"),
    (join(NOBODY), "session_not_found"),
    (join("../../etc"), "session_not_found"),
    (join("\x00"), "session_not_found"),
    (send(NOBODY), "session_not_found"),
    ({"type": "abort_query", "sessionId": NOBODY}, "session_not_found"),
    ({"type": "abort_query", "sessionId": NOBODY, "turnId": 5}, "bad_message"),
]


async def test_what_is_not_understood_is_answered_and_the_socket_stays_open(client: Client) -> None:
    async with client.socket() as socket:
        for message, code in MISUNDERSTOOD:
            answer = await socket.ask(message, "error")
            assert answer["data"]["code"] == code, message
            assert answer["data"]["recoverable"] is True
            assert answer["id"].startswith("ctl_"), "nothing is said of sessions that were not joined"
        assert (await socket.ask({"type": "ping"}, "pong"))["type"] == "pong"


async def test_an_error_names_the_request(client: Client) -> None:
    session_id = await client.session()

    async with client.socket() as socket:
        unknown = await socket.ask({"type": "dance", "requestId": "r1", "sessionId": session_id}, "error")
        await socket.ask(join(session_id), "session_start")
        of_session = await socket.ask(
            {"type": "abort_query", "sessionId": session_id, "turnId": "turn_x", "requestId": "r2"}, "error"
        )

    assert unknown["data"]["details"] == {"requestType": "dance", "requestId": "r1"}
    assert of_session["data"]["code"] == "turn_not_found"
    assert of_session["data"]["details"] == {"requestType": "abort_query", "requestId": "r2"}
    assert of_session["sessionId"] == session_id


@pytest.mark.parametrize("odd", ["\x00", "\ud800", "turn_" + "x" * 100_000, "a\u2028b"])
async def test_an_odd_turn_id_is_an_unknown_one(client: Client, odd: str) -> None:
    session_id = await client.session()

    async with client.socket() as socket:
        answer = await socket.ask({"type": "abort_query", "sessionId": session_id, "turnId": odd}, "error")

    assert answer["data"]["code"] in ("turn_not_found", "bad_message")


def random_message(chance: random.Random, session_id: str) -> str | bytes:
    """A message that is wrong in one of many ways, or right."""
    kinds: list[Any] = [
        "join_session",
        "send_query",
        "abort_query",
        "leave_session",
        "ping",
        "x",
        "",
        None,
        1,
        [],
        {},
    ]
    values: list[Any] = [
        session_id, "sess_x", "", "\x00", "\ud800", None, True, -1, 2**70, 10**4200, 1.5, [], {}, [[]],
        {"a": None}, "now", "start", "x" * 5000, [{"type": "text", "text": "x"}], [{"type": "image_url"}],
    ]  # fmt: skip
    fields = ["sessionId", "query", "after", "from", "turnId", "requestId", "onBusy", "extra"]
    message: Json = {"type": chance.choice(kinds)}
    if chance.random() < 0.6:
        message["sessionId"] = session_id
    message |= {chance.choice(fields): chance.choice(values) for _ in range(chance.randrange(4))}
    text = "" if chance.random() < 0.05 else json.dumps(message) if chance.random() < 0.95 else "NaN"
    match chance.randrange(12):
        case 0:
            return text[: chance.randrange(len(text) + 1)]
        case 1:
            return text.encode()[::-1]
        case 2:
            return bytes(chance.randrange(256) for _ in range(50))
        case 3:
            return '{"a":' * chance.choice([10, 300, 2000, 10_000])
        case 4:
            depth = chance.choice([100, 300, 900])
            return f'{{"type":"send_query","sessionId":"{session_id}","query":[{{"x":{"[" * depth}{"]" * depth}}}]}}'
        case _:
            return text


@pytest.mark.parametrize("seed", range(3))
async def test_no_mischief_drops_the_socket(client: Client, seed: int) -> None:
    chance = random.Random(seed)  # noqa: S311 - the same messages each time
    session_id = await client.session()
    internal: list[Json] = []

    async with client.socket() as socket:

        async def listen() -> None:
            while True:
                heard = await socket.hear()
                if heard["type"] == "error" and heard["data"]["code"] == "internal_error":
                    internal.append(heard)
                if heard["type"] == "pong" and heard["data"].get("requestId") == "last":
                    return

        listening = asyncio.create_task(listen())
        sent = []
        for _ in range(300):
            sent.append(random_message(chance, session_id))
            await socket.say(sent[-1])
        await socket.say({"type": "ping", "requestId": "last"})
        await soon(listening)

    assert internal == []
    assert (await client.query(await client.session())).status_code == 200


@asynccontextmanager
async def not_reading(client: Client) -> AsyncIterator["Bucket"]:
    """A client on `/ws` that takes no bytes until it is told to."""
    bucket = Bucket(client)
    try:
        await bucket.shake_hands()
        yield bucket
    finally:
        bucket.raw.close()


def is_listening() -> bool:
    """Whether the server listens to a socket."""
    return any(task.get_name() == "socket" for task in asyncio.all_tasks())


def conversations() -> list[Any]:
    """The server's ends of sockets."""
    return [task for task in asyncio.all_tasks() if "run_asgi" in repr(task.get_coro())]


async def test_a_message_over_the_limit_closes_with_1009(embedded_server: Server) -> None:
    async with own_database(embedded_server) as url, serving(url, max_body=10_000) as server:
        client = await server.client()
        session_id = await client.session()
        async with client.socket() as socket:
            assert (await socket.ask(" " * 9000 + '{"type":"ping"}', "pong"))["type"] == "pong"
            await socket.say(send(session_id, query="x" * 20_000))
            assert await closed(socket) == 1009
        assert (await client.post("/api/v1/sessions/create", {"name": "x" * 20_000})).status_code == 413


# ── how it ends ──────────────────────────────────────────────────────────────────────────────────────────────────────


class Bucket:
    """A client that takes no bytes until it is told to."""

    def __init__(self, client: Client) -> None:
        port = int(client.server.url.rpartition(":")[2])
        self.raw = sockets.socket()
        self.raw.setsockopt(sockets.SOL_SOCKET, sockets.SO_RCVBUF, 65_536)
        self.raw.connect(("127.0.0.1", port))
        self.raw.settimeout(0)

    async def send(self, data: bytes) -> None:
        await soon(asyncio.get_running_loop().sock_sendall(self.raw, data))

    async def shake_hands(self) -> None:
        await self.send(
            b"GET /ws HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
        )
        answer = b""
        while not answer.endswith(b"\r\n\r\n"):
            answer += await soon(asyncio.get_running_loop().sock_recv(self.raw, 1))

    async def say(self, message: Json) -> None:
        await self.send(self.frame(message))

    @staticmethod
    def frame(message: Json) -> bytes:
        text = json.dumps(message).encode()
        return b"\x81\xfe" + len(text).to_bytes(2) + bytes(4) + text

    async def closed(self) -> int:
        """The code of the close frame at the end of all that comes."""
        received = bytearray()
        async with asyncio.timeout(PATIENCE):
            while received[-4:-2] != b"\x88\x02":
                came = await asyncio.get_running_loop().sock_recv(self.raw, 2**20)
                assert came, "closed without a close frame"
                received += came
        return int.from_bytes(received[-2:])


async def test_a_reader_that_is_too_slow_is_closed_with_1013(embedded_server: Server) -> None:
    async with own_database(embedded_server) as url, serving(url, send_timeout=1.5) as server:
        client = await server.client()
        session_id = await client.session(saying(*(said("x" * 100_000) for _ in range(200))))
        async with not_reading(client) as slow:
            await slow.say(join(session_id))
            readers = server.parts.parts.readers
            await until(lambda: len(readers) == 1)
            assert (await client.query(session_id)).status_code == 200
            await until(lambda: len(readers) == 0)
            assert await slow.closed() == 1013


async def test_a_reader_that_never_reads_again_is_let_go_without_ado(
    embedded_server: Server, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket_routes, "LAST_WORD", 0.2)
    async with own_database(embedded_server) as url, serving(url, send_timeout=0.2) as server:
        client = await server.client()
        session_id = await client.session(saying(*(said("x" * 100_000) for _ in range(200))))
        parts = server.parts.parts
        async with not_reading(client) as slow:
            await slow.say(join(session_id))
            await until(lambda: len(parts.readers) == 1)
            await client.query(session_id)
            await until(lambda: not conversations())
            await until(lambda: list(parts.logs) == [])  # its log is let go, too

    assert [record for record in caplog.records if record.exc_info] == []


async def test_one_that_only_asks_and_never_reads_is_too_slow_as_well(embedded_server: Server) -> None:
    async with own_database(embedded_server) as url, serving(url, send_timeout=0.2) as server:
        client = await server.client()
        async with not_reading(client) as slow:
            asking = asyncio.create_task(
                slow.send(20_000 * slow.frame({"type": "ping", "requestId": "\0" * 200}))
            )
            await until(is_listening)
            await until(lambda: not is_listening())
            assert await slow.closed() == 1013
            asking.cancel()


async def test_a_drain_closes_with_1012(embedded_server: Server) -> None:
    async with own_database(embedded_server) as url, serving(url) as server:
        client = await server.client()
        session_id = await client.session()
        async with client.socket() as idle, client.socket() as joined:
            await joined.ask(join(session_id), "session_start")
            await idle.ask({"type": "ping"}, "pong")
            draining = asyncio.create_task(server.parts.drain())
            assert await closed(joined) == 1012
            assert await closed(idle) == 1012
            await soon(draining)
        async with client.socket() as late:
            assert await closed(late) == 1012


async def test_a_turn_of_a_client_that_goes_while_it_is_admitted_is_aborted(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[JoinedSessions] = []

    class Remembered(JoinedSessions):
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            made.append(self)

    monkeypatch.setattr(socket_routes, "JoinedSessions", Remembered)
    step, admission = Step(), Step()
    session_id = await client.session(waiting(step))
    supervisor = client.server.parts.parts.supervisor
    admit = supervisor.admit

    async def admits_late(*args: Any, **options: Any) -> Admitted:
        await admission.wait()
        return await admit(*args, **options)

    monkeypatch.setattr(supervisor, "admit", admits_late)
    async with client.socket() as socket:
        await socket.say(send(session_id, onDisconnect="abort"))
        await soon(admission.reached.wait())
        made[0].give_up(TOO_SLOW)
        assert await closed(socket) == TOO_SLOW
    admission.passed.set()
    async with client.stream(session_id) as stream:
        events = await stream.upto("agent_run_end")
    assert events[-1]["data"]["status"] == "aborted"


async def test_a_drain_aborts_no_turn_that_is_to_end_with_its_client(embedded_server: Server) -> None:
    step = Step()
    async with own_database(embedded_server) as url, serving(url, drain_grace=PATIENCE) as server:
        client = await server.client()
        session_id = await client.session(waiting(step))
        async with client.socket() as socket:
            await socket.say(send(session_id, onDisconnect="abort"))
            await soon(step.reached.wait())
            draining = asyncio.create_task(server.parts.drain())
            assert await closed(socket) == 1012
            await until(lambda: "socket" not in [task.get_name() for task in asyncio.all_tasks()])
            step.passed.set()
            await soon(draining)
        assert (await client.status(session_id))["lastEnding"] == "completed"


async def test_a_client_that_goes_leaves_nothing_behind(client: Client) -> None:
    session_id = await client.session()
    parts = client.server.parts.parts
    for _ in range(20):
        async with client.socket() as socket:
            await socket.ask(join(session_id), "session_start")
            socket.connection.transport.abort()
    await until(lambda: len(parts.readers) == 0)
    await until(lambda: list(parts.logs) == [])
    await until(
        lambda: not any(task.get_name().startswith(("socket", "reader")) for task in asyncio.all_tasks())
    )


async def test_a_socket_that_closes_stops_no_turn(client: Client) -> None:
    step = Step()
    session_id = await client.session(waiting(step))
    async with client.socket() as socket:
        await socket.say(send(session_id))
        await soon(step.reached.wait())
    step.passed.set()

    async with client.stream(session_id) as stream:
        events = await stream.upto("agent_run_end")

    assert events[-1]["data"]["status"] == "completed"
