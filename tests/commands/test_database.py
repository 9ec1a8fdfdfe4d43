"""`migrate` and the way to the database. Real PostgreSQL; as root its directory must be passable, unlike pytest's own.

The commands run in the main thread, so these tests are no coroutines: a thread that has used greenlets and ends can
hang Python 3.11 while coverage traces.
"""

import asyncio
import contextlib
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import asyncpg
import pytest
from typer.testing import CliRunner, Result

from app.cli import app
from app.commands.database import database, database_errors, redacted, running_embedded
from app.errors import StorageUnavailable
from app.postgres.embedded import FAST_AND_UNSAFE, EmbeddedPostgres
from app.postgres.migrations import newest
from app.postgres.pool import storage_errors
from app.settings import Settings


@pytest.fixture
def data_dir(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    home = Path(tempfile.mkdtemp(prefix="tarko-test-"))
    home.chmod(0o711)
    monkeypatch.setenv("TARKO_DATA_DIR", str(home / "data"))
    yield home / "data"
    shutil.rmtree(home)


def run(*words: str) -> Result:
    return CliRunner().invoke(app, words)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://u:s3cret@h:5432/d", "postgresql://u:***@h:5432/d"),
        ("postgresql://u:s3@cr/et?x@h/d", "postgresql://u:***@h/d"),
        ("postgres://:s3cret@/d", "postgres://:***@/d"),
        (
            "postgresql://u@h/d?password=s3cret&sslmode=require",
            "postgresql://u@h/d?password=***&sslmode=require",
        ),
        ("postgresql://h/d?sslpassword=s3cret", "postgresql://h/d?sslpassword=***"),
        ("postgresql://u@h/d", "postgresql://u@h/d"),
    ],
)
def test_an_address_is_shown_without_its_password(url: str, shown: str) -> None:
    assert redacted(url) == shown


@pytest.mark.parametrize(
    "url", ["postgresql://u:s3cr/et@h/d", "s3cret://u:s3cret@h", "postgresql://u:p@[s3cret/d"]
)
async def test_an_odd_address_is_refused_without_a_part_of_it(url: str) -> None:
    for wrapped in (contextlib.nullcontext(), storage_errors()):
        with pytest.raises(StorageUnavailable) as refusal, database_errors("postgresql://hidden"), wrapped:
            await asyncpg.connect(url, timeout=1)
        assert "s3cr" not in str(refusal.value)


def test_an_empty_embedded_database_is_started_migrated_and_stopped(data_dir: Path) -> None:
    result = run("migrate")
    assert result.exit_code == 0, result.output
    assert result.stdout == f"The database was at revision base and is now at {newest()}.\n"
    assert asyncio.run(running_embedded(data_dir)) is None


@pytest.fixture
async def embedded(data_dir: Path, anyio_backend: str) -> AsyncIterator[EmbeddedPostgres]:
    server = EmbeddedPostgres(data_dir, options=FAST_AND_UNSAFE)
    await server.start()
    yield server
    await server.stop()


def test_a_running_embedded_database_is_joined_and_left_running(embedded: EmbeddedPostgres) -> None:
    pid = embedded.pid
    for said in (f"was at revision base and is now at {newest()}", f"is at revision {newest()} already"):
        assert said in run("migrate").stdout
    assert embedded.is_healthy
    assert embedded.pid == pid


async def test_a_running_embedded_database_has_one_address(embedded: EmbeddedPostgres) -> None:
    async with database(Settings()) as url:
        assert url == embedded.dsn


@pytest.mark.usefixtures("anyio_backend")  # which runs the database's fixture
def test_a_named_database_is_moved_to_a_revision(
    embedded_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TARKO_DATABASE_URL", embedded_database)
    down = run("migrate", "--revision", "base")
    assert down.stdout == f"The database was at revision {newest()} and is now at base.\n"
    up = run("migrate", "--revision", str(newest()))
    assert up.stdout == f"The database was at revision base and is now at {newest()}.\n"
    wrong = run("migrate", "--revision", "nonsense")
    assert wrong.exit_code == 1
    assert wrong.stderr.endswith("(bad_configuration)\n")


def test_a_database_that_is_away_is_one_line_without_the_password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TARKO_DATABASE_URL", "postgresql://u:s3cret@127.0.0.1:1/d")
    result = run("migrate")
    assert result.exit_code == 1
    assert result.stderr.startswith(
        "tarko-server: The database at postgresql://u:***@127.0.0.1:1/d could not be used"
    )
    assert result.stderr.count("\n") == 1
    assert "s3cret" not in result.output


@pytest.mark.parametrize("command", ["migrate", "doctor"])
def test_no_command_tells_a_part_of_a_password(monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    monkeypatch.setenv("TARKO_DATABASE_URL", "postgresql://u:s3cr/et@h/d")
    monkeypatch.setenv("TARKO_PORT", "0")
    result = run(command)
    assert result.exit_code == 1
    assert "that is no address" in result.output
    assert "s3cr" not in result.output


def test_what_the_embedded_database_says_is_told_as_it_is(data_dir: Path) -> None:
    data_dir.parent.joinpath("data").touch()
    result = run("migrate")
    assert result.exit_code == 1
    assert "The database cannot be kept in" in result.stderr
    assert "Set TARKO_DATA_DIR" in result.stderr
