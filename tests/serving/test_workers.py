"""`serve --workers 2`: one address, two processes, an embedded database; what happens when some of them are killed.

The tests share a data directory. In their order most find the database running, as a killed parent has left it; they
would pass in any other, only slower.
"""

import asyncio
import contextlib
import os
import re
import shutil
import signal
import socket
import sys
import tempfile
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import psutil
import pytest

from app.commands.database import running_embedded
from app.postgres.embedded import EmbeddedPostgres
from tests.conftest import run_on
from tests.replicas.processes import IS_OLD_ENOUGH, Remote, ask, poll, wait_for
from tests.server import Client, Stream, elapsed, soon, until

ROOT = Path(__file__).parents[2]
GRACE = 2.0
STARTS = 60.0
ADDRESS = re.compile(rb"http://127\.0\.0\.1:(\d+)")
WORKERS = 2
NONE_BEATS = """
UPDATE replicas SET beat_at = now() - interval '7 seconds'
WHERE id IN (SELECT owner FROM turns WHERE session_id = '{}')"""


@pytest.fixture(scope="module")
async def home() -> AsyncIterator[Path]:
    """A directory for an embedded database, which each test finds as the one before has left it."""
    made = new_directory()
    yield made / "data"
    if await running_embedded(made / "data") is not None:
        left = EmbeddedPostgres(made / "data")
        await left.start()
        await left.stop()
    shutil.rmtree(made, ignore_errors=True)


def new_directory() -> Path:
    made = Path(tempfile.mkdtemp(prefix="tarko-"))
    made.chmod(0o711)  # the user that PostgreSQL runs as for root must get through
    return made


@dataclass(frozen=True)
class Parent:
    """The process that was started, and a client of what it serves."""

    process: Process
    port: int
    client: Client
    stack: AsyncExitStack

    def workers(self) -> set[int]:
        return workers_of(self.process.pid)

    async def all_serve(self) -> None:
        """Wait until every worker holds a connection. They are made again and again, for either may take one."""
        await poll(self._takers, lambda takers: len(takers) == WORKERS)

    async def _takers(self) -> set[int]:
        """The workers that have taken some of a few connections."""
        with ExitStack() as stack:
            ports = []
            for _ in range(8):
                connection = socket.create_connection(("127.0.0.1", self.port))
                ports.append(stack.enter_context(connection).getsockname()[1])
            await asyncio.sleep(0.02)
            return {worker for port in ports if (worker := self.worker_at(port)) is not None}

    def worker_at(self, port: int) -> int | None:
        """The worker that has taken the connection from this port of ours."""
        for pid in self.workers():
            for connection in psutil.Process(pid).net_connections("tcp"):
                if connection.raddr and connection.raddr.port == port:
                    return pid
        return None

    async def begin(self, prompt: str = "x") -> tuple[str, int, Stream]:
        """A turn that has said something: its session, its worker, its stream."""
        session = await self.client.session()
        stream = await self.stack.enter_async_context(self.client.query_stream(session, prompt))
        await stream.upto("assistant_message_delta")
        ours = stream.response.extensions["network_stream"].get_extra_info("client_addr")
        worker = self.worker_at(ours[1])
        assert worker is not None
        return session, worker, stream


def workers_of(parent: int) -> set[int]:
    with contextlib.suppress(psutil.NoSuchProcess):
        return {
            child.pid
            for child in psutil.Process(parent).children()
            if child.status() != psutil.STATUS_ZOMBIE and "app.workers" in child.cmdline()
        }
    return set()


def lives(pid: int) -> bool:
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


@asynccontextmanager
async def started(
    home: Path, agent: str = "tests.serving.agents:patient", grace: float = GRACE
) -> AsyncIterator[Parent]:
    """The parent, once it has said where it serves; killed with its workers if they are still there at the end."""
    environment = {**os.environ, "TARKO_DATA_DIR": str(home), "TARKO_DRAIN_GRACE": str(grace)}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "app.cli", "serve", agent, "--workers", str(WORKERS), "--port", "0",
        cwd=ROOT, env=environment, stdout=PIPE,
    )  # fmt: skip
    assert process.stdout is not None
    try:
        said = b""
        while not (found := ADDRESS.search(said)):
            async with asyncio.timeout(STARTS):
                line = await process.stdout.readline()
            assert line, "it did not start"
            said += line
        port = int(found[1])
        async with AsyncExitStack() as stack:
            yield Parent(process, port, await Remote(f"http://127.0.0.1:{port}", stack).client(), stack)
    finally:
        if process.returncode is None:
            left = workers_of(process.pid)
            process.kill()
            for pid in left:
                os.kill(pid, signal.SIGKILL)
        await soon(process.communicate())


