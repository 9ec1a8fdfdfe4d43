import subprocess
import sys
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from app import __version__, serving
from app.cli import app, main
from app.settings import A2ARemote, Settings
from app.workers import _as_environment
from tests.commands.conftest import Run
from tests.commands.scripted_server import ScriptedServer

ROOT = Path(__file__).parents[2]
HEAVY = (
    "fastapi",
    "starlette",
    "sqlalchemy",
    "sqlmodel",
    "alembic",
    "asyncpg",
    "openai",
    "uvicorn",
    "pydantic_settings",
)

LOADED = """
import sys
from app.cli import app
try:
    app(sys.argv[1:], prog_name="tarko-server")
finally:
    print([name for name in sys.modules if name in {heavy}], file=sys.stderr)
"""


@pytest.mark.parametrize(
    "words",
    [
        "--help",
        "--version",
        "serve --help",
        "sessions",
        "tail s",
        "chat",
        "abort s",
        "export s",
        "check --help",
    ],
)
def test_nothing_heavy_is_imported_by_help_and_clients(words: str) -> None:
    script = LOADED.format(heavy=set(HEAVY))
    done = subprocess.run(
        [sys.executable, "-c", script, *words.split()],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={"TARKO_URL": "http://127.0.0.1:1"},
        timeout=100,
    )
    assert done.stderr.splitlines()[-1] == "[]"
    assert "Traceback" not in done.stderr


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[Settings]:
    """The settings that `serve` would have been called with."""
    given: list[Settings] = []

    def serve(settings: Settings) -> int:
        given.append(settings)
        return 3

    monkeypatch.setattr(serving, "serve", serve)
    return given


def run_alone(*words: str) -> Any:
    return CliRunner().invoke(app, words)


def test_serve_takes_settings_from_flags_before_the_environment(
    served: list[Settings], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TARKO_PORT", "9001")
    monkeypatch.setenv("TARKO_HOST", "127.0.0.2")
    monkeypatch.setenv("TARKO_TOKENS", "a=0123456789abcdef")
    monkeypatch.setenv("TARKO_LOG_LEVEL", "DEBUG")
    words = "serve my.module:agent --port 9002 --data-dir d --database-url postgresql://x/y --insecure"
    more = "--pool-size 3 --allowed-hosts a --allowed-origins http://b --delta-retention 1 --drain-grace 2"
    assert run_alone(*words.split(), *more.split()).exit_code == 3
    assert served[0] == Settings(
        agent="my.module:agent",
        port=9002,
        host="127.0.0.2",
        data_dir=Path("d"),
        database_url="postgresql://x/y",
        insecure=True,
        pool_size=3,
        allowed_hosts="a",
        allowed_origins="http://b",
        delta_retention=1,
        drain_grace=2,
        tokens="a=0123456789abcdef",
        log_level="debug",
    )


def test_without_flags_the_settings_have_their_own_defaults(served: list[Settings]) -> None:
    run_alone("serve")
    assert served == [Settings()]


def test_the_help_of_serve_names_every_setting() -> None:
    told = run_alone("serve", "--help").stdout
    assert "a2a:<url>" in told
    assert [name for name in Settings.model_fields if f"TARKO_{name.upper()}" not in told] == []


@pytest.mark.parametrize(
    "value", ["{s3cret", '{"http://a": {"token": ["s3cret"]}}', '{"http://a": {"s3": "s3cret"}}']
)
def test_wrong_json_in_a_setting_is_one_line_without_its_value(
    value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TARKO_A2A_REMOTES", value)
    told = run_alone("serve")
    assert told.exit_code == 1
    assert "a2a_remotes" in told.output.lower()
    assert "s3cret" not in told.output


def test_a_wrong_setting_is_one_line_without_its_value(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TARKO_MAX_BODY", "s3cret")
    result = run_alone("serve")
    assert result.exit_code == 1
    assert result.stderr.startswith("tarko-server: TARKO_MAX_BODY: ")
    assert result.stderr.endswith("(bad_configuration)\n")
    assert "s3cret" not in result.output


def test_main_is_what_the_console_script_calls(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["tarko-server", "--version"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"tarko-server {__version__}\n"
    monkeypatch.setattr(sys, "stdout", StringIO())
    with pytest.raises(SystemExit):
        main()


def test_the_version_is_told() -> None:
    assert run_alone("--version").stdout == f"tarko-server {__version__}\n"


@pytest.mark.parametrize(
    "words", [["tail"], ["nonsense"], ["serve", "--port", "70000"], ["sessions", "--limit", "0"]]
)
def test_a_wrong_use_is_exit_code_2(words: list[str]) -> None:
    assert run_alone(*words).exit_code == 2


def test_a_wrong_address_is_a_wrong_use() -> None:
    result = run_alone("sessions", "--url", "ftp://a")
    assert result.exit_code == 2
    assert (
        result.stderr
        == "tarko-server: 'ftp://a' is no address of a server: write http://host:port. (bad_address)\n"
    )


def test_no_server_is_told_with_what_to_do(server: ScriptedServer, run: Run) -> None:
    result = run("sessions", "--url", "http://127.0.0.1:1")
    assert result.exit_code == 1
    assert result.stderr == (
        "tarko-server: No server answers at http://127.0.0.1:1. Start one with `tarko-server serve`. (no_server)\n"
    )


def test_workers_read_the_settings_that_their_parent_has(monkeypatch: pytest.MonkeyPatch) -> None:
    remotes = {"http://a.example": A2ARemote(token="t", headers={"x": "y"}, streaming=False)}
    settings = Settings(a2a_remotes=remotes, port=9003, remote_token="r")
    for name, value in _as_environment(settings, "postgresql://x/y").items():
        monkeypatch.setenv(name, value)
    assert Settings() == settings.model_copy(update={"database_url": "postgresql://x/y"})
