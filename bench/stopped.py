"""By hand: a reader's process and an agent's process stand still (SIGSTOP); how old the events of the others become.

Twenty turns say a token every 20 ms to readers of their own. Beside them a reader in a process of its own follows a
session that carries much, and an agent passes on what a process of its own says. Rounds with both running and rounds
with both stopped take turns, so that the machine's own moods fall on both.
"""

import asyncio
import os
import signal
import subprocess
import sys
import time

import orjson

from bench.client import Recorder, Stopwatch, Stream
from bench.plan import Plan
from bench.processes import ROOT, Process
from bench.report import milliseconds, percentile
from bench.scene import Scene, asking, reading, sessions, soon, undisturbed

TURNS = 20
TICK = 0.02
NOTE = 16 * 1024
LIMIT = 1.2
SETTLE = 0.5

READER = """
import socket, sys
with socket.create_connection(("127.0.0.1", int(sys.argv[1]))) as stream:
    stream.sendall(sys.stdin.buffer.read())
    while stream.recv(65536):
        pass
"""


async def measure(scene: Scene) -> None:
    """The stage."""
    report = scene.report
    report.heading("A reader's and an agent's process that stand still")
    rounds, deltas = (2, 100) if scene.is_quick else (8, 250)
    calm: list[float] = []
    beside: list[float] = []
    async with scene.ours() as ours:
        await _round(ours, deltas, stops=False)
        for _ in range(rounds):
            calm += await _round(ours, deltas, stops=False)
            beside += await _round(ours, deltas, stops=True)
    for name, ages in (("all run", calm), ("two stand still", beside)):
        report.say(
            f"  {name}: age p50/p99/max {milliseconds(percentile(ages, 50), percentile(ages, 99), max(ages))} ms"
        )
    ratio = percentile(beside, 99) / percentile(calm, 99)
    report.goal(
        "others' p99 beside stopped processes", f"{ratio:.2f} of it", f"≤ {LIMIT}", is_met=ratio <= LIMIT
    )


async def _round(ours: Process, deltas: int, *, stops: bool) -> list[float]:
    """The ages, in seconds, of what the turns said while the two processes ran, or stood still."""
    heavy, through, *names = await sessions(ours, TURNS + 2)
    begin = soon(1.5)
    seconds = 1.5 + SETTLE + deltas * TICK
    reader = _reader(ours, heavy)
    notes = await Stream.connect(ours.port)
    notes.ask(asking(heavy, Plan(round(seconds / TICK), TICK, note_size=NOTE)))
    passed_on = await Recorder.connect(ours.port)
    passed_on.ask(asking(through, Plan(round(seconds / TICK), TICK, in_child=True)))
    child = await _child_of(passed_on)
    streams = []
    for name in names:
        stream = await Stopwatch.connect(ours.port)
        stream.ask(asking(name, Plan(deltas, TICK, begin=begin, stamped=True)))
        streams.append(stream)
    stopped = (reader.pid, child) if stops else ()
    with undisturbed():
        for pid in stopped:
            os.kill(pid, signal.SIGSTOP)
        await asyncio.gather(*(stream.ended for stream in streams))
        for pid in stopped:
            os.kill(pid, signal.SIGCONT)
    await asyncio.gather(notes.ended, passed_on.ended)
    reader.kill()
    reader.wait()
    return [age / 1e9 for stream in streams for age in stream.ages]


def _reader(ours: Process, session: str) -> "subprocess.Popen[bytes]":
    reader = subprocess.Popen(  # noqa: S603 - our own text
        [sys.executable, "-c", READER, str(ours.port)], cwd=ROOT, stdin=subprocess.PIPE
    )
    assert reader.stdin is not None
    reader.stdin.write(reading(session))
    reader.stdin.close()
    return reader


async def _child_of(turn: Recorder) -> int:
    """The process that the agent of this turn passes on, as its first event tells."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        for line in turn.whole_frames().splitlines() if turn.raw else ():
            if line.startswith(b"data:") and b'"child"' in line:
                return int(orjson.loads(line[5:])["data"]["pid"])
        await asyncio.sleep(0.01)
    raise RuntimeError("the agent told no process")
