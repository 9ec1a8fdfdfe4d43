"""The client: raw sockets on uvloop, the same for both servers, cheap enough to share two cores with them.

A `Stream` counts the frames of one response by their blank lines and notes when the first event and the end came;
nothing is parsed. The opening frame of a stream is no event. A `Connection` asks one question after the other.
"""

import asyncio
import re
import time
from typing import Any, Self, cast

import orjson

from bench.plan import STAMP_DIGITS

END = b"\r\n0\r\n\r\n"
_STAMP = b'"delta":"@'
_LENGTH = re.compile(rb"content-length: (\d+)", re.IGNORECASE)


def request(method: str, path: str, body: Any = None, header: str = "") -> bytes:
    """A whole request. `body` is bytes, or anything that becomes JSON; `header` one more line of the head."""
    payload = body if isinstance(body, bytes) else b"" if body is None else orjson.dumps(body)
    lines = [f"{method} {path} HTTP/1.1", "host: 127.0.0.1", "content-type: application/json"]
    lines += [header] if header else []
    return "\r\n".join([*lines, f"content-length: {len(payload)}", "", ""]).encode() + payload


class Tally:
    """Counts the frames of many streams, and knows when so many have come."""

    def __init__(self) -> None:
        self.frames = 0
        self._target = 0
        self._reached: asyncio.Future[None] | None = None

    def add(self, frames: int) -> None:
        self.frames += frames
        if self._reached is not None and self.frames >= self._target:
            self._reached.set_result(None)
            self._reached = None

    async def reaches(self, target: int) -> None:
        """Wait until so many frames have come since the tally was made."""
        if self.frames < target:
            self._target, self._reached = target, asyncio.get_running_loop().create_future()
            await self._reached


class Stream(asyncio.Protocol):
    """One streamed response on a connection of its own. Times are seconds of `time.perf_counter`."""

    def __init__(self, tally: Tally | None = None) -> None:
        self.frames = 0
        self.sent = self.first = 0.0
        self.ended: asyncio.Future[float] = asyncio.get_running_loop().create_future()
        self.transport: asyncio.Transport | None = None
        self._tally = tally
        self._is_half = False
        self._tail = b""

    @classmethod
    async def connect(cls, port: int, tally: Tally | None = None) -> Self:
        loop = asyncio.get_running_loop()
        _, protocol = await loop.create_connection(lambda: cls(tally), "127.0.0.1", port)
        return protocol

    def ask(self, raw: bytes) -> None:
        """Send the request."""
        assert self.transport is not None
        self.sent = time.perf_counter()
        self.transport.write(raw)

    @property
    def events(self) -> int:
        return self.frames - 1

    def close(self) -> None:
        if self.transport is not None:
            self.transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)  # uvloop's is none by its class

    def data_received(self, data: bytes) -> None:
        came = data.count(b"\n\n")
        if self._is_half and data[:1] == b"\n":
            came += 1
        self._is_half = data.endswith(b"\n") and not data.endswith(b"\n\n")
        self.frames += came
        if not self.first and self.frames > 1:
            self.first = time.perf_counter()
        if self._tally is not None:
            self._tally.add(came)
        self.saw(data)
        self._tail = data[-len(END) :] if len(data) >= len(END) else (self._tail + data)[-len(END) :]
        if self._tail == END and not self.ended.done():
            self.ended.set_result(time.perf_counter())
            self.close()

    def saw(self, data: bytes) -> None:
        """For those that look at the bytes."""

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.ended.done():
            self.ended.set_exception(ConnectionError(f"a stream broke after {self.frames} frames"))
            self.ended.exception()  # a reader that was closed on purpose has nobody who asks


class Recorder(Stream):
    """Keeps what came."""

    def __init__(self, tally: Tally | None = None) -> None:
        super().__init__(tally)
        self.raw = bytearray()

    def saw(self, data: bytes) -> None:
        self.raw += data

    def body(self) -> bytes:
        """The bytes of the body, without their chunks."""
        return _dechunked(bytes(self.raw))

    def whole_frames(self) -> bytes:
        """The frames of a stream that goes on."""
        body = _dechunked(bytes(self.raw))
        return body[: body.rfind(b"\n\n") + 2]


class Stopwatch(Stream):
    """Notes how old each stamped delta was when it came, in nanoseconds."""

    def __init__(self, tally: Tally | None = None) -> None:
        super().__init__(tally)
        self.ages: list[int] = []
        self._left = b""

    def saw(self, data: bytes) -> None:
        now = time.monotonic_ns()
        data = self._left + data
        at = end = 0
        while (at := data.find(_STAMP, at)) >= 0 and len(data) >= at + len(_STAMP) + STAMP_DIGITS:
            at += len(_STAMP)
            end = at + STAMP_DIGITS
            self.ages.append(now - int(data[at:end]))
        # A stamp that is cut off is shorter than this, and one that was read is not kept.
        self._left = data[max(end, len(data) - len(_STAMP) - STAMP_DIGITS) :]


class Connection(asyncio.Protocol):
    """Asks one question after the other on one kept connection."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._came = bytearray()
        self._answer: asyncio.Future[bytes] | None = None

    @classmethod
    async def connect(cls, port: int) -> "Connection":
        _, protocol = await asyncio.get_running_loop().create_connection(cls, "127.0.0.1", port)
        return protocol

    async def ask(self, method: str, path: str, body: Any = None) -> bytes:
        """The answer's body. Raises `RuntimeError` unless its status is a good one."""
        return await self.ask_raw(request(method, path, body))

    async def ask_raw(self, raw: bytes) -> bytes:
        assert self._transport is not None
        self._came.clear()
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(raw)
        answer = await self._answer
        if not answer.startswith(b"HTTP/1.1 2"):
            raise RuntimeError(f"refused: {answer[:500].decode(errors='replace')}")
        head, _, body = answer.partition(b"\r\n\r\n")
        return body if _LENGTH.search(head) else _dechunked(answer)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._came += data
        if self._is_whole() and self._answer is not None and not self._answer.done():
            self._answer.set_result(bytes(self._came))

    def connection_lost(self, exc: Exception | None) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(ConnectionError("the connection broke before the answer was whole"))

    def _is_whole(self) -> bool:
        end = self._came.find(b"\r\n\r\n")
        if end < 0:
            return False
        length = _LENGTH.search(self._came, 0, end)
        if length is None:
            return self._came.endswith(END)
        return len(self._came) >= end + 4 + int(length[1])


def _dechunked(answer: bytes) -> bytes:
    at = answer.index(b"\r\n\r\n") + 4
    body = bytearray()
    while at < len(answer):
        line = answer.index(b"\r\n", at)
        size = int(answer[at:line], 16)
        body += answer[line + 2 : line + 2 + size]
        at = line + 2 + size + 2
    return bytes(body)
