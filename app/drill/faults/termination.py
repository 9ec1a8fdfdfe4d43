"""F10: SIGTERM while many streams are open and turns run: exit in time, every stream told its cursor, every turn ended."""

import asyncio

from app.drill.findings import Findings
from app.drill.readers import follow_once
from app.drill.record import Record
from app.drill.replica import GRACE
from app.drill.scene import Expected, Load, Scene
from app.drill.stage import Stage

TOO_LATE = GRACE + 2
TURNS_OUTLAST_THE_GRACE = "2000 5"
ENDED = Expected(("completed", "aborted"))


async def terminate(stage: Stage, findings: Findings) -> None:
    """One round: one of the replicas is stopped, the other goes on."""
    streams = 60 if stage.is_short else 1000
    load = Load(sessions=6 if stage.is_short else 20, prompt=TURNS_OUTLAST_THE_GRACE, kinds=("sse", "ws"))
    replica = stage.replicas[0]
    async with stage.scene(findings, load, ENDED) as scene:
        records, reading = await _open(scene, replica.base, streams)
        await stage.pause(0.3, 1)
        code, took = await replica.terminate()
        await asyncio.gather(*reading)
        _judge_stop(findings, code, took)
        untold = sum(record.farewells != [True] for record in records)
        if untold:
            findings.add("I8", f"{untold} of {streams} streams were closed without being told their cursor")
        for session_id in scene.sessions[1::2]:
            await scene.asker.abort(stage.replicas[1].base, session_id)
    findings.checked.add("I6")
    findings.notes.append(f"{streams} streams; exit {code} after {took:.1f} s of {GRACE:g} s")
    await stage.start(findings)


def _judge_stop(findings: Findings, code: int, took: float) -> None:
    if code != 0:
        findings.add("I8", f"the server stopped with {code}")
    if took > TOO_LATE:
        findings.add("I6", f"the server took {took:.1f} s to stop")


async def _open(scene: Scene, base: str, count: int) -> tuple[list[Record], list["asyncio.Task[None]"]]:
    """So many streams that end when the server stops, once all are open."""
    kinds = ("sse", "ws")
    records = [Record(scene.sessions[n % len(scene.sessions)], kinds[n % len(kinds)]) for n in range(count)]
    reading = [asyncio.create_task(follow_once(scene.web, base, record)) for record in records]
    async with asyncio.timeout(20):
        await asyncio.gather(*(record.reaches(1) for record in records))
    return records, reading
