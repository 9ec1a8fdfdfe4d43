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
from collections.abc import Callable

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from app.events.envelope import Envelope
from app.log.session_log import Page, SessionLog
from app.transport.cursor import Cursor, Start
from app.transport.outlet import Message, Outlet
from app.transport.readers import Readers, Registration, ServerStops

HEADERS = {
    "cache-control": "no-cache, no-transform",
    "x-accel-buffering": "no",
}
RETRY_MS = (1_000, 3_000)
PING: Message = {"type": "http.response.body", "body": b": ping\n\n", "more_body": True}


def frame(event_id: bytes, data: bytes) -> bytes:
    """A frame without a name, which `EventSource` hands to `onmessage`."""
    return b"id: %b\ndata: %b\n\n" % (event_id, data)


def named_frame(event_id: bytes, name: bytes, data: bytes) -> bytes:
    """A frame with a name."""
    return b"id: %b\nevent: %b\ndata: %b\n\n" % (event_id, name, data)


def cursor_frame(event_id: bytes) -> bytes:
    """A frame that dispatches nothing: the client only remembers the id, and resumes after it."""
    return b"id: %b\n\n" % event_id


def opening_frame(event_id: bytes, retry_ms: int) -> bytes:
    """How long to wait before a reconnect, in milliseconds, and where to resume."""
    return b"retry: %d\n" % retry_ms + cursor_frame(event_id)


class EventStream(Response):
    """Streams a log from a start. `spell` makes an event's frame; `event_id` the id of a place.

    With `turn_id` the stream ends after that turn's last event, also while the server drains.
    """

    media_type = "text/event-stream"

    def __init__(
        self,
        log: SessionLog,
        start: Start,
        *,
        spell: Callable[[Envelope], bytes],
        event_id: Callable[[int], bytes],
        readers: Readers,
        release: Callable[[], None],
        send_timeout: float,
        turn_id: str | None = None,
    ) -> None:
        """`release` is called once, when the stream has ended."""
        super().__init__(headers=HEADERS)
        del self.headers["content-length"]
        self._log = log
        self._cursor = Cursor(log, start, turn_id)
        self._frame = spell
        self._event_id = event_id
        self._readers = readers
        self._release = release
        self._send_timeout = send_timeout

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self._stream(receive, send)
        finally:
            self._release()

    async def _stream(self, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        opening = opening_frame(self._event_id(self._cursor.place), random.randint(*RETRY_MS))  # noqa: S311 - jitter
        await send(_body(opening))
        outlet = Outlet(self._log, self._cursor, send, self._messages, send_timeout=self._send_timeout)
        reader = Registration(outlet, PING, ends_by_itself=self._cursor.turn_id is not None)
        gone = asyncio.create_task(_until_gone(receive, outlet), name="client of a stream")
        self._readers.add(reader)
        try:
            outlet.open()
            reason = await outlet.closed
        finally:
            gone.cancel()
            self._readers.remove(reader)
            outlet.close()
        if isinstance(reason, ServerStops):
            await send(_body(cursor_frame(self._event_id(outlet.sent))))
        if reason is None or isinstance(reason, ServerStops):
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    def _messages(self, pages: list[Page]) -> list[Message]:
        joined = b"".join([page.encoded(self._frame) for page in pages])
        return [_body(joined)] if joined else []


class ClientGone(Exception):
    """The client hung up."""


async def _until_gone(receive: Receive, outlet: Outlet) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    outlet.close(ClientGone())


def _body(chunk: bytes) -> Message:
    return {"type": "http.response.body", "body": chunk, "more_body": True}
