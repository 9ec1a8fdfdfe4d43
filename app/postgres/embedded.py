"""An embedded PostgreSQL: started, watched and stopped with this process.

Promise: one process at a time owns a data directory (a `flock` held for life, which PostgreSQL does not inherit); a
half-made cluster is never started (`initdb` runs beside it and is renamed); the orphan of a killed process is taken
over and later stopped like our own; a dead postmaster is started again. There is no TCP: any local user who could
reach the socket would be superuser, so it lies in a directory that only the server's account can enter.

What lies where in the directory, and which directory root gets, is told in `data_directory`.
"""

import asyncio
import contextlib
import logging
import os
import shutil
import signal
import tempfile
import time
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from urllib.parse import quote

import asyncpg

from app.errors import StorageUnavailable, TarkoError
from app.postgres.binaries import Binaries, find_binaries, usable_binaries
from app.postgres.data_directory import DataDirectory, ServerLog
from app.postgres.postmaster import (
    PORT,
    ROLE,
    START_TIMEOUT,
    Postmaster,
    connect,
    find_orphan,
    wait_until_ready,
)

log = logging.getLogger(__name__)

DATABASE = "tarko"
INITDB_TIMEOUT = 120.0
HEALTH_INTERVAL = 0.5
FIRST_PAUSE = 0.1
LONGEST_PAUSE = 30.0

OPTIONS = {
    "listen_addresses": "",
    "unix_socket_permissions": "0700",
    "port": str(PORT),
    "fsync": "on",
    "max_connections": "100",  # eight for each worker, and room for a few hands with psql
    "shared_buffers": "128MB",
    "wal_compression": "on",  # events are text: less to write and to sync
}
FAST_AND_UNSAFE = {"fsync": "off", "full_page_writes": "off", "synchronous_commit": "off"}


