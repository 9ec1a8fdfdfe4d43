"""The measured processes: started on a free port, watched, and ended by their pids, however the bench ends.

What a server used is the processor time and memory of its process; PostgreSQL's is that of its children, counted apart.
"""

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import psutil

from bench.client import Connection

ROOT = Path(__file__).parent.parent
START_TIMEOUT = 60.0
STOP_TIMEOUT = 15.0


class Used(NamedTuple):
    """Seconds of processor time: of the server, of its PostgreSQL, of this client."""

    server: float
    postgres: float
    client: float

    def since(self, before: "Used") -> "Used":
        return Used(*(now - then for now, then in zip(self, before, strict=True)))

    def plus(self, other: "Used") -> "Used":
        return Used(*(one + two for one, two in zip(self, other, strict=True)))


NOTHING = Used(0.0, 0.0, 0.0)


class Others:
    """What the rest of the machine does since this was made: a busy one makes the figures worse than they are.

    To be asked when the measured processes have ended, since only then their time is known as ours.
    """

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._then = self._used()

    def share(self) -> float:
        """Their part of all processors' time."""
        return (self._used() - self._then) / (time.monotonic() - self._began) / (psutil.cpu_count() or 1)

    @staticmethod
    def _used() -> float:
        times = psutil.cpu_times()
        idle = times.idle + getattr(times, "iowait", 0.0)
        # Guest time is counted as user time already.
        busy = sum(times) - idle - getattr(times, "guest", 0.0) - getattr(times, "guest_nice", 0.0)
        return float(busy - sum(os.times()[:4]))


@dataclass(slots=True)
class Process:
    """A running server. `ready_after` is the seconds from its start to its first good answer."""

    name: str
    port: int
    popen: "subprocess.Popen[bytes]"
    process: psutil.Process
    ready_after: float = 0.0

    def used(self) -> Used:
        """What was used so far."""
        own = self.process.cpu_times()
        mine = time.process_time()
        return Used(own.user + own.system, sum(map(_with_reaped, self._database())), mine)

    def rss(self) -> int:
        """Bytes that the server's process holds in memory."""
        return int(self.process.memory_info().rss)

    def database_memory(self) -> int:
        """Bytes that PostgreSQL holds, each page shared by its processes counted once."""
        total = 0
        for process in self._database():
            with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
                total += process.memory_full_info().pss
        return total

    def stop(self) -> None:
        """End it. In one breath, so that a cancelled bench leaves nothing behind."""
        database = self._database()
        self.popen.terminate()
        try:
            self.popen.wait(STOP_TIMEOUT)
        except subprocess.TimeoutExpired:
            self.popen.kill()
            self.popen.wait()
        _, alive = psutil.wait_procs(database, timeout=2)
        for process in alive:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(signal.SIGQUIT)

    def _database(self) -> list[psutil.Process]:
        try:
            return self.process.children(recursive=True)
        except psutil.NoSuchProcess:
            return []


@contextlib.asynccontextmanager
async def running(name: str, module: str, place: Path) -> AsyncIterator[Process]:
    """A server in a process of its own, ready, for as long as the block runs."""
    port = _free_port()
    environment = {key: value for key, value in os.environ.items() if not key.startswith("TARKO_")}
    log = place / f"{name}.log"
    with log.open("ab") as output:
        began = time.perf_counter()
        popen = subprocess.Popen(  # noqa: S603, ASYNC220 - our own module; nothing else waits meanwhile
            [sys.executable, "-m", module, str(port), str(place / name)],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,  # a Ctrl-C is ours to pass on
        )
    server = Process(name, port, popen, psutil.Process(popen.pid))
    try:
        await _until_ready(server, log)
        server.ready_after = time.perf_counter() - began
        yield server
    finally:
        server.stop()


async def _until_ready(server: Process, log: Path) -> None:
    deadline = time.monotonic() + START_TIMEOUT
    while True:
        try:
            connection = await Connection.connect(server.port)
            await connection.ask("GET", "/readyz")
        except (OSError, RuntimeError):
            if server.popen.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"{server.name} did not start:\n{_end_of(log)}") from None
            await asyncio.sleep(0.01)
        else:
            connection.close()
            return


def _end_of(log: Path) -> str:
    return log.read_text(errors="replace")[-2000:]


def _with_reaped(process: psutil.Process) -> float:
    """A process's time and that of its children that have ended."""
    try:
        times = process.cpu_times()
    except psutil.NoSuchProcess:
        return 0.0
    return float(times.user + times.system + times.children_user + times.children_system)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])
