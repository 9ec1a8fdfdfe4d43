"""The guides' promises, tried: their files are saved, and their commands run, in the order in which they are read."""

import os
import re
import subprocess
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.docs.test_readme import ROOT, _serve, environment_of
from tests.places import data_directory

_BLOCK = re.compile(r"(?:<!-- exit (\d)[^>]*-->\n\n)?```(python|sh)\n(.*?)```", re.DOTALL)
_NAME = re.compile(r"as\s+`(\w+\.py)`")


def blocks(guide: str) -> Iterator[tuple[str, str, int]]:
    """Each block of the guide: the file's name or `sh`, what is in it, and the expected exit code."""
    text = (ROOT / "docs" / guide).read_text()
    for found in _BLOCK.finditer(text):
        code, language, content = found.groups()
        names = _NAME.findall(text[: found.start()])
        yield (names[-1] if language == "python" else "sh"), content, int(code or 0)


def save_files(directory: Path, *guides: str) -> None:
    for guide in guides:
        for name, content, _ in blocks(guide):
            if name != "sh":
                (directory / name).write_text(content)


def commands(guide: str) -> list[tuple[str, int]]:
    return [(content, code) for name, content, code in blocks(guide) if name == "sh"]


@pytest.fixture
def data() -> Iterator[Path]:
    """A place for the database of one server after the other."""
    with data_directory() as directory:
        yield directory


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A directory with the guides' files, in which `.venv` is the project's."""
    save_files(tmp_path, "write-an-agent.md", "test-your-agent.md")
    (tmp_path / ".venv").symlink_to(ROOT / ".venv")
    return tmp_path


def run(command: str, place: Path, port: int) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        ["bash", "-ec", command.replace("127.0.0.1:8888", f"127.0.0.1:{port}")],
        cwd=place,
        env=environment_of(place / "data", port) | {"PYTHONPATH": str(place)},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


@contextmanager
def served(command: str, place: Path, data: Path) -> Iterator[int]:
    """The port of a server that a guide's command started."""
    environment = environment_of(data) | {"PYTHONPATH": str(place)}
    with contextmanager(_serve)(["bash", "-c", f"exec env {command}"], environment, place) as port:
        yield port


def test_the_agent_of_ten_lines_conforms_is_served_and_answers(place: Path, data: Path) -> None:
    lines = (place / "my_agent.py").read_text().splitlines()
    assert len(lines) - len(["try", "except"]) <= 10
    (check, _), (serve, _), (curl, _), *with_middleware = commands("write-an-agent.md")
    done = run(check, place, 0)
    assert done.returncode == 0, done.stdout
    assert "my_agent:invoke: conforms" in done.stdout
    with served(serve, place, data) as port:
        first, second = run(curl, place, port), run(curl, place, port)
        assert first.stdout.rstrip().endswith('data: {"type":"completed"}')
        assert "Now you say 2 words." in first.stdout
        assert "user said: Hello there" in second.stdout
        checks = [command for command, _ in commands("test-your-agent.md") if "http://" in command]
        assert len(checks) == 1
        checked = run(checks[0], place, port)
        assert checked.returncode == 0, checked.stdout
        assert checked.stdout.count("conforms") == 2
    for command, _ in with_middleware:
        with served(command.replace("\\\n", " "), place, data) as port:
            said = run(curl, place, port).stdout
            assert ("NOW YOU SAY" if "Shout" in command else "Now you say") in said


def test_the_commands_of_the_guide_to_tests_do_what_it_says(place: Path) -> None:
    for command, code in commands("test-your-agent.md"):
        if "http://" in command:
            continue
        done = run(command, place, 0)
        assert done.returncode == code, f"{command}\n{done.stdout}\n{done.stderr}"
        if code:
            failed = [line.split()[0] for line in done.stdout.splitlines() if line.split()[1:2] == ["fail"]]
            assert failed == ["A2", "A3", "A3e"]


def test_every_option_that_is_told_is_there(place: Path) -> None:
    told = set(re.findall(r"`(--[a-z-]+)", (ROOT / "docs" / "test-your-agent.md").read_text()))
    done = subprocess.run(
        [ROOT / ".venv" / "bin" / "tarko-server", "check", "--help"],
        capture_output=True,
        text=True,
        env=os.environ | {"COLUMNS": "200"},
        check=True,
    )
    assert told <= set(re.findall(r"--[a-z-]+", done.stdout))


def test_every_built_in_middleware_is_told() -> None:
    from app.agents.middleware.composing import BUILT_IN

    text = (ROOT / "docs" / "write-an-agent.md").read_text()
    assert set(re.findall(r"^\| `([a-z_]+)[(`]", text, re.MULTILINE)) == set(BUILT_IN)


def test_the_guide_to_frameworks_names_every_extra_and_the_versions_that_are_tested() -> None:
    guide, _, table = (ROOT / "docs" / "frameworks.md").read_text().partition("## Versions")
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert set(re.findall(r"tarko-server\[([\w-]+)\]", guide)) == set(extras) - {"dev", "all", "tracing"}
    pinned = (ROOT / "constraints-adapters.txt").read_text()
    found = re.findall(r"([\w-]+) (\d+\.\d+\.\d+)", table)
    assert len(found) >= 8
    for name, version in found:
        assert f"\n{name}=={version}\n" in pinned
