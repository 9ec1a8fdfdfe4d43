"""A scripted Tarko server on loopback, in either dialect: it tells one turn, and breaks off where it is told to.

`cuts` holds, for the streams to come, after how many bytes of their body each connection breaks; `refusals` what the
next requests for a path are answered with instead. `hold` keeps the stream open behind that many frames until the turn
is aborted. With `has_cursors` it is like ours: frames have ids, streams resume, a repeated key joins its turn.
"""

import asyncio
import json
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from tests.agents.scripted_http import Json, Reply, Request, ScriptedServer, send

QUERY = "sessions/query/stream"
FOLLOW = "sessions/events/stream"
ABORT = "sessions/abort"


@dataclass
class TarkoServer(ScriptedServer):
    """Use as an async context manager; `url` is where it is."""

    script: Sequence[Json]
    flat: bool = False
    has_cursors: bool = True
    hold: int | None = None
    cuts: deque[int | None] = field(default_factory=deque)
    history: list[Json] = field(default_factory=list)
    held: asyncio.Event = field(default_factory=asyncio.Event)
    aborted: asyncio.Event = field(default_factory=asyncio.Event)
    turns: int = 0
    is_processing: bool = False

    def frames(self) -> list[bytes]:
        """The frames of the whole turn."""
        if self.flat:
            return [b"data: %b\n\n" % json.dumps(event).encode() for event in self.script]
        return [_nested_frame(event, named=True, has_id=self.has_cursors) for event in self.script]

    async def answer(self, request: Request, writer: asyncio.StreamWriter) -> None:
        if request.path == QUERY:
            repeated = [r.headers.get("idempotency-key") for r in self.asked_for(QUERY)]
            if not (self.has_cursors and not self.flat) or len(set(repeated)) > self.turns:
                self.turns += 1
                self.is_processing = True
            await self._stream(self.frames(), writer)
        elif request.path == FOLLOW:
            await self._follow(request, writer)
        else:
            await send(writer, Reply(body=self._told(request)))

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
