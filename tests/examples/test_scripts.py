"""The examples that need no browser, run as their first lines say, against the agent in ten lines."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.test_readme import environment_of, told_port
from tests.places import data_directory

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """Where the agent in ten lines is served."""
    with data_directory() as data:
        command = [sys.executable, "-m", "app.cli", "serve", "agent:invoke"]
        environment = environment_of(data) | {"PYTHONPATH": str(EXAMPLES.parent)}
        with subprocess.Popen(
            command, cwd=EXAMPLES, env=environment, stdout=subprocess.PIPE, text=True
        ) as server:
            try:
                yield f"http://127.0.0.1:{told_port(server)}"
            finally:
                server.terminate()


def run(*command: str) -> str:
    return subprocess.run(
        command, cwd=EXAMPLES, check=True, capture_output=True, text=True, timeout=60
    ).stdout


def test_the_curl_script_asks_and_reads_on_from_a_cursor(url: str) -> None:
    said = run("sh", "curl.sh", url)
    assert said.count("event: agent_run_end") == 1
    assert '"content":"You said: Hello "' in said
    assert '"hasMore":false' in said
    assert "\nid: evt_" in said.rpartition("retry:")[2]


def test_the_python_script_prints_each_event_once(url: str) -> None:
    *events, response = run(sys.executable, "follow.py", url).splitlines()
    places = [int(line.split()[0].rpartition("_")[2]) for line in events]
    assert places == [*range(1, len(places) + 1)]
    assert response.strip() == "You said: Hello"
