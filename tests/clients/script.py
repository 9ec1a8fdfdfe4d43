"""A scripted server: serves one log as the protocol does, by stream and by socket, and misbehaves where a fault says so.

Each answer closes its connection, so that a connection is one request and has one fault.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import parse_qsl

import uvicorn
from starlette.types import Message, Receive, Scope, Send

from tests.clients.scenarios import SESSION, Fault, Refusal, Scenario, last_turn, spelled
from tests.server import _Uvicorn, soon, until

PREFIX = f"evt_{SESSION[5:]}_"
CLOSE = (b"connection", b"close")


class Script:
    """The server's state: the log, how much of it has happened, and what was asked."""

    def __init__(self) -> None:
        self.fault_of: Callable[[int], Fault] = lambda port: Fault()
        self.keys: set[str] = set()
        self._events: list[str] = []
        self._first = 0
        self._shown = 0
        self._moved = asyncio.Event()

    def play(self, scenario: Scenario) -> None:
        """Serve this scenario's log. That of a query begins before its turn."""
        self._events = scenario.events
        self._shown = len(scenario.events) - scenario.held
        self._first = len(scenario.events) - len(last_turn(scenario.events)) - 1
        self._moved = asyncio.Event()
        self.keys = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            return
        fault = self.fault_of(scope["client"][1])
        if fault.refuse is not None:
            await _refuse(fault.refuse, scope, send)
        elif scope["type"] == "websocket":
            await self._socket(fault, receive, send)
        elif scope["path"].endswith("/events/stream"):
            await self._stream(fault, dict(parse_qsl(scope["query_string"].decode())), send)
        elif scope["path"].endswith("/query/stream"):
            self.keys.add(dict(scope["headers"])[b"idempotency-key"].decode())
            await self._query(fault, send)
        elif scope["path"].endswith("/abort"):
            self._shown = len(self._events)
            self._moved.set()
            await _answer(send, 200, {"success": True, "status": "aborted"})
        else:
            await _answer(send, 200, {"session": {"id": SESSION}})

    def _start(self, asked: dict[str, Any]) -> int:
        """The place to begin after; -1 for one that the log has not reached."""
        after = asked.get("after")
        if after is None:
            return self._shown if asked.get("from") == "now" else 0
        place = int(str(after).rpartition("_")[2].partition("~")[0])
        return place if place <= len(self._events) else -1

    async def _after(self, place: int, fault: Fault) -> AsyncIterator[tuple[int, str]]:
        """Events with their places, as they come and as often as the fault says; ends with the log or the fault."""
        at = max(0, place - fault.overlap)
        stop = len(self._events) if fault.farewell is None else min(place + fault.farewell, len(self._events))
        while at < stop:
            if at >= self._shown:
                await self._moved.wait()
            for _ in range(1 + fault.twice):
                yield at + 1, self._events[at]
            at += 1

    async def _stream(self, fault: Fault, asked: dict[str, Any], send: Send) -> None:
        place = self._start(asked)
        if place < 0:
            await _answer(send, 400, {"error": "Not so far.", "code": "cursor_ahead"})
            return
        await _begin(send, fault, place)
        async for at, text in self._after(place, fault):
            place = at
            await _body(send, f"id: {PREFIX}{at}\ndata: {text}\n\n")
        await _body(send, f"id: {PREFIX}{place}\n\n" if fault.farewell is not None else "", is_last=True)

    async def _query(self, fault: Fault, send: Send) -> None:
        await _begin(send, fault, self._first)
        for text in last_turn(self._events):
            event = json.loads(text)
            for _ in range(1 + fault.twice):
                await _body(send, f"id: {event['id']}\nevent: {event['type']}\ndata: {text}\n\n")
        await _body(send, "", is_last=True)

    async def _socket(self, fault: Fault, receive: Receive, send: Send) -> None:
        await receive()
        await send({"type": "websocket.accept"})
        message = await receive()
        if message["type"] == "websocket.disconnect":
            return
        asked = json.loads(message["text"])
        assert asked["type"] == "join_session"
        place = self._start(asked)
        if place < 0:
            refusal = {"error": "Not so far.", "code": "cursor_ahead", "recoverable": True}
            await _text(
                send, spelled("", "error", refusal | {"details": {"requestType": "join_session"}}), "ctl_1"
            )
            return
        await _text(
            send, spelled(f"{place}~1", "session_joined", {"sessionId": SESSION, "lastSeq": self._shown})
        )
        async for _, text in self._after(place, fault):
            await _text(send, text)
        await send({"type": "websocket.close", "code": 1012})


async def _begin(send: Send, fault: Fault, place: int) -> None:
    headers = [(b"content-type", b"text/event-stream; charset=utf-8"), CLOSE]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await _body(send, f"retry: {fault.retry_ms}\nid: {PREFIX}{place}\n\n: ping\n\n")


async def _body(send: Send, text: str, *, is_last: bool = False) -> None:
    message: Message = {"type": "http.response.body", "body": text.encode(), "more_body": not is_last}
    await send(message)


async def _text(send: Send, text: str, event_id: str | None = None) -> None:
    if event_id is not None:
        text = json.dumps(json.loads(text) | {"id": event_id})
    await send({"type": "websocket.send", "text": text})


async def _answer(send: Send, status: int, body: Any, *headers: tuple[bytes, bytes]) -> None:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    start = {
        "type": "http.response.start",
        "status": status,
        "headers": [(b"content-length", b"%d" % len(content)), CLOSE, *headers],
    }
    await send(start)
    await send({"type": "http.response.body", "body": content})


async def _refuse(refusal: Refusal, scope: Scope, send: Send) -> None:
    headers = [] if refusal.retry_after is None else [(b"retry-after", b"%d" % refusal.retry_after)]
    body: Any = b"<h1>No.</h1>" if refusal.code is None else {"error": "No.", "code": refusal.code}
    if scope["type"] == "http":
        await _answer(send, refusal.status, body, *headers)
        return
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    await send(
        {"type": "websocket.http.response.start", "status": refusal.status, "headers": [*headers, CLOSE]}
    )
    await send({"type": "websocket.http.response.body", "body": content})


@asynccontextmanager
async def open_script() -> AsyncIterator[tuple[Script, int]]:
    """A scripted server and its port, for as long as the block runs."""
    script = Script()
    config = uvicorn.Config(
        script,
        port=0,
        lifespan="off",
        http="httptools",
        ws="websockets-sansio",
        ws_per_message_deflate=False,
        log_config=None,
        timeout_graceful_shutdown=0,
    )
    server = _Uvicorn(config)
    task = asyncio.create_task(server.serve(), name="scripted server")
    await until(lambda: server.started)
    try:
        yield script, server.servers[0].sockets[0].getsockname()[1]
    finally:
        server.should_exit = True
        await soon(task)
