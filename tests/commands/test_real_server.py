"""The commands against the real server, each a process of its own, as a user has them."""

import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.commands.conftest import COMMAND, ROOT, process, unmeasured


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """A server of the demo agent; it says where it is when it can be asked."""
    home = Path(tempfile.mkdtemp(prefix="tarko-test-"))
    home.chmod(0o711)
    environment = {**os.environ, "TARKO_DATA_DIR": str(home / "data"), "TARKO_PORT": "0", "COLUMNS": "200"}
    with process("serve", "demo", env=environment, stdout=subprocess.PIPE, text=True) as server:
        address = re.search(r"http://\S+:\d+", server.stdout.readline())
        assert address is not None
        yield address[0]
        server.send_signal(signal.SIGTERM)
        assert server.wait(60) == 0
    shutil.rmtree(home)


def run(url: str, *words: str, stdin: str = "") -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [*COMMAND, *words, "--url", url], cwd=ROOT, input=stdin, capture_output=True, text=True, timeout=100
    )


@pytest.fixture(scope="module")
def session(url: str) -> str:
    """A session with two turns, the second of which failed."""
    done = run(url, "chat", "--name", "mine", stdin="hello you\nplease fail\n")
    assert done.returncode == 1, done.stderr
    assert done.stdout.startswith("Hello! You said: “hello you”.")
    assert "(demo_failure)" in done.stderr
    found = re.search(r"sess_\w+", done.stderr)
    assert found is not None
    return found[0]


def test_an_export_is_what_a_tail_says(url: str, session: str, tmp_path: Path) -> None:
    file = tmp_path / "events.jsonl"
    assert run(url, "export", session, "-o", str(file)).returncode == 0
    lines = file.read_text().splitlines()
    words = ("tail", session, "--json", "--url", url)
    with process(*words, stdout=subprocess.PIPE, text=True, env=unmeasured()) as tail:
        assert [tail.stdout.readline().rstrip("\n") for _ in lines] == lines
        tail.send_signal(signal.SIGINT)
        assert tail.wait(60) == 0
    assert json.loads(lines[0])["type"] == "session_start"
    assert json.loads(lines[-1])["type"] == "agent_run_end"
    with_deltas = run(url, "export", session, "--deltas").stdout.splitlines()
    assert set(lines) < set(with_deltas)


def test_the_session_is_listed(url: str, session: str) -> None:
    listed = [json.loads(line) for line in run(url, "sessions", "--json").stdout.splitlines()]
    assert [(each["id"], each["name"]) for each in listed] == [(session, "mine")]


def test_control_c_aborts_a_hanging_turn(url: str, session: str) -> None:
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    words = ("chat", "--session", session, "--url", url)
    with process(*words, text=True, env=unmeasured(), **pipes) as chat:
        chat.stdin.write("hang\n")
        chat.stdin.flush()
        while "demo_hang" not in (line := chat.stderr.readline()) and "→" not in line:
            assert line
        chat.send_signal(signal.SIGINT)
        assert "aborted after" in chat.stderr.read()
        assert chat.wait(60) == 130
    assert "Nothing to abort" in run(url, "abort", session).stdout
