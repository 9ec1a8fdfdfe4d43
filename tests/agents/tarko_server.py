"""A scripted Tarko server on loopback, in either dialect: it tells one turn, and breaks off where it is told to.

`cuts` holds, for the streams to come, after how many bytes of their body each connection breaks; `refusals` what the
next requests for a path are answered with instead. `hold` keeps the stream open behind that many frames until the turn
is aborted. With `has_cursors` it is like ours: frames have ids, streams resume, a repeated key joins its turn.
"""

import asyncio
import contextlib
import json
from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any
from urllib.parse import parse_qs, urlsplit

Json = dict[str, Any]

QUERY = "sessions/query/stream"
FOLLOW = "sessions/events/stream"
ABORT = "sessions/abort"


@dataclass(frozen=True)
class Reply:
    """An answer: JSON, or text as it is. `drop`: hang up instead; `wait`: only after this."""

    status: int = 200
    body: Any = None
    headers: Sequence[tuple[str, str]] = ()
    drop: bool = False
    wait: asyncio.Event | None = None


@dataclass
class Request:
    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: Any


@dataclass
class TarkoServer:
    """Use as an async context manager; `url` is where it is."""

    script: Sequence[Json]
    flat: bool = False
    has_cursors: bool = True
    hold: int | None = None
    cuts: deque[int | None] = field(default_factory=deque)
    refusals: dict[str, deque[Reply]] = field(default_factory=lambda: defaultdict(deque))
    history: list[Json] = field(default_factory=list)
    requests: list[Request] = field(default_factory=list)
    held: asyncio.Event = field(default_factory=asyncio.Event)
    aborted: asyncio.Event = field(default_factory=asyncio.Event)
    asked: asyncio.Event = field(default_factory=asyncio.Event)
    turns: int = 0
    is_processing: bool = False
    url: str = ""
    _server: asyncio.Server | None = None
    _connections: set[asyncio.Task[None]] = field(default_factory=set)

    async def __aenter__(self) -> "TarkoServer":
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        host, port = self._server.sockets[0].getsockname()
        self.url = f"http://{host}:{port}"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Listen no more, and hang up."""
        assert self._server is not None
        self._server.close()
        for connection in self._connections:
            connection.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)
        await self._server.wait_closed()

    def asked_for(self, path: str) -> list[Request]:
        return [request for request in self.requests if request.path == path]

    def frames(self) -> list[bytes]:
        """The frames of the whole turn."""
        if self.flat:
            return [b"data: %b\n\n" % json.dumps(event).encode() for event in self.script]
        return [_nested_frame(event, named=True, has_id=self.has_cursors) for event in self.script]

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = asyncio.create_task(self._serve(reader, writer), name="scripted Tarko server")
        self._connections.add(connection)
        connection.add_done_callback(self._connections.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            try:
                request = await _read_request(reader)
                self.requests.append(request)
                self.asked.set()
                await self._answer(request, writer)
            finally:
                writer.close()

    async def _answer(self, request: Request, writer: asyncio.StreamWriter) -> None:
        if refusals := self.refusals[request.path]:
            reply = refusals.popleft()
            if reply.wait is not None:
                await reply.wait.wait()
            if reply.drop:
                return
            if reply.body is not None or reply.status != 200:
                await _send(writer, reply)
                return
        if request.path == QUERY:
            repeated = [r.headers.get("idempotency-key") for r in self.asked_for(QUERY)]
            if not (self.has_cursors and not self.flat) or len(set(repeated)) > self.turns:
                self.turns += 1
                self.is_processing = True
            await self._stream(self.frames(), writer)
        elif request.path == FOLLOW:
            await self._follow(request, writer)
        else:
            await _send(writer, Reply(body=self._told(request)))

    def _told(self, request: Request) -> Json:
        if request.path == "sessions/create":
            return {"sessionId": "sess_behind", "createdAt": 1}
        if request.path == "sessions/details":
            return {"session": {"lastEventId": "evt_1"} if self.has_cursors else {}}
        if request.path == "sessions/status":
            return {"status": {"isProcessing": self.is_processing}}
        if request.path == "sessions/events":
            return {"events": self.history}
        if request.path == ABORT:
            was_running, self.is_processing = self.is_processing, False
            self.aborted.set()
            return {"success": was_running}
        raise AssertionError(request)

    async def _follow(self, request: Request, writer: asyncio.StreamWriter) -> None:
        cursor = request.headers["last-event-id"]
        assert request.query == {"sessionId": "sess_behind", "after": cursor}
        [at] = [index for index, event in enumerate(self.script) if event["id"] == cursor]
        opening = f"retry: 10\n\nid: {cursor}\n\n: hello\n\n".encode()
        rest = [_nested_frame(event, named=False, has_id=True) for event in self.script[at + 1 :]]
        await self._stream([opening, *rest], writer)

    async def _stream(self, frames: list[bytes], writer: asyncio.StreamWriter) -> None:
        writer.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
            b"transfer-encoding: chunked\r\nconnection: close\r\n\r\n"
        )
        body = b"".join(frames[: self.hold])
        cut = self.cuts.popleft() if self.cuts else None
        writer.write(b"%x\r\n" % len(b"".join(frames)) + body[:cut])
        await writer.drain()
        if cut is not None:
            return
        if self.hold is not None:
            self.held.set()
            await self.aborted.wait()
            return
        self.is_processing = False
        writer.write(b"\r\n0\r\n\r\n")
        await writer.drain()


def _nested_frame(event: Json, *, named: bool, has_id: bool) -> bytes:
    head = f"id: {event['id']}\n" if has_id else ""
    name = f"event: {event['type']}\n" if named else ""
    return f"{head}{name}data: {json.dumps(event)}\n\n".encode()


async def _read_request(reader: asyncio.StreamReader) -> Request:
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    first, *lines = head.split("\r\n")[:-2]
    method, target, _ = first.split(" ")
    headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    parts = urlsplit(target)
    query = {name: value for name, [value] in parse_qs(parts.query).items()}
    path = parts.path.removeprefix("/api/v1/")
    return Request(method, path, query, headers, json.loads(body) if body else None)


async def _send(writer: asyncio.StreamWriter, reply: Reply) -> None:
    body = reply.body.encode() if isinstance(reply.body, str) else json.dumps(reply.body).encode()
    head = f"HTTP/1.1 {reply.status} Answer\r\ncontent-type: application/json\r\nconnection: close\r\n"
    head += "".join(f"{name}: {value}\r\n" for name, value in reply.headers)
    if "content-length" not in dict(reply.headers):
        head += f"content-length: {len(body)}\r\n"
    writer.write(f"{head}\r\n".encode() + body)
    await writer.drain()
