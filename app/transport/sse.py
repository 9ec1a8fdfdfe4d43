"""Server-sent events: the response that streams a cursor, and its frames.

Headers and the opening frame are sent at once, so a client knows that it is connected; then what the cursor reads, each
page in one write. The stream ends with its cursor, or when the client goes, or, when the server drains, with a frame
that names the cursor's place.

Why not sse-starlette's response: it costs twice the memory of this one for an idle reader, wakes a task and copies for
each frame, and patches uvicorn's signal handling on import (docs/decisions/0003).

Source of the format: WHATWG HTML, "Server-sent events".
"""

import asyncio
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from app.events.envelope import Envelope
from app.log.session_log import Page, SessionLog
from app.transport.cursor import Cursor, Start
from app.transport.disconnect import until_disconnect
from app.transport.outlet import Message, Outlet
from app.transport.readers import Readers, Registration, ServerStops
from app.transport.wire import wire_of

HEADERS = {
    "cache-control": "no-cache, no-transform",
    "x-accel-buffering": "no",
}
RETRY_MS = (1_000, 3_000)
CHUNK = 256 * 1024
PING: Message = {"type": "http.response.body", "body": b": ping\n\n", "more_body": True}


def named_frame(event_id: bytes, name: bytes, data: bytes) -> bytes:
    """A frame with a name."""
    return b"id: %b\nevent: %b\ndata: %b\n\n" % (event_id, name, data)


def cursor_frame(event_id: bytes) -> bytes:
    """A frame that dispatches nothing: the client only remembers the id, and resumes after it."""
    return b"id: %b\n\n" % event_id


def opening_frame(event_id: bytes, retry_ms: int) -> bytes:
    """How long to wait before a reconnect, in milliseconds, and where to resume."""
    return b"retry: %d\n" % retry_ms + cursor_frame(event_id)


def come_back() -> bytes:
    """A whole stream that says nothing but when to try again; the client keeps the cursor it has."""
    return b"retry: %d\n\n" % random.randint(*RETRY_MS)  # noqa: S311 - jitter


@dataclass(frozen=True, slots=True)
class TurnStream:
    """What a stream of one turn does besides: it ends after the turn's last event, also while the server drains; only
    one whose turn waits is sent away then, because the turn will begin elsewhere.

    `is_alone`: it has events of that turn only. `notice` is sent first. When `removed` says true, the turn will
    never start, and `farewell` is the last frame. `gone` is called when the client hangs up or
    takes nothing any more. Both frames are made of a place.
    """

    turn_id: str
    is_alone: bool = False
    notice: Callable[[int], bytes] | None = None
    removed: "asyncio.Future[bool] | None" = None
    farewell: Callable[[int], bytes] = lambda place: b""
    gone: Callable[[], None] = lambda: None


class EventStream(Response):
    """Streams a log from a start. `spell` makes events' frames; `event_id` the id of a place."""

    media_type = "text/event-stream"

    def __init__(
        self,
        log: SessionLog,
        start: Start,
        *,
        spell: Callable[[Sequence[Envelope]], bytes],
        event_id: Callable[[int], bytes] | None,
        readers: Readers,
        release: Callable[[], None],
        send_timeout: float,
        turn: TurnStream | None = None,
    ) -> None:
        """`release` is called once, when the stream has ended.

        Without `event_id` the stream names no places: it opens with a comment, and nobody can resume it.
        """
        super().__init__(headers=HEADERS)
        del self.headers["content-length"]
        self._log = log
        self._turn = turn
        self._cursor = Cursor(
            log, start, turn.turn_id if turn else None, is_alone=turn is not None and turn.is_alone
        )
        self._frame = spell
        self._event_id = event_id
        self._readers = readers
        self._release = release
        self._send_timeout = send_timeout

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            await self._stream(receive, wire_of(scope, send))
        finally:
            self._release()

    async def _stream(self, receive: Receive, send: Send) -> None:
        await send(self._opening())
        outlet = Outlet(self._log, self._cursor, send, self._messages, send_timeout=self._send_timeout)
        reader = Registration(outlet, PING, ends_by_itself=self._cursor.turn_id is not None)
        turn = self._turn
        if turn is not None and turn.notice is not None:
            await send(_body(turn.notice(self._cursor.place)))
        if turn is not None and turn.removed is not None:
            turn.removed.add_done_callback(lambda removed: self._say_farewell(outlet, removed.result()))
        gone = asyncio.create_task(_until_gone(receive, outlet), name="client of a stream")

        def stop_waiting() -> None:
            if turn is not None and turn.removed is not None and not turn.removed.done():
                outlet.close(ServerStops())

        self._readers.add(reader)
        self._readers.on_drain(stop_waiting)
        try:
            outlet.open()
            reason = await outlet.closed
        finally:
            gone.cancel()
            self._readers.remove(reader)
            self._readers.forget(stop_waiting)
            outlet.close()
        if turn is not None and reason is not None and not isinstance(reason, ServerStops):
            turn.gone()
        if isinstance(reason, ServerStops) and self._event_id is not None:
            await send(_body(cursor_frame(self._event_id(outlet.sent))))
        if reason is None or isinstance(reason, ServerStops):
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    def _opening(self) -> Message:
        if self._event_id is None:
            return PING
        return _body(opening_frame(self._event_id(self._cursor.place), random.randint(*RETRY_MS)))  # noqa: S311 - jitter

    def _say_farewell(self, outlet: Outlet, is_removed: bool) -> None:
        if is_removed and self._turn is not None and not outlet.closed.done():
            farewell = self._turn.farewell
            outlet.say(lambda place: _body(farewell(place)))
            outlet.finish()

    def _messages(self, pages: list[Page]) -> list[Message]:
        if len(pages) == 1:
            encoded = pages[0].encoded(self._frame)
            return [_body(encoded)] if encoded else []
        return [_body(chunk) for chunk in chunks(page.encoded(self._frame) for page in pages)]


class ClientGone(Exception):
    """The client hung up."""


async def _until_gone(receive: Receive, outlet: Outlet) -> None:
    await until_disconnect(receive)
    outlet.close(ClientGone())


def chunks(parts: Iterable[bytes]) -> Iterator[bytes]:
    """The parts joined to as few chunks as can be, of about `CHUNK` bytes: the server copies each for each reader."""
    chunk: list[bytes] = []
    size = 0
    for part in parts:
        if chunk and size + len(part) > CHUNK:
            yield b"".join(chunk)
            chunk, size = [], 0
        chunk.append(part)
        size += len(part)
    if size:
        yield b"".join(chunk)


def _body(chunk: bytes) -> Message:
    return {"type": "http.response.body", "body": chunk, "more_body": True}
