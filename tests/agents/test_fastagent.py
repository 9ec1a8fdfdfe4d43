"""A FastAgent server over its wire, on real connections: what is passed on, what is refused, and the hang-up."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from app.agents.adapters.fastagent import FastAgent
from app.agents.contract import AgentEvent
from app.agents.driver import Bounds
from app.agents.outcome import Cancelled, Completed, Failed
from app.errors import AgentLoadError
from tests.agents.driving import Recorded, nothing_left, text
from tests.server import soon

STREAM = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"


class Wire:
    """Answers each request with these bytes; `holds` keeps the connection until the client hangs up."""

    def __init__(self, answer: bytes, *, holds: bool = False) -> None:
        self.asked = asyncio.Event()
        self.hung_up = asyncio.Event()
        self.serving: set[asyncio.Task[Any]] = set()
        self.head = ""
        self.body: Any = None
        self._answer = answer
        self._holds = holds

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.serving.add(task)
        self.head = (await reader.readuntil(b"\r\n\r\n")).decode()
        size = next(line for line in self.head.lower().split("\r\n") if line.startswith("content-length"))
        self.body = json.loads(await reader.readexactly(int(size.partition(":")[2])))
        writer.write(self._answer)
        await writer.drain()
        self.asked.set()
        if self._holds:
            with contextlib.suppress(ConnectionResetError):  # it hangs up before it has read all
                await reader.read()
            self.hung_up.set()
        writer.close()


@asynccontextmanager
async def listening(wire: Wire, path: str = "") -> AsyncIterator[str]:
    server = await asyncio.start_server(wire.serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}{path}"
    finally:
        server.close()
        await server.wait_closed()
        await soon(asyncio.gather(*wire.serving))


def frames(*events: Any) -> bytes:
    return (
        STREAM
        + b": ping\n\nid: 1\n\n"
        + b"".join(f"data: {json.dumps(each)}\n\n".encode() for each in events)
    )


async def turn(
    wire: Wire,
    *,
    path: str = "",
    act: Callable[[Recorded], Awaitable[Any]] = Recorded.run,
    prompt: Any = None,
    scope: Any = None,
    **options: Any,
) -> Recorded:
    async with nothing_left(), listening(wire, path) as url:
        agent = FastAgent(url, **options)
        given: Any = {"session": "-1001/b:c", **(scope or {})}
        asked: Any = prompt or {"text": "hi"}
        run = Recorded(lambda: agent.invoke(given, asked), bounds=Bounds())
        await act(run)
        await agent.aclose()
    return run


async def test_events_pass_one_to_one_unknown_ones_too() -> None:
    events: list[AgentEvent] = [
        {"type": "thinking", "delta": "hm"},
        {"type": "tool_progress", "id": "1", "text": "half"},
        {"type": "later", "of": {"b": None, "a": [1]}},
        text("æøå"),
    ]
    wire = Wire(frames(*events, {"type": "completed", "data": {"a": 1}}))
    run = await turn(wire, token="secret", scope={"parentSession": "p", "principal": "alice"})
    assert run.events == events
    assert run.outcome == Completed({"a": 1}, has_data=True)
    assert wire.body == {"session": "-1001/b:c", "text": "hi", "parentSession": "p"}
    assert wire.head.startswith("POST /invoke ")
    assert "authorization: bearer secret" in wire.head.lower()


@pytest.mark.parametrize(
    ("path", "expected"),
    [("", "/invoke"), ("/", "/invoke"), ("/base", "/base/invoke"), ("/control/invoke", "/control/invoke")],
)
async def test_the_address_may_be_that_of_the_server_or_of_invoke(path: str, expected: str) -> None:
    wire = Wire(frames({"type": "completed"}))
    await turn(wire, path=path)
    assert wire.head.startswith(f"POST {expected} ")


@pytest.mark.parametrize("prompt", [{"text": "hi", "images": [{"mimeType": "image/png", "data": ""}]}])
async def test_images_are_refused_visibly(prompt: Any) -> None:
    run = await turn(Wire(b""), prompt=prompt)
    assert isinstance(run.outcome, Failed)
    assert (run.outcome.code, run.outcome.retryable) == ("attachment_unsupported", False)


@pytest.mark.parametrize(
    ("answer", "code", "retryable"),
    [
        (frames(), "stream_cut", True),
        (frames(text("a")), "stream_cut", False),
        (STREAM + b"data: {nonsense\n\n", "bad_remote_event", False),
        (STREAM + b"data: [1]\n\n", "bad_remote_event", False),
        (STREAM + b'data: {"type": 1}\n\n', "bad_remote_event", False),
        (b"HTTP/1.1 401 No\r\ncontent-length: 2\r\n\r\nno", "authentication_failed", False),
        (b"HTTP/1.1 429 No\r\ncontent-length: 0\r\n\r\n", "rate_limited", True),
        (b"HTTP/1.1 503 No\r\ncontent-length: 0\r\n\r\n", "provider_unavailable", True),
        (b"HTTP/1.1 302 No\r\ncontent-length: 0\r\n\r\n", "not_fastagent", False),
        (
            b"HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: 2\r\n\r\nhi",
            "not_fastagent",
            False,
        ),
        (b"", "provider_unavailable", True),
    ],
)
async def test_what_is_no_turn_fails_it(answer: bytes, code: str, retryable: bool) -> None:
    run = await turn(Wire(answer))
    assert isinstance(run.outcome, Failed)
    assert (run.outcome.code, run.outcome.retryable) == (code, retryable)


async def test_a_busy_session_is_passed_on() -> None:
    busy = {"type": "failed", "details": "busy", "retryable": True, "code": "session_busy"}
    assert (await turn(Wire(frames(busy)))).outcome == Failed("busy", retryable=True, code="session_busy")


async def test_silence_is_a_lost_connection() -> None:
    run = await turn(Wire(STREAM, holds=True), silence=0.05)
    assert isinstance(run.outcome, Failed)
    assert (run.outcome.code, run.outcome.retryable) == ("provider_timeout", True)


async def test_an_abort_hangs_up() -> None:
    wire = Wire(frames(text("a")), holds=True)

    async def abort(run: Recorded) -> None:
        run.drive.start()
        await soon(wire.asked.wait())
        await run.cancelled()
        await soon(wire.hung_up.wait())

    assert (await turn(wire, act=abort)).outcome == Cancelled()


@pytest.mark.parametrize("url", ["ftp://x", "http://", "http://user:pass@x", "http://x:port"])
def test_an_address_that_can_not_be_one_is_refused(url: str) -> None:
    with pytest.raises(AgentLoadError):
        FastAgent(url)
