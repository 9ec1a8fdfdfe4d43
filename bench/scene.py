"""What every stage plays on: a temporary place, both servers, and the ways to ask ours for something."""

import asyncio
import gc
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path

import orjson

from bench.client import Connection, Recorder, Stream, Tally, request
from bench.plan import Plan
from bench.processes import Process, running
from bench.report import Report

BURST_DELTAS = 1000
EVENTS_AROUND = 5
"""Of a turn of text: what the user said, its start; the message's start and close; its end."""


class Scene:
    """Where the stages are measured. `is_quick`: fewer repetitions, shorter turns."""

    def __init__(self, place: Path, report: Report, *, is_quick: bool) -> None:
        self.place = place
        self.report = report
        self.is_quick = is_quick

    @asynccontextmanager
    async def ours(self) -> AsyncIterator[Process]:
        """Our server, fresh, over the bench's database."""
        async with running("ours", "bench.server", self.place) as ours:
            yield ours

    @asynccontextmanager
    async def bare(self) -> AsyncIterator[Process]:
        """The bare app, fresh."""
        async with running("bare", "bench.bare", self.place) as bare:
            yield bare

    @asynccontextmanager
    async def both(self) -> AsyncIterator[tuple[Process, Process]]:
        """Both, at once."""
        async with AsyncExitStack() as stack:
            yield await stack.enter_async_context(self.ours()), await stack.enter_async_context(self.bare())

    async def record(self) -> None:
        """Take from our server the bytes that the bare app is to stream."""
        plans = {"turn": Plan(BURST_DELTAS), "live": Plan(3, tick=0.02, stamped=True)}
        directory = self.place / "bare"
        directory.mkdir()
        async with self.ours() as ours:
            session = (await sessions(ours, 1))[0]
            for name, plan in plans.items():
                reader = await Recorder.connect(ours.port)
                reader.ask(reading(session))
                turn = await Recorder.connect(ours.port)
                turn.ask(asking(session, plan))
                await turn.ended
                (directory / f"{name}.sse").write_bytes(turn.body())
                (directory / "reader.sse").write_bytes(reader.whole_frames())
                reader.close()


@contextmanager
def scene(report: Report, *, is_quick: bool) -> Iterator[Scene]:
    """A scene in a temporary directory, which goes when the block ends."""
    place = Path(tempfile.mkdtemp(prefix="tarko-bench-"))
    place.chmod(0o711)  # for root, PostgreSQL runs as somebody else and must get through
    try:
        yield Scene(place, report, is_quick=is_quick)
    finally:
        shutil.rmtree(place, ignore_errors=True)


async def sessions(ours: Process, count: int) -> list[str]:
    """New sessions of our server."""
    waiting = iter(range(count))
    made: list[str] = []

    async def make() -> None:
        connection = await Connection.connect(ours.port)
        for _ in waiting:
            answer = await connection.ask("POST", "/api/v1/sessions/create")
            made.append(orjson.loads(answer)["sessionId"])
        connection.close()

    await asyncio.gather(*(make() for _ in range(min(count, 10))))
    return made


def asking(session: str, plan: Plan) -> bytes:
    """The request that starts a turn and streams it."""
    return request("POST", "/api/v1/sessions/query/stream", {"sessionId": session, "query": plan.text()})


def a2a_asking(session: str, plan: Plan, version: str = "0.3") -> bytes:
    """The same over A2A."""
    message = {"messageId": session, "contextId": session}
    if version == "0.3":
        method = "message/stream"
        message |= {"role": "user", "parts": [{"kind": "text", "text": plan.text()}]}
    else:
        method = "SendStreamingMessage"
        message |= {"role": "ROLE_USER", "parts": [{"text": plan.text()}]}
    call = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {"message": message}}
    return request("POST", "/a2a", call, f"a2a-version: {version}")


def reading(session: str, parameters: str = "") -> bytes:
    """The request of a reader."""
    return request("GET", f"/api/v1/sessions/events/stream?sessionId={session}{parameters}")


async def readers(server: Process, count: int, raw: bytes, tally: Tally) -> list[Stream]:
    """So many open streams, each of which has its opening frame."""
    before, streams = tally.frames, []
    for number in range(1, count + 1):
        stream = await Stream.connect(server.port, tally)
        stream.ask(raw)
        streams.append(stream)
        if number % 50 == 0 or number == count:
            await tally.reaches(before + number)
    return streams


def soon(seconds: float) -> int:
    """A moment for a plan to begin at."""
    return time.monotonic_ns() + int(seconds * 1e9)


@contextmanager
def undisturbed() -> Iterator[None]:
    """Without the client's own garbage collection."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
