"""F7: readers that never read, or a kilobyte a second, while a session says megabytes.

They must cost the server bounded memory and be let go; the others must get everything, as fast as before. So the same
load is played twice, without and with them.
"""

import asyncio
import contextlib
import json
import socket
import time
from collections.abc import AsyncIterator, Sequence
from urllib.parse import urlsplit

from app.drill.findings import Findings
from app.drill.record import Record
from app.drill.replica import Replica
from app.drill.scene import Expected, Load, Scene
from app.drill.stage import Stage
from app.drill.web import Web

EACH_MAY_COST = 2 * 2**20
ALL_MAY_COST = 48 * 2**20
LET_GO = 30.0
SPARE_FILES = 12
LOOK = 0.1
SIP = 1024
RECEIVE_BUFFER = 4096
BIG = "120 10 40000"
LOAD = Load(sessions=3, prompt="120 10")
UNHARMED = Expected(("completed",), agents_live=True)


async def read_slowly(stage: Stage, findings: Findings) -> None:
    """One round."""
    count = 10 if stage.is_short else 40
    replica = stage.replicas[0]
    files = replica.files
    calm, _ = await _play(stage, findings, 0)
    rss = replica.rss
    busy, peak = await _play(stage, findings, count)
    findings.checked.add("I6")
    findings.figures.largest_rss = max(findings.figures.largest_rss, peak)
    if peak - rss > count * EACH_MAY_COST + ALL_MAY_COST:
        findings.add("I6", f"{count} slow readers cost {(peak - rss) / 2**20:.0f} MiB")
    await _until_let_go(replica, files, findings)
    findings.notes.append(
        f"p99 of the others' latency {calm:.0f} ms without and {busy:.0f} ms with {count} slow readers "
        f"({busy / max(calm, 0.1):.2f} times); RSS grew by {(peak - rss) / 2**20:.0f} MiB"
    )


async def _play(stage: Stage, findings: Findings, count: int) -> tuple[float, int]:
    """The 99th percentile of the others' latency in ms, and the server's peak of memory."""
    replica = stage.replicas[0]
    async with stage.scene(findings, LOAD, UNHARMED) as scene:
        session_id = await scene.asker.create(replica.base)
        scene.sessions.append(session_id)
        scene.read(Record(session_id, "sse"))
        others = len(scene.records) - 1
        async with slow_readers(scene.web, replica.base, session_id, count):
            telling = scene.ask(session_id, BIG)
            peak = await _peak_until(telling, replica)
    return latency(scene, scene.records[:others]), peak


async def _peak_until(done: "asyncio.Task[object]", replica: Replica) -> int:
    peak = replica.rss
    while not done.done():
        await asyncio.wait([done], timeout=LOOK)
        peak = max(peak, replica.rss)
    return peak


async def _until_let_go(replica: Replica, files: int, findings: Findings) -> None:
    began = time.monotonic()
    while replica.files > files + SPARE_FILES:
        if time.monotonic() > began + LET_GO:
            findings.add("I6", f"{replica.name} keeps {replica.files} descriptors; it had {files}")
            return
        await asyncio.sleep(LOOK)


@contextlib.asynccontextmanager
async def slow_readers(web: Web, base: str, session_id: str, count: int) -> AsyncIterator[None]:
    """So many slow readers of a session in the block; every other one sips."""
    target = urlsplit(base)
    headers = "".join(f"{name}: {value}\r\n" for name, value in web.headers.items())
    request = (
        f"GET /api/v1/sessions/events/stream?sessionId={session_id} HTTP/1.1\r\nHost: {target.netloc}\r\n{headers}\r\n"
    ).encode()
    connections = [await _connect(str(target.hostname), target.port or 80, request) for _ in range(count)]
    sipping = asyncio.create_task(_sip(connections[::2]), name="slow readers")
    try:
        yield
    finally:
        sipping.cancel()
        await asyncio.gather(sipping, return_exceptions=True)
        for connection in connections:
            connection.close()


async def _connect(host: str, port: int, request: bytes) -> socket.socket:
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER)
    connection.settimeout(0)
    loop = asyncio.get_running_loop()
    await loop.sock_connect(connection, (host, port))
    await loop.sock_sendall(connection, request)
    return connection


async def _sip(connections: Sequence[socket.socket]) -> None:
    while True:
        await asyncio.sleep(1)
        for connection in connections:
            with contextlib.suppress(OSError):
                connection.recv(SIP)


def latency(scene: Scene, records: Sequence[Record]) -> float:
    """The 99th percentile, in ms, of the time between an event's stamp and its arrival at these live readers."""
    stamps = {
        event["id"]: event["timestamp"] for log in scene.logs.values() for event in map(json.loads, log)
    }
    late = sorted(
        seen.at - stamps[seen.id]
        for record in records
        if record.kind != "history"
        for seen in record.seen
        if seen.id in stamps
    )
    return float(late[len(late) * 99 // 100]) if late else 0.0
