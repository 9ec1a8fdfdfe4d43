"""A task's stream: JSON-RPC results over server-sent events, from a cursor.

The reader holds a place and no queue; what a page becomes is shared with other readers of the task, and only what
stands around it is its own. When nothing was said for a while, the status is said again, since callers count events and not
comments. A stream that is to end with the whole task reads it when it ends, and sends it in pieces.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from app.dialects.a2a.frames import Frames, Spoken
from app.dialects.a2a.spelling import State, Status, json_of, status_update
from app.events.envelope import now_ms
from app.log.session_log import Page, SessionLog
from app.transport.cursor import Cursor, Start
from app.transport.disconnect import until_disconnect
from app.transport.outlet import Message, Outlet
from app.transport.readers import Readers, Registration, ServerStops
from app.transport.sse import CHUNK, HEADERS, PING, chunks
from app.transport.wire import wire_of

_END: Message = {"type": "http.response.body", "body": b"", "more_body": False}


@dataclass(frozen=True, slots=True)
class Wrapping:
    """What stands around each result of one reader's stream."""

    before: bytes
    after: bytes = b"}\n\n"

    @classmethod
    def of(cls, request_id: str | int) -> "Wrapping":
        """The envelope of the answers to this request."""
        return cls(b'data: {"jsonrpc":"2.0","id":%b,"result":' % json_of(request_id))

    def around(self, results: "list[bytes] | tuple[bytes, ...]") -> bytes:
        """The frames of these results; they are at least one."""
        return self.before + (self.after + self.before).join(results) + self.after

    def pieces(self, result: Sequence[bytes]) -> Iterator[bytes]:
        """The frame of one result, which came in pieces, in chunks: a large one is not copied as a whole."""
        parts = (self.before, *result, self.after)
        return chunks(part[at : at + CHUNK] for part in parts for at in range(0, len(part), CHUNK))


@dataclass(frozen=True, slots=True)
class Follow:
    """What a stream follows: the task's events after a place, told so, after `opening` (the task, as a result in pieces).

    `closing` makes the result that is sent last; None: nothing is.
    """

    log: SessionLog
    frames: Frames
    after: int
    opening: Sequence[bytes] | None = None
    state: State = "working"
    closing: Callable[[], Awaitable[Sequence[bytes] | None]] | None = None


class TaskStream(Response):
    """Streams a task to its end."""

    media_type = "text/event-stream"

    def __init__(
        self,
        request_id: str | int,
        follow: Follow,
        *,
        readers: Readers,
        release: Callable[[], None],
        send_timeout: float,
        heartbeat: float,
    ) -> None:
        """`release` is called once, when the stream has ended. Times are seconds."""
        super().__init__(headers=HEADERS)
        del self.headers["content-length"]
        self._wrapping = Wrapping.of(request_id)
        self._follow = follow
        self._state = follow.state
        self._readers = readers
        self._release = release
        self._send_timeout = send_timeout
        self._heartbeat = heartbeat

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            await self._stream(receive, wire_of(scope, send))
        finally:
            self._release()

    async def _stream(self, receive: Receive, send: Send) -> None:
        follow = self._follow
        if follow.opening is not None:
            await self._send_result(send, follow.opening)
        cursor = Cursor(follow.log, Start(follow.after), end_of=lambda page: self._spoken(page).end)
        outlet = Outlet(follow.log, cursor, send, self._messages, send_timeout=self._send_timeout)
        reader = Registration(outlet, self._beat, ends_by_itself=True, patience=self._heartbeat)
        gone = asyncio.create_task(_until_gone(receive, outlet), name="client of a task's stream")

        def stop_waiting() -> None:
            # A turn that runs ends in the drain, and the stream with it; a question may stay open for days.
            if self._state == "input-required":
                outlet.close(ServerStops())

        self._readers.add(reader)
        self._readers.on_drain(stop_waiting)
        try:
            outlet.open()
            reason = await outlet.closed
            if reason is None and follow.closing is not None:
                closing = await follow.closing()
                if closing is not None:
                    await self._send_result(send, closing)
            if reason is None or isinstance(reason, ServerStops):
                await send(_END)
        finally:
            gone.cancel()
            self._readers.remove(reader)
            self._readers.forget(stop_waiting)
            outlet.close()

    async def _send_result(self, send: Send, result: Sequence[bytes]) -> None:
        await _send_all(send, self._wrapping.pieces(result), self._send_timeout)

    def _spoken(self, page: Page) -> Spoken:
        return page.encoded(self._follow.frames)

    def _messages(self, pages: list[Page]) -> Iterator[Message]:
        for page in pages:
            spoken = self._spoken(page)
            self._state = spoken.state or self._state
            if spoken.results:
                yield _body(self._wrapping.around(list(spoken.results)))

    def _beat(self) -> Message:
        """The status once more. One that asks is not said without its question: that would be another one."""
        if self._state == "input-required":
            return PING
        frames = self._follow.frames
        status = Status(self._state, now_ms())
        told = status_update(status, frames.task_id, frames.context_id, frames.version, ends_stream=False)
        return _body(self._wrapping.around((json_of(told),)))


class TaskSent(Response):
    """A stream of one task that is settled already."""

    media_type = "text/event-stream"

    def __init__(self, request_id: str | int, result: Sequence[bytes], *, send_timeout: float) -> None:
        super().__init__(headers=HEADERS)
        del self.headers["content-length"]
        self._pieces = Wrapping.of(request_id).pieces(result)
        self._send_timeout = send_timeout

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        await _send_all(send, self._pieces, self._send_timeout)
        await send(_END)


class FaultStream(Response):
    """A stream of one error: how 0.3 answers a call for a stream that it refuses."""

    media_type = "text/event-stream"

    def __init__(self, error: bytes) -> None:
        super().__init__(b"data: " + error + b"\n\n", headers=HEADERS)


class ClientGone(Exception):
    """The client hung up."""


async def _until_gone(receive: Receive, outlet: Outlet) -> None:
    await until_disconnect(receive)
    outlet.close(ClientGone())


async def _send_all(send: Send, chunks: Iterable[bytes], send_timeout: float) -> None:
    for chunk in chunks:
        async with asyncio.timeout(send_timeout):
            await send(_body(chunk))


def _body(chunk: bytes) -> Message:
    return {"type": "http.response.body", "body": chunk, "more_body": True}
