"""The blocking and the asynchronous client against a scripted server: what they send, and what each answer means."""

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, AsyncExitStack, aclosing, contextmanager
from typing import Any

import pytest

from tarko_client import (
    AsyncClient,
    Client,
    ClientError,
    ConnectionLost,
    NoServer,
    NotTarko,
    Refused,
    TurnFailed,
)
from tarko_client.exchange import Address, frame_on_socket, refusal
from tarko_client.link import Backoff
from tarko_client.request import CREATE, DETAILS, EVENTS_STREAM, QUERY_STREAM, SESSIONS
from tests.commands.scripted_server import (
    SESSION,
    Reply,
    ScriptedServer,
    answers,
    event,
    frame,
    named_frame,
    opening,
    refuses,
    streams,
)

Ask = Callable[..., Any]


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with ScriptedServer() as scripted:
        yield scripted


@contextmanager
def blocking(url: str, token: str | None = None) -> Iterator[Ask]:
    """Does something to a session of a server and returns its result, or the list of what it gives."""
    with Client(url, token, backoff=Backoff(base=0.001)) as client:

        def ask(name: str, /, *values: Any, **named: Any) -> Any:
            found = getattr(client.session(SESSION), name)(*values, **named)
            return list(found) if hasattr(found, "__next__") else found

        yield ask


@contextmanager
def asynchronous(url: str, token: str | None = None) -> Iterator[Ask]:
    """The same, with the other client."""

    async def do(name: str, values: tuple[Any, ...], named: dict[str, Any]) -> Any:
        async with AsyncClient(url, token, backoff=Backoff(base=0.001)) as client:
            found = getattr(client.session(SESSION), name)(*values, **named)
            return [each async for each in found] if hasattr(found, "__anext__") else await found

    yield lambda name, /, *values, **named: asyncio.run(do(name, values, named))


@pytest.fixture(params=[blocking, asynchronous])
def ask(request: pytest.FixtureRequest, server: ScriptedServer) -> Iterator[Ask]:
    with request.param(server.url, "secret-token") as ask:
        yield ask


@pytest.mark.parametrize("url", ["ftp://a", "http://", "http://a:b", "http://a:65536", "127.0.0.1:80"])
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="is no address"):
        Client(url)


