"""Turns that say a token every 20 ms: how old an event is when its reader has it.

An event is stamped as the agent yields it and again as the client's socket hands it over, by one clock.
"""

import asyncio
import time
from dataclasses import dataclass, field

from bench.client import Stopwatch, request
from bench.plan import Plan
from bench.processes import NOTHING, Process, Used
from bench.report import Report, micros, milliseconds, percentile
from bench.scene import Scene, asking, sessions, soon, undisturbed

TICK = 0.02
GOALS = {20: (0.003, 0.008), 100: (None, 0.015), 400: (None, 0.040)}


@dataclass(slots=True)
class Taken:
    """What the turns of one server took. Ages are seconds."""

    ages: list[float] = field(default_factory=list)
    events: int = 0
    used: Used = NOTHING
    late: float = 0.0
    unready: int = 0

    def row(self, name: str) -> list[str]:
        used = self.used
        return [
            name,
            milliseconds(percentile(self.ages, 50), percentile(self.ages, 99), max(self.ages)),
            micros(used.server, self.events),
            micros(used.postgres, self.events) if used.postgres else "-",
            micros(used.client, self.events),
            f"{self.late * 1000:.0f}",
        ]


async def measure(scene: Scene) -> None:
    """The stage."""
    report = scene.report
    report.heading("A token every 20 ms")
    report.say(
        "Each turn begins at a random part of a tick. `late`: how much longer than asked the turns took; CPU is µs per event."
    )
    deltas, repetitions = (50, 1) if scene.is_quick else (125, 2)
    async with scene.both() as (ours, bare):
        await _run(ours, 5, 10, Taken(), is_ours=True)
        for turns in GOALS:
            found = (Taken(), Taken())
            for _ in range(repetitions):
                await _run(ours, turns, deltas, found[0], is_ours=True)
                await _run(bare, turns, deltas, found[1], is_ours=False)
            _tell(report, turns, *found)


def _tell(report: Report, turns: int, ours: Taken, bare: Taken) -> None:
    report.table(
        f"{turns} turns",
        "age p50/p99/max ms",
        "server CPU",
        "Postgres CPU",
        "client CPU",
        "late ms",
        rows=[ours.row("ours, durable"), bare.row("bare")],
    )
    if ours.unready:
        report.say(
            f"  [yellow]{ours.unready} turns began late: the machine was too busy to start them in time[/]"
        )
    for percent, limit in zip((50, 99), GOALS[turns], strict=True):
        if limit is not None:
            age = percentile(ours.ages, percent)
            report.goal(
                f"{turns} live turns, age p{percent}",
                f"{milliseconds(age)} ms",
                f"≤ {limit * 1000:.0f} ms",
                is_met=age <= limit,
            )


async def _run(server: Process, turns: int, deltas: int, taken: Taken, *, is_ours: bool) -> None:
    names = await sessions(server, turns) if is_ours else []
    begin = soon(0.5 + turns * (0.005 if is_ours else 0.002))
    plan = Plan(deltas, tick=TICK, begin=begin, stamped=True)
    raw = [asking(session, plan) for session in names]
    raw = raw or [request("POST", "/live", plan.text().encode())] * turns
    streams = []
    for question in raw:
        stream = await Stopwatch.connect(server.port)
        stream.ask(question)
        streams.append(stream)
    with undisturbed():
        await asyncio.sleep((begin - time.monotonic_ns()) / 1e9 - 0.05)
        taken.unready += sum(stream.frames == 0 for stream in streams)
        before = server.used()
        await asyncio.gather(*(stream.ended for stream in streams))
        taken.used = taken.used.plus(server.used().since(before))
    taken.late = max(taken.late, (time.monotonic_ns() - begin) / 1e9 - deltas * TICK)
    taken.events += sum(len(stream.ages) for stream in streams)
    taken.ages += [age / 1e9 for stream in streams for age in stream.ages]