class EmbeddedPostgres:
    """The server of one data directory. Lifecycle: made, started, stopped; it may be started again.

    `start` returns when the server accepts connections, `stop` when it has gone; both may be called more than once.
    Making one decides on the directory, which may raise `ConfigurationError`, but creates nothing.
    """

    def __init__(
        self, data_dir: Path, *, binaries: Path | None = None, options: Mapping[str, str] | None = None
    ) -> None:
        self._home = DataDirectory.choose(data_dir)
        self._programs = binaries
        self._options = {**OPTIONS, **(options or {})}
        self._sockets: Path | None = None
        self._postmaster: Postmaster | None = None
        self._watcher: asyncio.Task[None] | None = None
        self._changing = asyncio.Lock()
        self._is_ready = False
        self._is_interrupted = False
        self.restarts = 0

    @property
    def directory(self) -> Path:
        """Where everything lies: the wanted directory, or root's substitute for it."""
        return self._home.path

    @property
    def log_file(self) -> Path:
        return self._home.log_file

    @property
    def dsn(self) -> str:
        """The address for asyncpg and SQLAlchemy. It stays the same over restarts."""
        # The port is spelled out, because PGPORT would be taken otherwise.
        return (
            f"postgresql://{ROLE}@/{DATABASE}?host={quote(str(self._socket_directory), safe='/')}&port={PORT}"
        )

    @property
    def pid(self) -> int | None:
        """The postmaster's pid, or None while none runs."""
        return self._postmaster.pid if self._postmaster is not None and self._postmaster.is_running else None

    @property
    def is_healthy(self) -> bool:
        return self._is_ready and self.pid is not None

    async def start(self) -> str:
        """Start it, or take over the one that runs already, and return its address.

        Raises `ConfigurationError` for what an operator can mend, and `StorageUnavailable` with the end of
        PostgreSQL's log when it does not come up.
        """
        async with self._changing:
            if self._home.is_locked:
                return self.dsn
            self._is_interrupted = False
            try:
                binaries = await self._prepare()
                await self._bring_up(binaries)
            except BaseException:
                await self._shut_down()
                raise
            self._watcher = asyncio.create_task(self._watch(binaries), name="embedded PostgreSQL watch")
            return self.dsn

    async def stop(self) -> None:
        """Shut it down and let go of the directory. Bounded; nothing happens if it is stopped already."""
        async with self._changing:
            if self._watcher is not None:
                self._watcher.cancel()
                await asyncio.wait([self._watcher])
                self._watcher = None
            await self._shut_down()

    async def stop_orphan(self) -> None:
        """Shut down what a killed process has left running in the directory, if anything; it is not started here.

        Raises `ConfigurationError` when a living process owns the directory, and `StorageUnavailable`.
        """
        async with self._changing:
            self._home.make_and_lock()
            try:
                self._postmaster = await find_orphan(self._home.cluster, self._home.account.uid)
            finally:
                await self._shut_down()

    def interrupt(self) -> None:
        """Ask for a fast shutdown without waiting for it: for a process that exits at once."""
        self._is_interrupted = True
        if self._postmaster is not None:
            self._postmaster.signal(signal.SIGINT)

    @property
    def _socket_directory(self) -> Path:
        if self._sockets is None:
            raise RuntimeError("the embedded PostgreSQL has no address before its start")
        return self._sockets

    async def _shut_down(self) -> None:
        self._is_ready = False
        try:
            if self._postmaster is not None:
                await self._postmaster.stop()
                self._home.discard_sockets(self._postmaster.sockets)
        finally:
            self._postmaster = None
            self._home.unlock()

    async def _prepare(self) -> Binaries:
        """Everything before a postmaster can run: the directory, its lock, the programs, the cluster."""
        programs = self._programs or find_binaries()
        self._home.make_and_lock()
        binaries = await usable_binaries(programs, self._home.account, self._home.path)
        if not self._home.has_cluster(binaries.major):
            await self._make_cluster(binaries)
        return binaries

    async def _make_cluster(self, binaries: Binaries) -> None:
        with self._home.new_cluster() as draft:
            # PostgreSQL's own C.UTF-8 (17 and later) is the same on every system, the C library's is not.
            locale = ("--locale-provider=builtin", "--builtin-locale=C.UTF-8") if binaries.major >= 17 else ()
            await binaries.run(
                "initdb",
                f"--pgdata={draft}",
                f"--username={ROLE}",
                "--encoding=UTF8",
                "--locale=C",
                *locale,
                "--data-checksums",
                "--auth-local=trust",
                "--auth-host=reject",
                *(["--no-sync"] if self._options["fsync"] == "off" else []),
                cwd=draft,
                within=INITDB_TIMEOUT,
            )

    async def _bring_up(self, binaries: Binaries) -> None:
        """Have a postmaster that accepts connections, with our database in it."""
        began = time.monotonic()
        orphan = await find_orphan(self._home.cluster, binaries.account.uid)
        if orphan is not None:
            log.info("taking over the running PostgreSQL (pid %d) of %s", orphan.pid, self._home.cluster)
            self._postmaster, self._sockets = orphan, orphan.sockets
        else:
            await self._launch(binaries)
        await self._make_database()
        self._is_ready = True
        seconds = time.monotonic() - began
        log.info(
            "embedded PostgreSQL %s is ready after %.2f s in %s", binaries.version, seconds, self._home.path
        )

    async def _launch(self, binaries: Binaries) -> None:
        """Start a postmaster. One that was killed may leave children: PostgreSQL refuses until they have ended."""
        deadline = time.monotonic() + START_TIMEOUT
        while True:
            server_log = ServerLog.begin(self._home.log_file)
            self._postmaster = self._spawn(binaries, server_log)
            try:
                return await wait_until_ready(self._postmaster, self._home.cluster)
            except StorageUnavailable as error:
                said = server_log.tail()
                if "pre-existing shared memory block" not in said or time.monotonic() > deadline:
                    raise StorageUnavailable(f"{error}. The end of {server_log.path}:\n{said}") from error
            await asyncio.sleep(FIRST_PAUSE)

    def _spawn(self, binaries: Binaries, server_log: ServerLog) -> Postmaster:
        self._sockets = self._home.make_sockets(self._sockets)
        options = self._options | {"unix_socket_directories": str(self._sockets)}
        settings = (word for name, value in options.items() for word in ("-c", f"{name}={value}"))
        cluster = self._home.cluster
        with server_log.open() as output:
            process = binaries.spawn("postgres", "-D", str(cluster), *settings, output=output, cwd=cluster)
        return Postmaster(process.pid, self._sockets, process)

    async def _make_database(self) -> None:
        connection = await connect(self._socket_directory, "postgres")
        try:
            if await connection.fetchval("SELECT 1 FROM pg_database WHERE datname = $1", DATABASE) is None:
                await connection.execute(f"CREATE DATABASE {DATABASE}")
        finally:
            await connection.close(timeout=5)

    async def _watch(self, binaries: Binaries) -> None:
        """Start the postmaster again whenever it has ended, after a pause that grows while it does not hold."""
        pause, ready_since = FIRST_PAUSE, time.monotonic()
        while True:
            await asyncio.sleep(HEALTH_INTERVAL)
            if self._is_interrupted or self.is_healthy:
                continue
            self._is_ready = False
            if time.monotonic() - ready_since > LONGEST_PAUSE:
                pause = FIRST_PAUSE
            log.error("the embedded PostgreSQL has died; it is started again in %g s", pause)
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)
            await self._revive(binaries)
            ready_since = time.monotonic()

    async def _revive(self, binaries: Binaries) -> None:
        try:
            if self._postmaster is not None:
                await self._postmaster.stop()
            await self._bring_up(binaries)
            self.restarts += 1
        except (TarkoError, OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
            log.exception("the embedded PostgreSQL could not be started again")


@contextlib.asynccontextmanager
async def throwaway_postgres(
    *, binaries: Path | None = None, options: Mapping[str, str] | None = None
) -> AsyncIterator[EmbeddedPostgres]:
    """A server for tests: started, fast because it syncs nothing, and removed with its data afterwards."""
    home = _make_temporary_home()
    unsafe = {**FAST_AND_UNSAFE, **(options or {})}
    server = EmbeddedPostgres(home / "data", binaries=binaries, options=unsafe)
    try:
        await server.start()
        yield server
    finally:
        await server.stop()
        shutil.rmtree(home, ignore_errors=True)


def _make_temporary_home() -> Path:
    home = Path(tempfile.mkdtemp(prefix="tarko-"))
    if os.geteuid() == 0:
        home.chmod(0o711)  # the unprivileged user that PostgreSQL runs as for root must get through
    return home
