"""The drill's readers: over SSE, `/ws` and history pages. Each comes back with its cursor after every cut.

A reader that loses its server goes to the next address. It ends when it is cancelled, or when the session is deleted.
"""

import asyncio
import json
import random
from collections.abc import Awaitable, Callable, Mapping

import httpx
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, WebSocketException

from app.drill.history import read_page
from app.drill.record import Record
from app.drill.web import CONNECT_TIMEOUT, Web

STREAM = "/api/v1/sessions/events/stream"
COMEBACK = 0.05
LOOK = 0.1
SHORTEST, LONGEST = 0.05, 0.6
TEMPORARY = (502, 503, 504)
CLOSED_BY_DRAIN = 1012

Read = Callable[[Web, str, Record], Awaitable[None]]


class _Refused(Exception):
    """The server answered, but not with events."""


async def follow(web: Web, record: Record, *, first: int = 0, restless: random.Random | None = None) -> None:
    """Read for ever, beginning at the `first` address. A restless reader cuts its own connections, too."""
    read = READERS[record.kind]
    turn = first
    while not record.is_gone:
        base = web.bases[turn % len(web.bases)]
        patience = restless.uniform(SHORTEST, LONGEST) if restless else None
        try:
            async with asyncio.timeout(patience):
                await read(web, base, record)
        except TimeoutError:
            continue
        except (httpx.HTTPError, WebSocketException, OSError, _Refused):
            turn += 1
            await asyncio.sleep(COMEBACK)


async def follow_once(web: Web, base: str, record: Record) -> None:
    """Read until the server closes the stream or the connection is lost."""
    try:
        await READERS[record.kind](web, base, record)
    except (httpx.HTTPError, WebSocketException, OSError, _Refused):
        return


async def _read_stream(web: Web, base: str, record: Record) -> None:
    params = {"sessionId": record.session_id, "after": record.cursor}
    async with web.client.stream("GET", base + STREAM, params=params, timeout=web.stream_timeout) as answer:
        if answer.is_error:
            await answer.aread()
            _refuse(record, answer.status_code, answer.text)
        record.connections += 1
        rest = b""
        is_told = False
        async for chunk in answer.aiter_raw():
            *blocks, rest = (rest + chunk).split(b"\n\n")
            for block in blocks:
                is_told = _take_block(record, block)
        record.farewells.append(is_told)


def _take_block(record: Record, block: bytes) -> bool:
    """Note the event of a frame; returns whether the frame only names the cursor."""
    fields = dict(line.split(b": ", 1) for line in block.split(b"\n") if b": " in line)
    if (event_id := fields.get(b"id")) is None:
        return False
    if (data := fields.get(b"data")) is None:
        record.cursor = event_id.decode()
        return b"retry" not in fields
    record.note(event_id.decode(), data)
    return False


async def _read_socket(web: Web, base: str, record: Record) -> None:
    async with connect(
        base.replace("http", "ws", 1) + "/ws",
        additional_headers=dict(web.headers),
        max_size=None,
        open_timeout=CONNECT_TIMEOUT,
        close_timeout=0.1,
        proxy=None,
    ) as socket:
        joining = {"type": "join_session", "sessionId": record.session_id, "after": record.cursor}
        await socket.send(json.dumps(joining))
        record.connections += 1
        try:
            while True:
                async with asyncio.timeout(web.silence):
                    _take_message(record, str(await socket.recv()))
        except TimeoutError:
            raise OSError("the socket is silent") from None
        except ConnectionClosed as closed:
            if closed.rcvd is not None:
                record.farewells.append(closed.rcvd.code == CLOSED_BY_DRAIN)
            raise


def _take_message(record: Record, text: str) -> None:
    message = json.loads(text)
    if not message["id"].startswith("ctl_") and "~" not in message["id"]:
        record.note(message["id"], text.encode())
    elif message["type"] == "error":
        status = 404 if message["data"]["code"] in ("session_deleted", "session_not_found") else 503
        _refuse(record, status, text)


async def _read_pages(web: Web, base: str, record: Record) -> None:
    while True:
        try:
            events, _ = await read_page(web, base, record.session_id, record.cursor)
        except httpx.HTTPStatusError as error:
            _refuse(record, error.response.status_code, error.response.text)
            raise
        if record.connections == 0:
            record.connections = 1
        for event in events:
            record.note(json.loads(event)["id"], event)
        if not events:
            await asyncio.sleep(LOOK)


def _refuse(record: Record, status: int, text: str) -> None:
    """Raises `_Refused`, once it is noted what the answer means."""
    if status == 404:
        record.is_gone = True
    elif status not in TEMPORARY:
        record.trouble.append(f"{status} {text[:200]}")
    raise _Refused(text[:200])


READERS: Mapping[str, Read] = {"sse": _read_stream, "ws": _read_socket, "history": _read_pages}
