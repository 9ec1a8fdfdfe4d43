"""A thousand readers of one session: deliveries, memory for an idle one, and one that stops reading."""

import asyncio
import time
from collections.abc import Sequence

from bench.client import Stream, Tally, request
from bench.plan import Plan
from bench.processes import Process, Used
from bench.report import KIBIBYTE, MEBIBYTE, micros, thousands
from bench.scene import EVENTS_AROUND, Scene, asking, readers, reading, sessions, soon, undisturbed

READERS = 1000
STOPPED = 10
TICK = 0.02
PIECE = 64 * 1024
LIMIT = 40 * KIBIBYTE


async def measure(scene: Scene) -> None:
    """The stage."""
    report = scene.report
    report.heading("1,000 readers of one session")
    ticks = 32 if scene.is_quick else 100
    async with scene.both() as (ours, bare):
        session = (await sessions(ours, 1))[0]
        await _say(ours, session, Plan(10))
        one, many = Plan(ticks, TICK), Plan(16 * ticks // 4, TICK, per_tick=16)
        idle, rows = {}, {}
        for name, server, raw in (
            ("ours", ours, reading(session)),
            ("bare", bare, request("GET", "/reader")),
        ):
            tally, speaking = Tally(), session if server is ours else None
            streams, idle[name] = await _open(server, raw, tally)
            for load, plan in (("1 each 20 ms", one), ("16 each 20 ms", many)):
                rows[load, name] = await _deliver(server, speaking, plan, tally)
            _close(streams)
        report.table(
            "events",
            "server",
            "deliveries/s",
            "server CPU",
            "Postgres CPU",
            "client CPU",
            rows=[[*key, *row] for key, row in sorted(rows.items(), key=lambda item: len(item[0][0]))],
        )
        report.say("  CPU is µs per delivery. 50 k deliveries/s are offered by 1 each 20 ms, 800 k by 16.")
        report.say(f"  memory per idle reader of the bare app: {idle['bare'] / KIBIBYTE:.1f} KiB")
        report.goal(
            "memory per idle reader",
            f"{idle['ours'] / KIBIBYTE:.1f} KiB",
            "≤ 40 KiB",
            is_met=idle["ours"] <= LIMIT,
        )
        await _stall(scene, ours)


async def _open(server: Process, raw: bytes, tally: Tally) -> tuple[list[Stream], float]:
    """Open the readers; how much memory each takes, in bytes.

    That is what a second thousand adds: the first one may find room that the start has left.
    """
    streams = await readers(server, READERS, raw, tally)
    await asyncio.sleep(0.5)
    before = server.rss()
    more = await readers(server, READERS, raw, Tally())
    await asyncio.sleep(0.5)
    each = (server.rss() - before) / READERS
    _close(more)
    await asyncio.sleep(0.5)
    return streams, each


async def _deliver(server: Process, session: str | None, plan: Plan, tally: Tally) -> list[str]:
    """Have the plan said, in our session or by the bare app; a row of what it took."""
    begin = soon(0.3)
    plan = Plan(plan.count, plan.tick, plan.per_tick, begin)
    if session is None:
        deliveries, raw = plan.count * READERS, request("POST", "/broadcast", plan.text().encode())
    else:
        deliveries, raw = (plan.count + EVENTS_AROUND) * READERS, asking(session, plan)
    target = tally.frames + deliveries
    speaker = await Stream.connect(server.port)
    with undisturbed():
        before = server.used()
        speaker.ask(raw)
        await tally.reaches(target)
        seconds = (time.monotonic_ns() - begin) / 1e9
        used = server.used().since(before)
    speaker.close()
    return _row(deliveries, seconds, used)


def _row(deliveries: int, seconds: float, used: Used) -> list[str]:
    return [
        thousands(deliveries / seconds),
        micros(used.server, deliveries),
        micros(used.postgres, deliveries) if used.postgres else "-",
        micros(used.client, deliveries),
    ]


async def _stall(scene: Scene, ours: Process) -> None:
    """The same flow twice: alone, and beside readers that have stopped reading.

    One that has stopped may keep what was being sent to it, which is a page, but not what comes after.
    """
    megabytes = 24 if scene.is_quick else 200
    plan = Plan(megabytes * MEBIBYTE // PIECE, note_size=PIECE)
    session = (await sessions(ours, 1))[0]
    alone = await _peak(ours, session, plan)
    stopped = [await Stream.connect(ours.port) for _ in range(STOPPED)]
    for stream in stopped:
        assert stream.transport is not None
        stream.transport.pause_reading()
        stream.ask(reading(session, "&from=now"))
    await asyncio.sleep(0.2)
    beside = await _peak(ours, session, plan)
    _close(stopped)
    each = max(0, beside - alone) / STOPPED / MEBIBYTE
    scene.report.say(
        f"  {megabytes} MiB through one session: the server holds {alone / MEBIBYTE:.0f} MiB at most, and "
        f"{beside / MEBIBYTE:.0f} MiB beside {STOPPED} readers that have stopped reading"
    )
    scene.report.goal(
        f"memory for a stopped reader that has missed {megabytes} MiB",
        f"{each:.1f} MiB",
        "≤ 16 MiB",
        is_met=each <= 16,
    )


async def _peak(ours: Process, session: str, plan: Plan) -> int:
    """The most memory that the server held while the plan was said."""
    most = ours.rss()
    stream = await Stream.connect(ours.port)
    stream.ask(asking(session, plan))
    while not stream.ended.done():
        await asyncio.wait([stream.ended], timeout=0.05)
        most = max(most, ours.rss())
    stream.ended.result()
    return most


async def _say(ours: Process, session: str, plan: Plan) -> None:
    stream = await Stream.connect(ours.port)
    stream.ask(asking(session, plan))
    await stream.ended


def _close(streams: Sequence[Stream]) -> None:
    for stream in streams:
        stream.close()
