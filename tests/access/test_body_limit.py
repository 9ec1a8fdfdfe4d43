"""A body over the limit is refused, however it comes and whatever the application makes of it."""

from collections.abc import AsyncIterator

import httpx
import pytest
from fastapi import FastAPI, Request
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.access.body_limit import BodyLimit

LIMIT = 10


class Wire:
    """A connection: gives what a client sends, keeps what it is sent."""

    def __init__(self, *parts: bytes) -> None:
        self.given = 0
        self.sent: list[Message] = []
        self._messages: list[Message] = [
            {"type": "http.request", "body": part, "more_body": number < len(parts)}
            for number, part in enumerate(parts, start=1)
        ]

    async def receive(self) -> Message:
        self.given += 1
        return self._messages.pop(0) if self._messages else {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        self.sent.append(message)


def scope(*headers: tuple[bytes, bytes], version: str = "1.1") -> Scope:
    return {"type": "http", "http_version": version, "method": "POST", "path": "/", "headers": list(headers)}


CHUNKED = (b"transfer-encoding", b"chunked")


def length(value: int | str) -> tuple[bytes, bytes]:
    return (b"content-length", str(value).encode())


async def read_body(receive: Receive) -> bytes:
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        body += message["body"]
        if not message["more_body"]:
            return bytes(body)


async def answer(send: Send, body: bytes) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": body})


async def echo(_scope: Scope, receive: Receive, send: Send) -> None:
    await answer(send, await read_body(receive))


async def run(app: ASGIApp, request: Scope, wire: Wire) -> list[Message]:
    await BodyLimit(app, LIMIT)(request, wire.receive, wire.send)
    return wire.sent


def assert_too_large(sent: list[Message]) -> None:
    assert [message["type"] for message in sent] == ["http.response.start", "http.response.body"]
    assert sent[0]["status"] == 413
    assert sent[1]["body"] == (
        b'{"error":"The request body is larger than the 10 bytes this server takes.","code":"too_large"}'
    )


@pytest.mark.parametrize("parts", [(b"",), (b"x" * 10,), (b"x" * 5, b"", b"x" * 5)])
@pytest.mark.parametrize("header", [CHUNKED, length(10), length("no number")])
async def test_a_body_within_the_limit_passes(parts: tuple[bytes, ...], header: tuple[bytes, bytes]) -> None:
    sent = await run(echo, scope(header), Wire(*parts))
    assert (sent[0]["status"], sent[1]["body"]) == (200, b"".join(parts))


async def test_a_stated_length_over_the_limit_is_refused_unread() -> None:
    wire = Wire(b"x" * 11)
    assert_too_large(await run(echo, scope(length(11)), wire))
    assert wire.given == 0


@pytest.mark.parametrize(
    "request_scope",
    [
        scope(CHUNKED),
        scope(length(3)),
        scope(length(-1)),
        scope(length("many")),
        scope(length("9" * 5000)),
        scope(version="2"),
    ],
)
async def test_a_body_that_grows_over_the_limit_is_cut(request_scope: Scope) -> None:
    wire = Wire(b"x" * 6, b"x" * 6, b"x" * 6)
    assert_too_large(await run(echo, request_scope, wire))
    assert wire.given == 2


async def test_the_cut_looks_like_a_client_that_went_away_for_good() -> None:
    kinds: list[str] = []

    async def app(_scope: Scope, receive: Receive, send: Send) -> None:
        kinds.extend([(await receive())["type"] for _ in range(3)])
        await answer(send, b"nobody reads this")

    wire = Wire(b"x" * 11, b"x")
    assert_too_large(await run(app, scope(CHUNKED), wire))
    assert kinds == ["http.disconnect"] * 3
    assert wire.given == 1


async def test_a_response_already_begun_is_left_to_the_application() -> None:
    async def app(_scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        end = await receive()
        await send({"type": "http.response.body", "body": end["type"].encode()})

    sent = await run(app, scope(CHUNKED), Wire(b"x" * 11))
    assert [message.get("status") for message in sent] == [200, None]
    assert sent[1]["body"] == b"http.disconnect"


async def test_a_client_that_really_went_away_is_not_hidden() -> None:
    with pytest.raises(ClientDisconnect):
        await run(echo, scope(CHUNKED), Wire())


async def test_waiting_for_the_client_to_leave_works_after_the_body() -> None:
    kinds: list[str] = []

    async def app(_scope: Scope, receive: Receive, send: Send) -> None:
        await read_body(receive)
        kinds.append((await receive())["type"])

    await run(app, scope(CHUNKED), Wire(b"x" * 10))
    assert kinds == ["http.disconnect"]


@pytest.mark.parametrize("request_scope", [scope(), {"type": "websocket"}, {"type": "lifespan"}])
async def test_what_has_no_body_is_not_wrapped(request_scope: Scope) -> None:
    given: list[object] = []

    async def app(seen: Scope, receive: Receive, send: Send) -> None:
        given.extend((seen, receive, send))

    async def receive() -> Message:
        raise AssertionError

    async def send(message: Message) -> None:
        raise AssertionError

    await BodyLimit(app, LIMIT)(request_scope, receive, send)
    assert given == [request_scope, receive, send]


async def parts_of(*parts: bytes) -> AsyncIterator[bytes]:
    for part in parts:
        yield part


@pytest.mark.parametrize("path", ["/model", "/stream"])
async def test_a_framework_cannot_turn_the_refusal_into_its_own(path: str) -> None:
    api = FastAPI()

    @api.post("/model")
    async def take_model(body: dict[str, str]) -> None: ...

    @api.post("/stream")
    async def take_stream(request: Request) -> None:
        await request.body()

    transport = httpx.ASGITransport(BodyLimit(api, LIMIT))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as http:
        response = await http.post(
            path, content=parts_of(b'{"a":"', b"x" * 9), headers={"content-type": "application/json"}
        )
    assert (response.status_code, response.json()["code"]) == (413, "too_large")
