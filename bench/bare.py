"""The process of the bare app: raw ASGI under the server's own uvicorn settings, one `send` for each frame.

It streams bytes that were taken from our server and does nothing else: no session, no log, no store. So it shows what
Python, uvicorn, the sockets and the client can do at best when each event is sent by itself.
"""

import asyncio
import re
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import uvicorn
import uvloop

from bench.plan import Plan, stamp, ticks

HEAD: dict[str, Any] = {
    "type": "http.response.start",
    "status": 200,
    "headers": [(b"content-type", b"text/event-stream; charset=utf-8"), (b"cache-control", b"no-cache")],
}
LAST: dict[str, Any] = {"type": "http.response.body", "body": b"", "more_body": False}
SHORT = b'{"sessionId":"sess_agrcxn5wmn67bbrfev7q3m7ium","createdAt":1796029789795}'

Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]


def frames_of(stream: bytes) -> list[bytes]:
    """The frames of an SSE stream."""
    return [frame + b"\n\n" for frame in stream.split(b"\n\n") if frame]


class Bare:
    """The app. `bytes_dir` holds a turn as its caller saw it and a delta as a reader saw it."""

    def __init__(self, bytes_dir: Path) -> None:
        self._turn = frames_of((bytes_dir / "turn.sse").read_bytes())
        self._live = frames_of((bytes_dir / "live.sse").read_bytes())
        reader = (bytes_dir / "reader.sse").read_bytes()
        self._opening = frames_of(reader)[0]
        self._template = re.split(rb"@\d{19}", next(f for f in frames_of(reader) if b'"delta"' in f))
        self._live_template = re.split(rb"@\d{19}", next(f for f in self._live if b'"delta"' in f))
        self._readers: set[Send] = set()

    async def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        body = await _body(receive)
        match scope["path"]:
            case "/turn":
                await self._send_turn(send, yields=scope["query_string"] == b"yield")
            case "/live":
                await self._send_live(Plan.of(body), send)
            case "/reader":
                await self._keep(receive, send)
            case "/broadcast":
                await self._broadcast(Plan.of(body))
                await _answer(send, SHORT)
            case _:
                await _answer(send, SHORT)

    async def _send_turn(self, send: Send, *, yields: bool) -> None:
        await send(HEAD)
        for frame in self._turn:
            await send({"type": "http.response.body", "body": frame, "more_body": True})
            if yields:
                await asyncio.sleep(0)
        await send(LAST)

    async def _send_live(self, plan: Plan, send: Send) -> None:
        """The frames around the deltas as they are, between them one at a time with its stamp."""
        await send(HEAD)
        around = [frame for frame in self._live if b'"delta"' not in frame]
        for frame in around[:-2]:
            await send({"type": "http.response.body", "body": frame, "more_body": True})
        before, after = self._live_template
        async for due in ticks(plan):
            for _ in range(due):
                frame = before + stamp().encode() + after
                await send({"type": "http.response.body", "body": frame, "more_body": True})
        for frame in around[-2:]:
            await send({"type": "http.response.body", "body": frame, "more_body": True})
        await send(LAST)

    async def _keep(self, receive: Receive, send: Send) -> None:
        await send(HEAD)
        await send({"type": "http.response.body", "body": self._opening, "more_body": True})
        self._readers.add(send)
        while (await receive())["type"] != "http.disconnect":
            pass
        self._readers.discard(send)

    async def _broadcast(self, plan: Plan) -> None:
        before, after = self._template
        async for due in ticks(plan):
            for _ in range(due):
                frame = before + stamp().encode() + after
                for send in list(self._readers):
                    await send({"type": "http.response.body", "body": frame, "more_body": True})


async def _body(receive: Receive) -> bytes:
    body: bytes = b""
    while True:
        message = await receive()
        body += message.get("body", b"")
        if not message.get("more_body"):
            return body


async def _answer(send: Send, body: bytes) -> None:
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _run(port: int, bytes_dir: Path) -> None:
    config = uvicorn.Config(
        Bare(bytes_dir),
        port=port,
        lifespan="off",
        http="httptools",
        ws="websockets-sansio",
        ws_max_size=20 * 2**20,
        ws_per_message_deflate=False,
        access_log=False,
        server_header=False,
        log_config=None,
        timeout_graceful_shutdown=1,
        backlog=4096,
    )
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(uvicorn.Server(config).serve())


if __name__ == "__main__":
    _run(int(sys.argv[1]), Path(sys.argv[2]))
