"""A scripted server that speaks OpenAI's streaming chat completions, on loopback.

Each request takes the next `Reply` of the script; when the script is used up, `DEFAULT`. Requests are kept as
they came. A reply that ends with `hold=True` keeps its stream open until the client hangs up, and `hung_up`
tells that it did; `asked` that a request has come.
"""

import asyncio
import contextlib
import json
from collections import deque
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

Chunk = dict[str, Any]


def chunk(delta: Chunk | None = None, finish_reason: str | None = None) -> Chunk:
    choice = {"index": 0, "delta": delta or {}, "finish_reason": finish_reason}
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "m",
        "choices": [choice],
    }


def text(content: str) -> Chunk:
    return chunk({"role": "assistant", "content": content})


def reasoning(content: str, field_name: str = "reasoning_content") -> Chunk:
    return chunk({field_name: content})


def fragment(
    index: int | None, arguments: str = "", *, id: str | None = None, name: str | None = None
) -> Chunk:
    """A piece of a tool call."""
    call = {"index": index, "id": id, "type": "function", "function": {"name": name, "arguments": arguments}}
    return chunk({"tool_calls": [call]})


def finish(reason: str = "stop") -> Chunk:
    return chunk(finish_reason=reason)


def usage() -> Chunk:
    return {
        **chunk(),
        "choices": [],
        "usage": {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3},
    }


@dataclass(frozen=True)
class Reply:
    """What one request is answered with: chunks of a stream, or an error."""

    chunks: tuple[Chunk | str, ...] = ()
    status: int = 200
    error: Chunk | None = None
    hold: bool = False
    cut: bool = False
    """Break the connection after the chunks, without the end of the body."""
    silent: bool = False
    """Answer nothing at all until the client hangs up."""


def says(*parts: Chunk | str, **how: Any) -> Reply:
    """A stream of these; a bare string is text."""
    return Reply(tuple(text(part) if isinstance(part, str) else part for part in parts), **how)


def refuses(status: int, message: str, code: str | None = None, kind: str | None = None) -> Reply:
    return Reply(status=status, error={"error": {"message": message, "code": code, "type": kind}})


DEFAULT = says("Hello", " from the scripted model.", finish(), usage())


@dataclass
class Request:
    headers: dict[str, str]
    body: dict[str, Any]


@dataclass
class OpenAIServer:
    """Use as an async context manager; `base_url` is where the SDK finds it."""

    script: deque[Reply] = field(default_factory=deque)
    requests: list[Request] = field(default_factory=list)
    asked: asyncio.Event = field(default_factory=asyncio.Event)
    hung_up: asyncio.Event = field(default_factory=asyncio.Event)
    base_url: str = ""
    _server: asyncio.Server | None = None
    _connections: set[asyncio.Task[None]] = field(default_factory=set)

    def replies(self, *replies: Reply) -> None:
        self.script.extend(replies)

    async def __aenter__(self) -> "OpenAIServer":
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        host, port = self._server.sockets[0].getsockname()
        self.base_url = f"http://{host}:{port}/v1"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        for connection in self._connections:
            connection.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)
        await self._server.wait_closed()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = asyncio.create_task(self._serve(reader, writer), name="scripted model")
        self._connections.add(connection)
        connection.add_done_callback(self._connections.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            try:
                while True:
                    self.requests.append(await _read_request(reader))
                    self.asked.set()
                    reply = self.script.popleft() if self.script else DEFAULT
                    if not await self._answer(reply, reader, writer):
                        return
            finally:
                writer.close()

    async def _answer(self, reply: Reply, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Whether the connection may be used again."""
        if reply.error is not None:
            await _send_error(writer, reply)
            return True
        if not reply.silent:
            await _send_chunks(writer, reply.chunks)
        if reply.cut:
            writer.transport.abort()
            return False
        if reply.hold or reply.silent:
            await reader.read()
            self.hung_up.set()
            return False
        await _send_body_part(writer, b"data: [DONE]\n\n")
        writer.write(b"0\r\n\r\n")
        await writer.drain()
        return True


async def _read_request(reader: asyncio.StreamReader) -> Request:
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    lines = head.split("\r\n")[1:-2]
    headers = {name.lower(): value for name, value in (line.split(": ", 1) for line in lines)}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Request(headers, json.loads(body))


async def _send_error(writer: asyncio.StreamWriter, reply: Reply) -> None:
    body = json.dumps(reply.error).encode()
    head = f"HTTP/1.1 {reply.status} Error\r\ncontent-type: application/json\r\n"
    writer.write(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
    await writer.drain()


async def _send_chunks(writer: asyncio.StreamWriter, chunks: tuple[Chunk | str, ...]) -> None:
    """A chunk that is a string is sent as it is: for what is not JSON."""
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
    for each in chunks:
        data = each if isinstance(each, str) else json.dumps(each)
        await _send_body_part(writer, f"data: {data}\n\n".encode())


async def _send_body_part(writer: asyncio.StreamWriter, part: bytes) -> None:
    writer.write(f"{len(part):x}\r\n".encode() + part + b"\r\n")
    await writer.drain()
