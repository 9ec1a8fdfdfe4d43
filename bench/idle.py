"""By hand: thousands of idle connections held for minutes, and as many readers that come back at once.

Heartbeats are due 15 seconds after the last byte; how late each is is measured at the client. A reader comes back with a
cursor in the middle of its session and has caught up when it has the last event.
"""

import asyncio
import time

import websockets
from websockets.asyncio.client import ClientConnection

from bench.client import Stream, Tally, request
from bench.plan import Plan
from bench.processes import Process
from bench.report import KIBIBYTE
from bench.scene import EVENTS_AROUND, Scene, asking, reading, sessions

SSE = 5_000
SOCKETS = 1_000
SESSIONS = 100
PING_INTERVAL = 15.0
READERS = 2_000
SPREAD = 2.0
DELTAS = 400


class Pinged(Stream):
    """Notes how long each silence was, in seconds."""

    def __init__(self, tally: Tally | None = None) -> None:
        super().__init__(tally)
        self.silences: list[float] = []
        self._last = 0.0

    def saw(self, data: bytes) -> None:
        now = time.monotonic()
        if b": ping" in data:
            self.silences.append(now - self._last)
        self._last = now


async def hold(scene: Scene) -> None:
    """The stage: idle connections for ten minutes (one, when quick)."""
    seconds = 60 if scene.is_quick else 600
    report = scene.report
    report.heading(f"{SSE} idle streams and {SOCKETS} idle sockets for {seconds} s")
    async with scene.ours() as ours:
        names = await sessions(ours, SESSIONS)
        before = ours.rss()
        streams = []
        for n in range(SSE):
            stream = await Pinged.connect(ours.port)
            stream.ask(reading(names[n % SESSIONS]))
            streams.append(stream)
        sockets = [await _join(ours, names[n % SESSIONS]) for n in range(SOCKETS)]
        await asyncio.sleep(2)
        grown = ours.rss() - before
        used = ours.used()
        await asyncio.sleep(seconds)
        share = ours.used().since(used).server / seconds
        dropped = sum(stream.ended.done() for stream in streams)
        dropped += sum(socket.close_code is not None for socket in sockets)
        late = sorted(silence - PING_INTERVAL for stream in streams for silence in stream.silences)
        for stream in streams:
            stream.close()
        await asyncio.gather(*(socket.close() for socket in sockets))
        report.say(f"  memory per connection: {grown / (SSE + SOCKETS) / KIBIBYTE:.1f} KiB")
        report.say(f"  {len(late)} heartbeats; server CPU {share:.0%} of a core")
        report.goal("idle connections dropped", str(dropped), "0", is_met=dropped == 0)
        p99 = late[int(len(late) * 0.99)] if late else float("inf")
        report.goal("heartbeats late, p99", f"{p99:.2f} s", "≤ 1 s after due", is_met=p99 <= 1.0)


async def storm(scene: Scene) -> None:
    """The stage: readers that come back within two seconds, to a server that has just started."""
    report = scene.report
    report.heading(f"{READERS} readers come back within {SPREAD:g} s of a restart")
    async with scene.ours() as ours:
        session = (await sessions(ours, 1))[0]
        turn = await Stream.connect(ours.port)
        turn.ask(asking(session, Plan(DELTAS)))
        await turn.ended
    middle = DELTAS // 2
    due = DELTAS + EVENTS_AROUND + 1 - middle
    raw = request("GET", f"/api/v1/sessions/events/stream?sessionId={session}&after={middle}")
    async with scene.ours() as ours:
        began = time.monotonic()
        caught_up = await asyncio.gather(*(_come_back(ours, raw, n, due) for n in range(READERS)))
        took = max(caught_up) - began
    report.goal("all caught up", f"{took:.1f} s", "≤ 15 s", is_met=took <= 15)


async def _come_back(ours: Process, raw: bytes, n: int, due: int) -> float:
    await asyncio.sleep(SPREAD * n / READERS)
    tally = Tally()
    stream = await Stream.connect(ours.port, tally)
    stream.ask(raw)
    await tally.reaches(due + 1)
    stream.close()
    return time.monotonic()


async def _join(ours: Process, session: str) -> ClientConnection:
    socket = await websockets.connect(
        f"ws://127.0.0.1:{ours.port}/ws", compression=None, ping_interval=None, max_queue=64
    )
    await socket.send(f'{{"type":"join_session","sessionId":"{session}"}}')
    await socket.recv()
    await socket.recv()
    return socket
