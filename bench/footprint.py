"""What the server takes before and beside its work: start, memory, short requests."""

import asyncio
import time

from bench.client import Connection, Stream, Tally, request
from bench.plan import Plan
from bench.processes import Process
from bench.report import KIBIBYTE, MEBIBYTE, micros
from bench.scene import Scene, readers, reading, sessions

IDLE = 500
WARM = 250
AT_ONCE = 10


async def measure(scene: Scene) -> None:
    """The stage."""
    report = scene.report
    report.heading("Start, memory, short requests")
    seconds = 0.7 if scene.is_quick else 3.0
    rows = []
    async with scene.both() as (ours, bare):
        report.say(
            f"  start to ready: {ours.ready_after:.2f} s with its database (bare: {bare.ready_after:.2f} s); memory: "
            f"{ours.rss() / MEBIBYTE:.0f} MiB and PostgreSQL {ours.database_memory() / MEBIBYTE:.0f} MiB "
            f"(bare: {bare.rss() / MEBIBYTE:.0f} MiB)"
        )
        create = request("POST", "/api/v1/sessions/create")
        rows.append(["create a session", *await _asked(ours, [create] * AT_ONCE, seconds)])
        rows.append(["short query, blocking", *await _asked(ours, await _queries(ours), seconds)])
        rows.append(["bare app, one small answer", *await _asked(bare, [create] * AT_ONCE, seconds)])
        report.table(
            "10 at once", "requests/s", "server CPU µs", "Postgres CPU µs", "client CPU µs", rows=rows
        )
    async with scene.ours() as ours:
        report.say(
            f"  memory per idle stream, each of a session of its own: {await _idle(ours) / KIBIBYTE:.1f} KiB"
        )


async def _queries(ours: Process) -> list[bytes]:
    query = Plan(1).text()

    def of(session: str) -> bytes:
        return request("POST", "/api/v1/sessions/query", {"sessionId": session, "query": query})

    return [of(session) for session in await sessions(ours, AT_ONCE)]


async def _asked(server: Process, questions: list[bytes], seconds: float) -> list[str]:
    """Ask on a connection each, one question after the other."""
    connections = [await Connection.connect(server.port) for _ in questions]
    end = time.perf_counter() + seconds
    count = 0

    async def ask(connection: Connection, question: bytes) -> None:
        nonlocal count
        while time.perf_counter() < end:
            await connection.ask_raw(question)
            count += 1

    before, began = server.used(), time.perf_counter()
    await asyncio.gather(*map(ask, connections, questions))
    taken, used = time.perf_counter() - began, server.used().since(before)
    for connection in connections:
        connection.close()
    return [
        f"{count / taken:,.0f}",
        micros(used.server, count),
        micros(used.postgres, count) if used.postgres else "-",
        micros(used.client, count),
    ]


async def _idle(ours: Process) -> float:
    """Bytes for each stream, its session's live log included, after some that take what room the start has left."""
    names = await sessions(ours, IDLE + WARM)
    streams: list[Stream] = []
    for name in names[IDLE:]:
        streams += await readers(ours, 1, reading(name), Tally())
    await asyncio.sleep(0.5)
    before = ours.rss()
    for name in names[:IDLE]:
        streams += await readers(ours, 1, reading(name), Tally())
    await asyncio.sleep(0.5)
    grown = ours.rss() - before
    for stream in streams:
        stream.close()
    return grown / IDLE