async def test_workers_whose_parent_was_killed_while_they_started_stop(home: Path) -> None:
    async with started(home) as parent:
        await until(lambda: len(parent.workers()) == WORKERS)
        workers = parent.workers()
        parent.process.kill()
        await until(lambda: not any(lives(pid) for pid in workers))


async def test_both_workers_serve_and_one_that_is_killed_is_replaced_and_its_turn_is_ended(
    home: Path,
) -> None:
    """And in the end all are told to stop by their parent's death."""
    async with started(home) as parent:
        await parent.all_serve()
        before = parent.workers()
        url = await running_embedded(home)
        assert url is not None
        await wait_for(url, IS_OLD_ENOUGH)
        session, victim, stream = await parent.begin()
        os.kill(victim, signal.SIGKILL)
        with pytest.raises(httpx.HTTPError):
            await stream.rest()
        await run_on(url, NONE_BEATS.format(session))
        async with parent.client.stream(session) as reader:
            assert (await reader.upto("agent_run_end"))[-1]["data"]["status"] == "interrupted"
        await until(lambda: len(parent.workers()) == WORKERS)
        assert len(parent.workers() & before) == WORKERS - 1
        await parent.all_serve()

        _, _, stream = await parent.begin()
        workers = parent.workers()
        parent.process.kill()
        assert (await stream.upto("agent_run_end"))[-1]["data"]["status"] == "aborted"
        await until(lambda: not any(lives(pid) for pid in workers))


async def test_the_next_start_takes_over_the_database_of_killed_ones_and_ends_their_turns_at_once(
    home: Path,
) -> None:
    """And a signal to the parent then ends all, in order and in time."""
    async with started(home) as parent:
        sessions = [(await parent.begin())[0] for _ in range(3)]
        workers = parent.workers()
        parent.process.kill()
        for pid in workers:
            os.kill(pid, signal.SIGKILL)
        await soon(parent.process.wait())
    url = await running_embedded(home)
    assert url is not None
    postmaster = "SELECT pg_postmaster_start_time()"
    since_when = await ask(url, postmaster)
    async with started(home) as parent:
        assert await ask(url, postmaster) == since_when
        for session in sessions:
            assert (await parent.client.events(session))[-1]["data"]["status"] == "interrupted"
        _, _, stream = await parent.begin()
        workers = parent.workers()
        since = time.monotonic()
        parent.process.terminate()
        assert (await stream.upto("agent_run_end"))[-1]["data"]["status"] == "aborted"
        assert await soon(parent.process.wait()) == 0
        assert elapsed(since) < GRACE + 18
    assert not any(lives(pid) for pid in workers)
    assert await running_embedded(home) is None


async def test_workers_that_are_just_starting_stop_with_their_parent(home: Path) -> None:
    async with started(home) as parent:
        await until(lambda: len(parent.workers()) == WORKERS)
        workers = parent.workers()
        parent.process.terminate()
        assert await soon(parent.process.wait()) == 0
    assert not any(lives(pid) for pid in workers)


async def test_a_second_signal_ends_all_at_once(home: Path) -> None:
    async with started(home, "tests.serving.agents:stubborn", grace=60) as parent:
        _, _, stream = await parent.begin()
        workers = parent.workers()
        parent.process.terminate()
        await until(lambda: is_draining(parent.port))
        parent.process.terminate()
        assert await soon(parent.process.wait()) == 128 + signal.SIGTERM
        await until(lambda: not any(lives(pid) for pid in workers))
        with pytest.raises(httpx.HTTPError):
            await stream.rest()
    await poll(lambda: running_embedded(home), lambda url: url is None)


def is_draining(port: int) -> bool:
    """Whether a worker, any of them, says so, or none answers any more."""
    try:
        return (
            httpx.get(f"http://127.0.0.1:{port}/readyz", trust_env=False, timeout=STARTS).status_code == 503
        )
    except httpx.HTTPError:
        return True


async def test_settings_that_no_worker_could_serve_with_are_refused_once(home: Path) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "app.cli", "serve", "nowhere", "--workers", "2", "--port", "0",
        cwd=ROOT, env=os.environ | {"TARKO_DATA_DIR": str(home)}, stdout=PIPE, stderr=PIPE,
    )  # fmt: skip
    async with asyncio.timeout(STARTS):
        said, refusal = await process.communicate()
    assert process.returncode == 1
    assert said == b""
    assert refusal.count(b"neither `demo` nor `openai`") == 1