@pytest.mark.parametrize("connected", [blocking, asynchronous])
def test_a_password_in_the_address_is_sent_and_never_shown(
    connected: Callable[[str], AbstractContextManager[Ask]],
    server: ScriptedServer,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    server.script(f"{SESSIONS}/details", answers("what?", 500))
    with connected(server.url.replace("//", "//ada:love%40lace@")) as ask, pytest.raises(NotTarko) as told:
        ask("details")
    assert server.requests[0].headers["authorization"] == "Basic YWRhOmxvdmVAbGFjZQ=="
    assert str(told.value).startswith(f"{server.url} answers 500")
    assert f"GET {server.url}" in caplog.text
    assert "lace" not in caplog.text


def test_a_socket_is_told_the_same_name_and_password() -> None:
    address = Address("https://ada:lovelace@h/deep/?a#b", None)
    assert (address.url, address.socket_url) == ("https://h/deep", "wss://h/deep/ws")
    assert address.socket_options["additional_headers"] == {"Authorization": "Basic YWRhOmxvdmVsYWNl"}


def test_a_token_and_a_password_are_one_too_many() -> None:
    with pytest.raises(ValueError, match="not both") as told:
        Client("http://ada:lovelace@h", "token")
    assert "lovelace" not in str(told.value)


@pytest.mark.parametrize(
    "url",
    [
        "http://a:se/cret@h",
        "http://a:se#cret@h",
        "http://a:se?cret@h",
        "ftp://a:cret@h",
        "http://a:cret@h:99999",
    ],
)
def test_a_password_in_what_is_no_address_is_not_shown(url: str) -> None:
    with pytest.raises(ValueError, match="is no address") as told:
        Client(url)
    assert "cret" not in str(told.value)


@pytest.mark.parametrize("token", ["tök", "a b", "a\n"])
def test_a_token_that_no_header_can_carry_is_refused_without_being_told(token: str) -> None:
    with pytest.raises(ValueError, match="printable ASCII") as told:
        AsyncClient("http://a", token)
    assert token not in str(told.value)


@pytest.mark.parametrize(
    ("call", "method", "path", "sent", "answer", "result"),
    [
        (("details",), "GET", "details", {}, {"session": {"id": "s"}}, {"id": "s"}),
        (("status",), "GET", "status", {}, {"status": {"state": "idle"}}, {"state": "idle"}),
        (("queue",), "GET", "queue", {}, {"queue": []}, {"queue": []}),
        (("delete",), "POST", "delete", {}, {"success": True}, None),
        (("abort",), "POST", "abort", {}, {"success": False}, {"success": False}),
        (("abort", "t"), "POST", "abort", {"turnId": "t"}, {"success": True}, {"success": True}),
        (
            ("append", "user_feedback", {"rating": 5}),
            "POST",
            "events",
            {"type": "user_feedback", "data": {"rating": 5}},
            {"id": "evt_s_3"},
            "evt_s_3",
        ),
    ],
)
def test_each_call_is_the_protocols(
    server: ScriptedServer,
    ask: Ask,
    call: tuple[Any, ...],
    method: str,
    path: str,
    sent: dict[str, Any],
    answer: Any,
    result: Any,
) -> None:
    server.script(f"{SESSIONS}/{path}", answers(answer))
    assert ask(*call) == result
    (request,) = server.requests
    assert request.method == method
    assert (request.query if method == "GET" else request.json) == {"sessionId": SESSION, **sent}
    assert request.headers["authorization"] == "Bearer secret-token"


def test_an_update_sends_what_is_given(server: ScriptedServer, ask: Ask) -> None:
    server.script(f"{SESSIONS}/update", answers({"session": {"id": "s"}}))
    assert ask("update", name="new", metadata={"a": None}) == {"id": "s"}
    assert server.requests[0].json == {"sessionId": SESSION, "name": "new", "metadata": {"a": None}}


async def test_sessions_are_made_and_listed(server: ScriptedServer) -> None:
    server.script(CREATE, answers({"sessionId": "sess_1", "createdAt": 1}, 201))
    server.script(SESSIONS, answers({"sessions": [{"id": "sess_1"}], "nextAfter": "5.sess_1"}))
    with Client(server.url) as client:
        assert client.create("mine", tags=["a"]).id == "sess_1"
        assert client.sessions(limit=3, after="x").next_after == "5.sess_1"
    async with AsyncClient(server.url) as client_too:
        assert (await client_too.create(agent="demo")).id == "sess_1"
        assert [each["id"] for each in (await client_too.sessions()).sessions] == ["sess_1"]
    assert [request.json for request in server.asked(CREATE)] == [
        {"name": "mine", "tags": ["a"]},
        {"agent": "demo"},
    ]
    assert server.asked(SESSIONS)[0].query == {"limit": "3", "after": "x"}


def test_a_proxy_of_the_environment_is_not_asked_for_this_machine(
    server: ScriptedServer, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    server.script(DETAILS, answers({"session": {}}))
    with blocking(server.url) as ask_anew:
        assert ask_anew("details") == {}


def test_an_error_of_the_protocol_keeps_its_words(server: ScriptedServer, ask: Ask) -> None:
    body = {"error": "A turn runs.", "code": "session_busy", "details": {"turnId": "t"}}
    server.script(f"{SESSIONS}/abort", answers(body, 409))
    with pytest.raises(Refused, match=r"^A turn runs\.$") as told:
        ask("abort")
    assert (told.value.code, told.value.http_status, told.value.details) == (
        "session_busy",
        409,
        {"turnId": "t"},
    )


@pytest.mark.parametrize(
    ("status", "headers", "body", "kind", "code", "retry_after"),
    [
        (503, {"Retry-After": "3"}, b'{"error":"E","code":"server_shutdown"}', Refused, "server_shutdown", 3),
        (401, {}, b"", Refused, "unauthenticated", None),
        (502, {"Retry-After": "Wed, 21 Oct 2026 07:28:00 GMT"}, b"<h1>", Refused, "bad_gateway", None),
        (429, {"retry-after": "8"}, b"slow down", Refused, "bad_gateway", 8),
        (404, {}, b"<html>", NotTarko, "not_a_tarko_server", None),
        (302, {}, b"", NotTarko, "not_a_tarko_server", None),
        (400, {}, b'{"error":"E"}', NotTarko, "not_a_tarko_server", None),
        (400, {}, b"[]", NotTarko, "not_a_tarko_server", None),
    ],
)
def test_what_an_answer_without_success_means(
    status: int,
    headers: dict[str, str],
    body: bytes,
    kind: type[ClientError],
    code: str,
    retry_after: float | None,
) -> None:
    error = refusal("http://a", status, headers, body)
    assert type(error) is kind
    assert error.code == code
    assert getattr(error, "retry_after", None) == retry_after


@pytest.mark.parametrize(
    "reply", [Reply(b"<html>"), Reply(b"[" * 100_000), answers([]), answers({"other": 1})]
)
def test_a_stranger_is_told_from_a_tarko_server(server: ScriptedServer, ask: Ask, reply: Reply) -> None:
    server.script(DETAILS, reply)
    with pytest.raises(NotTarko):
        ask("details")


def test_a_stream_is_utf8_and_its_mark_no_text(server: ScriptedServer, ask: Ask) -> None:
    told = event(1, "session_end", reason="é")
    headers = {"Content-Type": "text/event-stream; charset=latin-1"}
    server.script(EVENTS_STREAM, Reply(steps=("\ufeffdata: ".encode() + told + b"\n\n",), headers=headers))
    assert [each.text for each in ask("follow")] == [told.decode()]


def test_a_retry_that_is_no_number_of_milliseconds_is_none(server: ScriptedServer, ask: Ask) -> None:
    last = event(1, "session_end")
    server.script(EVENTS_STREAM, streams(b"retry: -5\n\n"), streams(frame(last)))
    assert [each.text for each in ask("follow")] == [last.decode()]


async def test_readers_leave_connections_to_the_calls() -> None:
    readers = 101  # httpx would open 100

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked = await reader.readuntil(b"\r\n\r\n")
        if DETAILS.encode() in asked:
            writer.write(b'HTTP/1.1 200 OK\r\nContent-Length: 25\r\n\r\n{"session":{"id":"sess"}}')
        else:
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
            writer.write(frame(event(1, "session_start")))
        await reader.read()
        writer.close()

    listener = await asyncio.start_server(answer, "127.0.0.1", 0, backlog=readers)
    async with listener, AsyncExitStack() as stack:
        url = f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}"
        client = await stack.enter_async_context(AsyncClient(url))
        followed = [
            await stack.enter_async_context(aclosing(client.session("s").follow())) for _ in range(readers)
        ]
        async with asyncio.timeout(60):
            await asyncio.gather(*(anext(events) for events in followed))
            assert (await client.session("s").details())["id"] == "sess"


def test_a_page_is_no_event_stream(server: ScriptedServer, ask: Ask) -> None:
    server.script(EVENTS_STREAM, Reply(b"<html>", headers={"Content-Type": "text/html"}))
    with pytest.raises(NotTarko, match="does not answer with events"):
        ask("follow")


@pytest.mark.parametrize("transport", ["sse", "websocket"])
def test_a_redirect_leads_to_no_tarko_server(server: ScriptedServer, ask: Ask, transport: str) -> None:
    redirect = Reply(status=302, headers={"Location": "https://login.example/"})
    server.script("/ws" if transport == "websocket" else EVENTS_STREAM, redirect)
    with pytest.raises(NotTarko):
        ask("follow", transport=transport)


@pytest.mark.parametrize("make", [blocking, asynchronous])
@pytest.mark.parametrize("transport", ["sse", "websocket"])
def test_nobody_at_the_address_is_a_loss_like_any_other(make: Any, transport: str) -> None:
    with make("http://127.0.0.1:1") as ask:
        with pytest.raises(NoServer, match="No server answers"):
            ask("details")
        with pytest.raises(NoServer):
            ask("follow", transport=transport, backoff=Backoff(base=0.001, tries=2))


def test_a_connection_that_breaks_in_an_answer_is_lost(server: ScriptedServer, ask: Ask) -> None:
    server.script(DETAILS, Reply(b'{"session":', cut=True))
    with pytest.raises(ConnectionLost):
        ask("details")


def test_any_text_can_be_sent(server: ScriptedServer, ask: Ask) -> None:
    server.script(f"{SESSIONS}/events", answers({"id": "e"}))
    ask("append", "x", "\ud800 é")
    assert server.requests[0].json["data"] == "\ud800 é"


def test_pages_are_asked_for_again_until_they_come(server: ScriptedServer, ask: Ask) -> None:
    first, second = event(1, "session_start"), event(2, "user_message", content="Hi")
    page = b'{"events":[%s],"total":2,"hasMore":%s,"nextAfter":"%s"}'
    server.script(
        f"{SESSIONS}/events",
        Reply(page % (first, b"true", b"e_1")),
        Reply(b"{", cut=True),
        refuses(503, "storage_unavailable"),
        Reply(page % (second, b"false", b"e_2")),
    )
    assert [each.text.encode() for each in ask("events", deltas=True)] == [first, second]
    assert [request.query["after"] for request in server.requests] == ["0", "e_1", "e_1", "e_1"]


def test_one_page_is_asked_for_once(server: ScriptedServer, ask: Ask) -> None:
    server.script(f"{SESSIONS}/events", answers({"events": [], "total": 7, "hasMore": False}))
    assert ask("page", types=["a"], limit=5).total == 7
    assert server.requests[0].query == {"sessionId": SESSION, "types": "a", "limit": "5"}


TURN = (
    event(2, "user_message", content="hi", role="user"),
    event(3, "agent_run_start", turnId="turn_1", agentName="demo"),
    event(4, "assistant_message", content="Hello", messageId="m", role="assistant", finishReason="stop"),
    event(5, "agent_run_end", turnId="turn_1", status="completed", elapsedMs=12),
)


def test_a_query_over_a_connection_that_breaks_is_one_turn(server: ScriptedServer, ask: Ask) -> None:
    server.script(QUERY_STREAM, streams(cut=True), streams(opening(1), *map(named_frame, TURN[:2]), cut=True))
    server.script(EVENTS_STREAM, streams(opening(3), *map(frame, TURN[1:])))
    answer = ask("query", "hi", options={"onBusy": "queue"})
    assert (answer.response, answer.status, len(answer.events)) == ("Hello", "completed", 4)
    first, second = server.asked(QUERY_STREAM)
    assert first.headers["idempotency-key"] == second.headers["idempotency-key"]
    assert first.json == second.json == {"sessionId": SESSION, "query": "hi", "onBusy": "queue"}
    assert server.asked(EVENTS_STREAM)[0].query == {"sessionId": SESSION, "after": f"evt_{SESSION[5:]}_3"}


def test_a_failed_turn_is_raised(server: ScriptedServer, ask: Ask) -> None:
    error = event(4, "error", error="It broke.", code="agent_exception", recoverable=False)
    end = event(5, "agent_run_end", turnId="turn_1", status="failed", elapsedMs=12)
    server.script(QUERY_STREAM, streams(opening(1), *map(named_frame, (*TURN[:2], error, end))))
    with pytest.raises(TurnFailed, match="It broke"):
        ask("query", "hi", key="my-key")
    assert server.requests[0].headers["idempotency-key"] == "my-key"


def test_a_socket_brings_events_cursors_and_refusals() -> None:
    said = event(1, "user_message", content="Hi").decode()
    assert frame_on_socket(said).cursor == f"evt_{SESSION[5:]}_1"
    joined = frame_on_socket('{"id":"evt_s_3~1","type":"session_joined","data":{}}')
    assert (joined.cursor, joined.event) == ("evt_s_3~1", None)
    assert frame_on_socket(b'{"id":"ctl_1","type":"pong","data":{}}').cursor is None
    with pytest.raises(Refused, match="No such session") as told:
        frame_on_socket(
            '{"id":"ctl_1","type":"error","data":{"error":"No such session.","code":"session_not_found"}}'
        )
    assert (told.value.code, told.value.http_status) == ("session_not_found", None)
