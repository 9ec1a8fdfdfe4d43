"""A proxy on loopback that passes bytes on, and breaks connections off after so many bytes of the answer."""

import asyncio
import contextlib
from collections import deque
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit


class CuttingProxy:
    """Use as an async context manager. `cuts` are for the next connections that ask for a stream, one each."""

    def __init__(self, target: str) -> None:
        parts = urlsplit(target)
        assert parts.hostname is not None
        assert parts.port is not None
        self._target = (parts.hostname, parts.port)
        self._path = parts.path
        self.cuts: deque[int] = deque()
        self.url = ""
        self._connections: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        host, port = self._server.sockets[0].getsockname()
        self.url = f"http://{host}:{port}{self._path}"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.close()
        for connection in self._connections:
            connection.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)
        await self._server.wait_closed()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = asyncio.create_task(self._serve(reader, writer), name="cutting proxy")
        self._connections.add(connection)
        connection.add_done_callback(self._connections.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            head = await reader.readuntil(b"\r\n\r\n")
            there, back = await asyncio.open_connection(*self._target)
            # One request a connection, so that a cut belongs to one answer.
            back.write(head.replace(b"onnection: keep-alive", b"onnection: close"))
            asking = asyncio.create_task(_pass_on(reader, back), name="cutting proxy, questions")
            is_stream = b"text/event-stream" in head
            try:
                await _pass_on(there, writer, self.cuts.popleft() if is_stream and self.cuts else None)
            finally:
                asking.cancel()
                back.close()
                writer.close()


async def _pass_on(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, left: int | None = None
) -> None:
    while (piece := await reader.read(65_536)) and (left is None or left > 0):
        writer.write(piece if left is None else piece[:left])
        left = None if left is None else left - len(piece)
        await writer.drain()
