"""Pages of a long history: at place 100,000 a page must cost what the first one costs."""

import time

import orjson

from bench.client import Connection, Stream
from bench.plan import Plan
from bench.processes import Process
from bench.report import median, milliseconds
from bench.scene import Scene, asking, sessions

DEEP = 100_000
ALL = 150_000
PAGE = 100
NOTE = 120
LIMIT = 1.5


async def measure(scene: Scene) -> None:
    """The stage."""
    report = scene.report
    report.heading("A history page")
    async with scene.ours() as ours:
        session = (await sessions(ours, 1))[0]
        seconds = await _fill(ours, session)
        report.say(f"  a turn of {ALL:,} lasting events filled the session in {seconds:.1f} s")
        connection = await Connection.connect(ours.port)
        rows = []
        for by in ("offset", "after"):
            first, deep = await _pages(connection, session, by, 30 if scene.is_quick else 100)
            rows.append([by, milliseconds(first), milliseconds(deep), f"{deep / first:.2f}"])
            report.goal(
                f"page at place 100,000 by {by}, of the first page's time",
                f"{deep / first:.2f}",
                "≤ 1.5",
                is_met=deep <= LIMIT * first,
            )
        report.table("100 events by", "first page ms", "page at 100,000 ms", "ratio", rows=rows)
        connection.close()


async def _fill(ours: Process, session: str) -> float:
    stream = await Stream.connect(ours.port)
    stream.ask(asking(session, Plan(ALL, note_size=NOTE)))
    return await stream.ended - stream.sent


async def _pages(connection: Connection, session: str, by: str, times: int) -> tuple[float, float]:
    """The median seconds of the first page and of the deep one, asked for in turn."""
    taken: dict[int, list[float]] = {0: [], DEEP: []}
    for _ in range(times):
        for place, seconds in taken.items():
            began = time.perf_counter()
            page = await connection.ask(
                "GET", f"/api/v1/sessions/events?sessionId={session}&limit={PAGE}&{by}={place}"
            )
            seconds.append(time.perf_counter() - began)
            events = orjson.loads(page)["events"]
            assert len(events) == PAGE
            assert events[0]["id"].endswith(f"_{place + 1}")
    return median(taken[0]), median(taken[DEEP])
