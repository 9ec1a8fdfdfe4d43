"""A network between client and server in which each connection meets its fault: a proxy that cuts, delays and drops.

Only connections that read events (streams, sockets, queries) take a fault; others share that of the last one, so a
server that refuses streams refuses everything else too.
"""

import asyncio
import re
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from typing import TypeAlias

from tests.clients.scenarios import Fault

CHUNK = 64 * 1024
TURNS_TO_CLOSE = 2  # of the loop: an aborted connection closes its socket a turn later
_READS_EVENTS = re.compile(rb"(GET|POST) (/ws|\S*/stream)")


Accept: TypeAlias = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Network:
    """Carries bytes to `target_port`. `began` has the times at which event-reading connections came."""

    def __init__(self, target_port: int) -> None:
        self.target_port = target_port
        self.port = 0
        self.began: list[float] = []
        self._faults: Iterator[Fault] = iter(())
        self._fault = Fault()
        self._by_port: dict[int, Fault] = {}
        self._links: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._accepted: set[asyncio.BaseProtocol] = set()
        self._is_closing = False

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def expect(self, faults: list[Fault]) -> None:
        """From now on these faults happen, then none."""
        self._faults = iter(faults)
        self._fault = Fault()
        self.began = []

    def fault_of(self, port: int) -> Fault:
        """What the server has to do itself to a connection that comes from this port."""
        return self._by_port.get(port, Fault())

    def cut(self) -> None:
        """Break every connection."""
        for writer in self._writers:
            writer.transport.abort()

    async def serve(self, listener: socket.socket) -> None:
        """Accept until `close`. A server of asyncio's loses a connection that it accepts while it is closed."""
        loop = asyncio.get_running_loop()
        self.port = listener.getsockname()[1]
        while True:
            connection, _ = await loop.sock_accept(listener)
            if self._is_closing:
                connection.close()
                return
            await loop.connect_accepted_socket(lambda: _Accepted(self._accepted, self.accept), connection)

    async def close(self) -> None:
        """Accept no more, and break every connection."""
        self._is_closing = True
        _, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.transport.abort()
        while self._links or self._accepted:
            self.cut()
            await asyncio.sleep(0.001)
        for _ in range(TURNS_TO_CLOSE):
            await asyncio.sleep(0)

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._links.add(task)
        self._writers.add(writer)
        try:
            with suppress(OSError):
                await self._carry(reader, writer)
        finally:
            writer.transport.abort()
            self._writers.discard(writer)
            self._links.discard(task)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        first = await reader.read(CHUNK)
        fault = self._take(first)
        if fault.drop:
            return
        server_reader, server_writer = await asyncio.open_connection("127.0.0.1", self.target_port)
        self._by_port[server_writer.get_extra_info("sockname")[1]] = fault
        self._writers.add(server_writer)
        upward = asyncio.create_task(_pump(first, reader, server_writer), name="to the server")
        try:
            await asyncio.sleep(fault.wait_ms / 1000)
            await _pump_with(fault, server_reader, writer)
        finally:
            upward.cancel()
            server_writer.transport.abort()
            self._writers.discard(server_writer)

    def _take(self, first: bytes) -> Fault:
        if _READS_EVENTS.match(first):
            self.began.append(time.monotonic())
            self._fault = next(self._faults, Fault())
            return self._fault
        return Fault(refuse=self._fault.refuse, drop=self._fault.drop)


class _Accepted(asyncio.StreamReaderProtocol):
    """Is among the open ones from before its connection is made until it is lost."""

    def __init__(self, open_ones: set[asyncio.BaseProtocol], accept: Accept) -> None:
        super().__init__(asyncio.StreamReader(), accept)
        self._open_ones = open_ones
        open_ones.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._open_ones.discard(self)


async def _pump(first: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    chunk = first
    while chunk:
        writer.write(chunk)
        await writer.drain()
        chunk = await reader.read(CHUNK)


async def _pump_with(fault: Fault, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    left = fault.cut_after
    while chunk := await reader.read(CHUNK):
        for piece in _pieces(chunk if left is None else chunk[:left], fault.pieces):
            writer.write(piece)
            await writer.drain()
            if fault.pieces:
                await asyncio.sleep(0)
        if left is not None:
            left -= len(chunk)
            if left <= 0:
                await _flushed(writer)
                return
    with suppress(OSError):
        writer.write_eof()
        await _flushed(writer)


async def _flushed(writer: asyncio.StreamWriter) -> None:
    """Everything has left before the connection breaks: it is cut at this byte, not before."""
    writer.transport.set_write_buffer_limits(0)
    await writer.drain()


def _pieces(chunk: bytes, size: int | None) -> Iterator[bytes]:
    step = size or max(len(chunk), 1)
    return (chunk[at : at + step] for at in range(0, len(chunk), step))


@asynccontextmanager
async def open_network(target_port: int) -> AsyncIterator[Network]:
    """A network for as long as the block runs."""
    network = Network(target_port)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(0)
        serving = asyncio.create_task(network.serve(listener), name="a network's listener")
        await asyncio.sleep(0)
        try:
            yield network
        finally:
            await network.close()
            await serving
