"""Turns of 1,000 deltas, as fast as they go: events a second, processor time for each, time to the first event."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from bench.client import Stream, request
from bench.plan import Plan
from bench.processes import NOTHING, Process, Used
from bench.report import Report, median, micros, milliseconds, percentile, thousands
from bench.scene import BURST_DELTAS, Scene, a2a_asking, asking, sessions, undisturbed

ROUNDS = {1: 20, 20: 4, 100: 1}
"""For so many turns at once, how many rounds make one repetition."""

Requests: TypeAlias = Callable[[int], Awaitable[list[bytes]]]


@dataclass(slots=True)
class Taken:
    """What the rounds of one server took."""

    rates: list[float] = field(default_factory=list)
    first: list[float] = field(default_factory=list)
    events: int = 0
    used: Used = NOTHING

    def row(self, name: str) -> list[str]:
        used, events = self.used, self.events
        return [
            name,
            thousands(median(self.rates)),
            micros(used.server, events),
            micros(used.postgres, events) if used.postgres else "-",
            micros(used.client, events),
            milliseconds(percentile(self.first, 50), percentile(self.first, 99)),
        ]


async def measure(scene: Scene) -> None:
    """The stage."""
    report = scene.report
    report.heading("Turns of 1,000 deltas")
    report.say(
        "The agent awaits asyncio.sleep(0) after each delta. The bare app sends the same bytes, one send a frame, "
        "without a yield; its second row yields as the agent does. CPU is µs per event."
    )
    repetitions, part = (2, 2) if scene.is_quick else (5, 1)
    async with scene.both() as (ours, bare):

        async def turns(count: int) -> list[bytes]:
            return [asking(session, Plan(BURST_DELTAS)) for session in await sessions(ours, count)]

        async def tasks(count: int) -> list[bytes]:
            return [a2a_asking(session, Plan(BURST_DELTAS)) for session in await sessions(ours, count)]

        async def plain(count: int) -> list[bytes]:
            return [request("POST", "/turn")] * count

        async def yielding(count: int) -> list[bytes]:
            return [request("POST", "/turn?yield")] * count

        for at_once, rounds in ROUNDS.items():
            variants: list[tuple[Process, Requests, Taken]] = [
                (ours, turns, Taken()),
                (ours, tasks, Taken()),
                (bare, plain, Taken()),
                (bare, yielding, Taken()),
            ]
            for _ in range(repetitions):
                for server, requests, taken in variants:
                    await _repeat(server, requests, taken, at_once, max(1, rounds // part))
            _tell(report, at_once, [taken for _, _, taken in variants])


def _tell(report: Report, at_once: int, found: Sequence[Taken]) -> None:
    report.table(
        f"{at_once} at once",
        "events/s",
        "server CPU",
        "Postgres CPU",
        "client CPU",
        "first event p50/p99 ms",
        rows=[
            taken.row(name)
            for name, taken in zip(
                ("ours, durable", "ours, A2A", "bare", "bare, yielding"), found, strict=True
            )
        ],
    )
    ratio = median(found[0].rates) / median(found[2].rates)
    tarko, a2a = (taken.used.server / taken.events for taken in found[:2])
    report.goal(
        f"{at_once} at once, CPU of an A2A event by one of ours",
        f"{a2a / tarko:.2f}",
        "≤ 2",
        is_met=a2a <= 2 * tarko,
    )
    if at_once == 20:
        report.say(f"  ours / bare: {ratio:.0%}")
    else:
        report.goal(
            f"{at_once} turn{'s' if at_once > 1 else ''}, events/s of the bare app's",
            f"{ratio:.0%}",
            "≥ 50 %",
            is_met=ratio >= 0.5,
        )


async def _repeat(server: Process, requests: Requests, taken: Taken, at_once: int, rounds: int) -> None:
    raw = await requests(at_once * rounds)
    with undisturbed():
        for number in range(rounds):
            await _round(server, raw[number * at_once : (number + 1) * at_once], taken)


async def _round(server: Process, raw: Sequence[bytes], taken: Taken) -> None:
    streams = [await Stream.connect(server.port) for _ in raw]
    before = server.used()
    for stream, question in zip(streams, raw, strict=True):
        stream.ask(question)
    ends = await asyncio.gather(*(stream.ended for stream in streams))
    taken.used = taken.used.plus(server.used().since(before))
    events = sum(stream.events for stream in streams)
    taken.events += events
    taken.rates.append(events / (max(ends) - streams[0].sent))
    taken.first += [stream.first - stream.sent for stream in streams]
