"""A scripted HTTP server on loopback: it keeps what it was asked, and answers by hand. One request a connection."""

import asyncio
import contextlib
import json
from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

Json = dict[str, Any]


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
class ScriptedServer:
    """Use as an async context manager; `url` is where it is. `refusals` are answered first, by path or method."""

    refusals: dict[str, deque[Reply]] = field(default_factory=lambda: defaultdict(deque), kw_only=True)
    requests: list[Request] = field(default_factory=list, kw_only=True)
    asked: asyncio.Event = field(default_factory=asyncio.Event, kw_only=True)
    url: str = field(default="", kw_only=True)
    _server: asyncio.Server | None = field(default=None, kw_only=True)
    _connections: set[asyncio.Task[None]] = field(default_factory=set, kw_only=True)

    async def answer(self, request: Request, writer: asyncio.StreamWriter) -> None:
        raise NotImplementedError

    def name_of(self, request: Request) -> str:
        """By what its refusals are kept."""
        return request.path

    async def __aenter__(self) -> Self:
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
        return [request for request in self.requests if self.name_of(request) == path]

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = asyncio.create_task(self._serve(reader, writer), name="scripted server")
        self._connections.add(connection)
        connection.add_done_callback(self._connections.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            try:
                request = await read_request(reader)
                self.requests.append(request)
                self.asked.set()
                await self._refuse_or_answer(request, writer)
            finally:
                writer.close()

    async def _refuse_or_answer(self, request: Request, writer: asyncio.StreamWriter) -> None:
        if refusals := self.refusals[self.name_of(request)]:
            reply = refusals.popleft()
            if reply.wait is not None:
                await reply.wait.wait()
            if reply.drop:
                return
            if reply.body is not None or reply.status != 200:
                await send(writer, reply)
                return
        await self.answer(request, writer)


async def read_request(reader: asyncio.StreamReader) -> Request:
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    first, *lines = head.split("\r\n")[:-2]
    method, target, _ = first.split(" ")
    headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    parts = urlsplit(target)
    query = {name: value for name, [value] in parse_qs(parts.query).items()}
    path = parts.path.removeprefix("/api/v1/")
    return Request(method, path, query, headers, json.loads(body) if body else None)


async def send(writer: asyncio.StreamWriter, reply: Reply) -> None:
    body = reply.body.encode() if isinstance(reply.body, str) else json.dumps(reply.body).encode()
    head = f"HTTP/1.1 {reply.status} Answer\r\ncontent-type: application/json\r\nconnection: close\r\n"
    head += "".join(f"{name}: {value}\r\n" for name, value in reply.headers)
    if "content-length" not in dict(reply.headers):
        head += f"content-length: {len(body)}\r\n"
    writer.write(f"{head}\r\n".encode() + body)
    await writer.drain()
