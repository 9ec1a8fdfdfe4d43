"""A network between browser and server that a test can break: a TCP proxy on a port of its own."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

CHUNK = 64 * 1024


class Proxy:
    """Carries bytes both ways. `cut` breaks every connection at once; `budget` breaks one that has brought so many.

    While it `is_down`, it takes connections and drops them.
    """

    def __init__(self, target_port: int) -> None:
        self._target_port = target_port
        self._open: set[asyncio.StreamWriter] = set()
        self._pumps: set[asyncio.Task[None]] = set()
        self.port = 0
        self.cuts = 0
        self.budget: int | None = None
        self.is_down = False

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def cut(self) -> None:
        """Break every connection, as a cable that is pulled: no goodbye, nothing that is under way arrives."""
        self.cuts += 1
        for writer in self._open:
            writer.transport.abort()

    async def close(self) -> None:
        """Break what is open and wait for it."""
        self.is_down = True
        self.cut()
        await asyncio.gather(*self._pumps)

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._pumps.add(task)
        self._open.add(writer)
        try:
            with suppress(OSError):
                if not self.is_down:
                    await self._carry(reader, writer)
        finally:
            writer.transport.abort()
            self._open.discard(writer)
            self._pumps.discard(task)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server_reader, server_writer = await asyncio.open_connection("127.0.0.1", self._target_port)
        self._open.add(server_writer)
        try:
            await asyncio.gather(
                self._pump(reader, server_writer), self._pump(server_reader, writer, is_downward=True)
            )
        finally:
            server_writer.transport.abort()
            self._open.discard(server_writer)

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, is_downward: bool = False
    ) -> None:
        with suppress(OSError):
            while chunk := await reader.read(CHUNK):
                if is_downward and self.budget is not None:
                    await self._spend(writer, chunk)
                else:
                    writer.write(chunk)
                    await writer.drain()
        # Who has gone is gone for the other side, too: also one that was cut off while the server was being connected.
        writer.close()

    async def _spend(self, writer: asyncio.StreamWriter, chunk: bytes) -> None:
        assert self.budget is not None
        left = self.budget - len(chunk)
        writer.write(chunk[: self.budget])
        self.budget = left if left > 0 else None
        await writer.drain()
        if left <= 0:
            self.cut()


@asynccontextmanager
async def open_proxy(target_port: int) -> AsyncIterator[Proxy]:
    """A proxy for as long as the block runs."""
    proxy = Proxy(target_port)
    listener = await asyncio.start_server(proxy._connect, "127.0.0.1", 0)
    proxy.port = listener.sockets[0].getsockname()[1]
    try:
        yield proxy
    finally:
        listener.close()
        await proxy.close()
