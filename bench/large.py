"""By hand: an answer of 24 MB in one message, to an A2A client that reads 50 KB/s; what the server's process holds.

The peak falls into the turn and its end. For the long tail the reader is only watched for a while, then it hurries.
"""

import asyncio
import time

from bench.plan import Plan
from bench.processes import Process
from bench.report import MEBIBYTE
from bench.scene import Scene, a2a_asking, sessions

PIECE = 8_000
ANSWER = 24_000_000
PACE = 50_000
PAUSE = 0.02
LIMIT = 200


async def measure(scene: Scene) -> None:
    """The stage."""
    report = scene.report
    report.heading("A large answer to a slow A2A client")
    seconds = 20 if scene.is_quick else 120
    async with scene.ours() as ours:
        idle = ours.rss()
        [session] = await sessions(ours, 1)
        plan = Plan(ANSWER // PIECE, size=PIECE)
        watch = asyncio.create_task(_highest(ours))
        received = await _read(ours.port, a2a_asking(session, plan, "1.0"), seconds)
        watch.cancel()
        highest = await watch
    report.say(
        f"  {idle / MEBIBYTE:.0f} MiB idle, {highest / MEBIBYTE:.0f} MiB at most "
        f"while {received / 1e6:.0f} MB were read, {PACE / 1e3:.0f} KB/s of them for {seconds} s"
    )
    report.goal(
        "memory beside a slow reader of 24 MB",
        f"{highest / 1e6:.0f} MB",
        f"< {LIMIT} MB",
        is_met=highest < LIMIT * 1e6,
    )


async def _highest(server: Process) -> int:
    highest = 0
    try:
        while True:
            highest = max(highest, server.rss())
            await asyncio.sleep(PAUSE)
    except asyncio.CancelledError:
        return highest


async def _read(port: int, call: bytes, slow_for: float) -> int:
    """Read the whole stream; returns its bytes. Raises RuntimeError if it is not the whole answer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2**16)
    writer.write(call)
    hurry = time.monotonic() + slow_for
    received, tail = 0, b""
    while not tail.endswith(b"\r\n0\r\n\r\n"):
        is_slow = time.monotonic() < hurry
        data = await reader.read(int(PACE * PAUSE) if is_slow else 2**16)
        received += len(data)
        tail = tail[-16:] + data
        if not data:
            break
        if is_slow:
            await asyncio.sleep(PAUSE)
    writer.close()
    if received < ANSWER:
        raise RuntimeError(f"The stream ended after {received} bytes: {tail!r}")
    return received
