"""The README's promises, tried: its commands, its curl tour, its agent, its table of settings."""

import os
import re
import shutil
import signal
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.docs.settings_table import README, with_table
from tests.places import data_directory

ROOT = README.parent
TEXT = README.read_text()


def _blocks(language: str, text: str = TEXT) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


def environment_of(data: Path, port: int = 0) -> dict[str, str]:
    """An environment for a server of its own, on a port that it finds and tells, without what this process has from tests."""
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("TARKO_", "MAKE", "COVERAGE_"))
    }
    return environment | {"TARKO_PORT": str(port), "TARKO_DATA_DIR": str(data)}


def told_port(process: "subprocess.Popen[str]") -> int:
    """The port that the server tells when it is ready."""
    assert process.stdout is not None
    said = []
    for line in process.stdout:
        said.append(line)
        if found := re.search(r"http://127\.0\.0\.1:(\d+)", line):
            return int(found[1])
    pytest.fail(f"the server did not start: {said}")


def _serve(command: list[str], environment: dict[str, str], cwd: Path) -> Iterator[int]:
    process = subprocess.Popen(
        command, cwd=cwd, env=environment, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        yield told_port(process)
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.communicate(timeout=60)


@pytest.fixture(scope="module")
def served() -> Iterator[int]:
    """The port of a server that `make run` started."""
    if shutil.which("make") is None:
        pytest.fail("make is needed")
    with data_directory() as data:
        yield from _serve(["make", "run"], environment_of(data), ROOT)


def test_the_two_commands_are_the_readmes() -> None:
    assert _blocks("sh")[:2] == ["make run\n", "make test\n"]


def test_make_run_serves_the_page_and_the_api(served: int) -> None:
    for path in ("/", "/docs", "/readyz"):
        with urllib.request.urlopen(f"http://127.0.0.1:{served}{path}", timeout=60) as answer:
            assert answer.status == 200


def test_the_curl_tour_shows_what_it_says(served: int, tmp_path: Path) -> None:
    tour = TEXT.split("<!-- tour -->")[1].split("<!-- /tour -->")[0]
    script = "set -eu\n" + "\necho; echo ====\n".join(_blocks("sh", tour)).replace(":8888", f":{served}")
    done = subprocess.run(
        ["bash", "-c", script], capture_output=True, text=True, timeout=60, cwd=tmp_path, check=True
    )
    one_call, steps, abort, after = done.stdout.split("====")
    assert "event: tool_result" in one_call
    assert one_call.count("event: agent_run_end") == 1
    assert '"status":"completed"' in steps
    assert '"hasMore":false' in steps
    assert '"success":true' in abort
    assert '"finishReason":"abort"' in abort
    assert '"nextAfter"' in after


def test_the_agent_of_the_readme_is_served(tmp_path: Path) -> None:
    (source,) = _blocks("python")
    (tmp_path / "my_agent.py").write_text(source)
    (command,) = (block for block in _blocks("sh") if "serve my_agent" in block)
    arguments = command.split()
    arguments[0] = str(ROOT / arguments[0])
    with (
        data_directory() as data,
        contextmanager(_serve)(arguments, environment_of(data), tmp_path) as port,
    ):
        request = urllib.request.Request(
            f"http://127.0.0.1:{port}/api/v1/oneshot/query",
            data=b'{"query": "one two"}',
            headers={"content-type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            assert b"You said: one two" in answer.read()


def test_the_table_of_settings_is_that_of_the_settings() -> None:
    assert with_table(TEXT) == TEXT
