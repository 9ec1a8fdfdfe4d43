"""Replicas for tests: two in the test's own loop, or servers in processes of their own."""

import asyncio
import os
import re
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import asyncpg

from tests.server import Client, Scripted, Serving, serving, soon, until

ROOT = Path(__file__).parents[2]
STARTS = 60.0
PATIENCE = 60.0
SERVE = "import sys; from app.serving import serve; from app.settings import Settings; sys.exit(serve(Settings()))"
ADDRESS = re.compile(rb"http://127\.0\.0\.1:(\d+)")
# One that has listened for a while is asked now and then whether it is alive.
LISTENERS = """
SELECT pid FROM pg_stat_activity
WHERE datname = current_database() AND (query LIKE 'LISTEN%' OR query = 'SELECT 1') AND state = 'idle'"""
# A database that has just come back judges nobody for ten seconds.
IS_OLD_ENOUGH = "SELECT pg_postmaster_start_time() < now() - interval '10 seconds'"

Found = TypeVar("Found")


async def poll(look: Callable[[], Awaitable[Found]], holds: Callable[[Found], bool] = bool) -> Found:
    """Look until it holds, for what nobody announces; returns what was found."""
    async with asyncio.timeout(PATIENCE):
        while True:
            found = await look()
            if holds(found):
                return found
            await asyncio.sleep(0.02)


async def ask(url: str, query: str, *arguments: object) -> list[Any]:
    """The first column of what the database answers."""
    connection = await asyncpg.connect(url)
    try:
        return [row[0] for row in await connection.fetch(query, *arguments)]
    finally:
        await connection.close()


async def wait_for(url: str, query: str, *arguments: object, answers: object = True) -> None:
    """Look until the database answers so."""
    await poll(lambda: ask(url, query, *arguments), lambda found: found == [answers])


@dataclass(frozen=True)
class Pair:
    """Clients of two replicas on one database, which serve the same agent and know of each other."""

    one: Client
    two: Client
    agent: Scripted
    url: str
    listeners: tuple[int, int]


@asynccontextmanager
async def pair_of_replicas(url: str, **settings: Any) -> AsyncIterator[Pair]:
    """Two replicas in this loop."""
    agent = Scripted()
    async with serving(url, agent, **settings) as first:
        [ones] = await poll(lambda: ask(url, LISTENERS))
        async with serving(url, agent, **settings) as second:
            found = await poll(lambda: ask(url, LISTENERS), lambda found: len(found) == 2)
            [twos] = set(found) - {ones}
            await until(lambda: all(each.parts.parts.commit._hints.others for each in (first, second)))
            yield Pair(await first.client(), await second.client(), agent, url, (ones, twos))


class Remote(Serving):
    """A server in another process, as its clients see it."""

    def __init__(self, url: str, stack: AsyncExitStack) -> None:
        self.url = url
        self.agent = Scripted()
        self._stack = stack


@dataclass(frozen=True)
class Replica:
    """A server process, and a client of it."""

    process: Process
    client: Client

    @property
    def url(self) -> str:
        return self.client.server.url

    async def kill(self) -> None:
        self.process.kill()
        await soon(self.process.wait())


@asynccontextmanager
async def replica(database: str, **settings: Any) -> AsyncIterator[Replica]:
    """A server process, once it serves; killed at the end if it is still there."""
    named = {f"TARKO_{name.upper()}": str(value) for name, value in settings.items()}
    environment = {
        **os.environ, "TARKO_DATABASE_URL": database, "TARKO_PORT": "0", "TARKO_DRAIN_GRACE": "2",
        "TARKO_AGENT": "tests.replicas.agents:obedient", **named,
    }  # fmt: skip
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", SERVE, cwd=ROOT, env=environment, stdout=PIPE
    )
    assert process.stdout is not None
    try:
        async with AsyncExitStack() as stack:
            said = b""
            while not (found := ADDRESS.search(said)):
                async with asyncio.timeout(STARTS):
                    line = await process.stdout.readline()
                assert line, "the server did not start"
                said += line
            yield Replica(process, await Remote(f"http://127.0.0.1:{int(found[1])}", stack).client())
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGCONT)
            process.kill()
        await soon(process.communicate())


@asynccontextmanager
async def two_replicas(database: str, **settings: Any) -> AsyncIterator[tuple[Replica, Replica]]:
    """Two server processes, started at once."""
    async with AsyncExitStack() as stack:
        starting = [replica(database, **settings) for _ in range(2)]
        first, second = await asyncio.gather(*(each.__aenter__() for each in starting))
        for each in starting:
            stack.push_async_exit(each)
        yield first, second
