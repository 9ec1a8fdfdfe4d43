"""One running PostgreSQL, seen from outside: its pid, its socket, its answer, its end.

It may be our child or the orphan of a killed process; callers need not know which. A pid alone proves nothing: it may
belong to a stranger or a zombie. So an orphan counts only while its private socket answers for this very cluster.
Nothing here needs `/proc`.
"""

import asyncio
import contextlib
import enum
import logging
import os
import signal
import socket
import stat
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import asyncpg

from app.errors import StorageUnavailable

log = logging.getLogger(__name__)

PORT = 5432
SOCKET_NAME = f".s.PGSQL.{PORT}"
ROLE = "tarko"
START_TIMEOUT = 60.0
# A live postmaster listens from its first milliseconds to its last; a pid silent for longer is somebody else's.
SILENCE = 3.0
STOP_STEPS = ((signal.SIGINT, 10.0), (signal.SIGQUIT, 5.0), (signal.SIGKILL, 5.0))
REAP_PATIENCE = 1.0
POLL = 0.02


class Answer(enum.Enum):
    """What a socket says: it takes connections, or it does not yet (or no longer), or nobody listens."""

    ACCEPTS = enum.auto()
    BUSY = enum.auto()
    SILENT = enum.auto()


@dataclass(frozen=True, slots=True)
class Postmaster:
    """A postmaster. `process` is set for our own child; an orphan that was taken over has none."""

    pid: int
    sockets: Path
    process: subprocess.Popen[bytes] | None = None

    @property
    def is_running(self) -> bool:
        if self.process is not None:
            return self.process.poll() is None
        return _is_alive(self.pid) and _has_listener(self.sockets)

    def signal(self, number: signal.Signals) -> None:
        if self.is_running:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    async def stop(self) -> None:
        """End it: fast, then immediately, then by force. Each step is bounded; the data are safe with all of them."""
        for number, seconds in STOP_STEPS:
            self.signal(number)
            if await self._has_gone(within=seconds):
                return
            log.warning(
                "embedded PostgreSQL (pid %d) still runs %g s after %s", self.pid, seconds, number.name
            )

    async def _has_gone(self, *, within: float) -> bool:
        has_gone = await _comes_true(lambda: not self.is_running, within)
        if has_gone and self.process is None:
            # An orphan closes its socket a moment before it ends, but one that nobody reaps keeps its pid for ever.
            await _comes_true(lambda: not _is_alive(self.pid), REAP_PATIENCE)
        return has_gone


async def wait_until_ready(postmaster: Postmaster, cluster: Path) -> None:
    """Return when it accepts connections. Raises `StorageUnavailable` when it has ended, or at the time limit."""
    deadline = time.monotonic() + START_TIMEOUT
    while postmaster.is_running:
        if await probe(postmaster.sockets, cluster) is Answer.ACCEPTS:
            return
        if time.monotonic() > deadline:
            raise StorageUnavailable(
                f"PostgreSQL should accept connections within {START_TIMEOUT:g} s, but did not"
            )
        await asyncio.sleep(POLL)
    raise StorageUnavailable("PostgreSQL ended while it was starting")


async def find_orphan(cluster: Path, owner: int) -> Postmaster | None:
    """The postmaster that runs on `cluster` already, once it accepts; None if there is none (any more).

    A pid file that names a live process whose socket stays silent is removed, because PostgreSQL would refuse to
    start over it. That is safe: PostgreSQL still refuses while any process is attached to the cluster's memory.
    """
    started = time.monotonic()
    while (named := _read_pid_file(cluster)) is not None and _is_alive(named.pid):
        is_trusted = is_private(named.sockets, owner)
        answer = await probe(named.sockets, cluster) if is_trusted else Answer.SILENT
        waited = time.monotonic() - started
        if answer is Answer.ACCEPTS:
            return named
        if answer is Answer.SILENT and waited > SILENCE:
            log.warning(
                "postmaster.pid of %s names pid %d, which is not its server: removing it", cluster, named.pid
            )
            _remove_pid_files(cluster, named.sockets if is_trusted else None)
            return None
        if waited > START_TIMEOUT:
            raise StorageUnavailable(
                f"PostgreSQL (pid {named.pid}) runs on {cluster} since before this start, but took no connection "
                f"for {START_TIMEOUT:g} s. Stop it with `kill -INT {named.pid}`."
            )
        await asyncio.sleep(POLL)
    return None


async def connect(sockets: Path, database: str) -> "asyncpg.Connection[asyncpg.Record]":
    return await asyncpg.connect(
        host=str(sockets), port=PORT, user=ROLE, database=database, ssl=False, timeout=5, command_timeout=30
    )


async def probe(sockets: Path, cluster: Path) -> Answer:
    """Ask the server behind `sockets`. One that serves another cluster counts as silent."""
    try:
        connection = await connect(sockets, "postgres")
    except (asyncpg.CannotConnectNowError, asyncpg.ConnectionDoesNotExistError, TimeoutError):
        return Answer.BUSY
    except OSError:
        return Answer.SILENT
    try:
        served = Path(await connection.fetchval("SHOW data_directory"))
        return Answer.ACCEPTS if _is_same(served, cluster) else Answer.SILENT
    except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError):
        return Answer.BUSY
    finally:
        connection.terminate()


def is_private(directory: Path, owner: int) -> bool:
    """Whether this is a real directory that only `owner` (and root) can enter."""
    try:
        status = directory.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(status.st_mode) and status.st_uid == owner and stat.S_IMODE(status.st_mode) == 0o700


def _read_pid_file(cluster: Path) -> Postmaster | None:
    """`postmaster.pid`: its pid is in line 1, the directory of its socket in line 5 (missing at the very start)."""
    try:
        lines = (cluster / "postmaster.pid").read_text(errors="replace").splitlines()
        pid = abs(int(lines[0]))
    except (OSError, ValueError, IndexError):
        return None
    return Postmaster(pid, Path(lines[4]) if len(lines) > 4 else cluster / "not-yet-known")


def _remove_pid_files(cluster: Path, sockets: Path | None) -> None:
    (cluster / "postmaster.pid").unlink(missing_ok=True)
    if sockets is not None:
        (sockets / f"{SOCKET_NAME}.lock").unlink(missing_ok=True)


async def _comes_true(holds: Callable[[], bool], within: float) -> bool:
    deadline = time.monotonic() + within
    while not holds():
        if time.monotonic() > deadline:
            return False
        await asyncio.sleep(POLL)
    return True


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, PermissionError):  # not permitted: another user's, so never our server
        return False
    return True


def _has_listener(sockets: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(0)
        try:
            client.connect(str(sockets / SOCKET_NAME))
        except BlockingIOError:  # a full queue of connections: somebody listens
            return True
        except OSError:
            return False
    return True


def _is_same(one: Path, other: Path) -> bool:
    try:
        return one.samefile(other)
    except OSError:
        return False
