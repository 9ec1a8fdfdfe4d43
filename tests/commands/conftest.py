"""What the tests of the commands share: a scripted server, and the command line without a process of its own."""

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from app.cli import app
from tests.commands.scripted_server import ScriptedServer

ROOT = Path(__file__).parents[2]
COMMAND = (sys.executable, "-m", "app.cli")
Run = Callable[..., Result]


@contextlib.contextmanager
def process(*words: str, **how: Any) -> Iterator[Any]:
    """A command as a process of its own, which is gone after the block whatever happens in it. Yields its `Popen`."""
    with subprocess.Popen([*COMMAND, *words], cwd=ROOT, **how) as started:
        try:
            yield started
        finally:
            started.kill()


def unmeasured() -> dict[str, str]:
    """The environment for a process that is to be interrupted: coverage's tracer swallows one KeyboardInterrupt in seven."""
    return {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE_")}


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nothing of the caller's settings, proxies or colours, and a directory of its own."""
    for name in [*os.environ]:
        if name.startswith("TARKO_") or name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    for name in ("NO_COLOR", "FORCE_COLOR", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with ScriptedServer() as scripted:
        yield scripted


@pytest.fixture
def run(server: ScriptedServer, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run a command against the scripted server."""
    monkeypatch.setenv("TARKO_URL", server.url)

    def invoke(*words: str, stdin: str | bytes = "") -> Result:
        return CliRunner().invoke(app, words, input=stdin)

    return invoke
