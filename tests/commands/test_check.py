"""`tarko-server check` as a process: a report, an exit code, and never a hang, whatever the agent does."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.commands.conftest import COMMAND, ROOT

AGENTS = """
import os

async def sound(scope, prompt):
    print("an agent may print")
    yield {"type": "text", "delta": prompt["text"]}
    yield {"type": "completed"}

async def silent(scope, prompt):
    yield {"type": "text", "delta": "a"}

async def leaves(scope, prompt):
    yield {"type": "text", "delta": "a"}
    os._exit(7)
"""


@pytest.fixture
def agents(tmp_path: Path) -> Path:
    (tmp_path / "some_agents.py").write_text(AGENTS)
    return tmp_path


def checked(directory: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [*COMMAND, "check", *words],
        cwd=directory,
        env={"PYTHONPATH": str(ROOT), "PATH": ""},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


def told(done: "subprocess.CompletedProcess[str]") -> dict[str, Any]:
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def test_the_built_in_agent_conforms(agents: Path) -> None:
    done = checked(
        agents, "demo", "--failing-prompt", "fail", "--waiting-prompt", "hang", "--only", "A1,A2,A3,A8"
    )
    assert done.returncode == 0, done.stdout
    assert "demo: conforms (3 pass, 1 skip)" in done.stdout
    assert "VERDICT" in done.stdout
    assert "§6 MUST 3" in done.stdout
    assert done.stderr == ""


def test_what_does_not_hold_is_told_and_is_exit_code_1(agents: Path) -> None:
    done = checked(agents, "some_agents:silent", "--only", "a0, A1", "--json")
    assert done.returncode == 1
    report = told(done)
    assert (report["target"], report["conforms"]) == ("some_agents:silent", False)
    assert [(finding["id"], finding["verdict"]) for finding in report["findings"]] == [
        ("A0", "pass"),
        ("A1", "fail"),
    ]
    assert report["findings"][1]["clause"] == "§6 MUST 1"
    assert "without `completed` or `failed`" in report["findings"][1]["evidence"]


def test_what_an_agent_prints_is_not_in_the_report(agents: Path) -> None:
    done = checked(
        agents, "some_agents:sound", "--only", "A1,A9", "--json", "--remember", "I am Ada", "Who?", "Ada"
    )
    assert done.returncode == 1
    assert [finding["evidence"] for finding in told(done)["findings"]] == [
        "2 events, the last is {'type': 'completed'}",
        "another instance answered 'Who?', without 'Ada'",
    ]


def test_an_agent_that_ends_the_process_is_reported(agents: Path) -> None:
    done = checked(agents, "some_agents:leaves", "--only", "A1,A2,A3,A4", "--json")
    assert done.returncode == 1
    assert [(finding["verdict"], finding["evidence"]) for finding in told(done)["findings"]] == [
        *[("fail", "it ended the process, with code 7")] * 3,
        ("skip", "not tried: the process was lost 3 times"),
    ]


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["some_agents:nobody"], 1, "there is no 'nobody' in module 'some_agents'"),
        (["demo", "--only", "A77"], 2, "There is no statement 'a77'; there are A0, A1, "),
        (["demo", "--patience", "0"], 2, "patience"),
    ],
)
def test_what_can_not_be_checked_is_one_line(agents: Path, words: list[str], code: int, said: str) -> None:
    done = checked(agents, *words)
    assert done.returncode == code
    assert said in done.stderr
    assert "Traceback" not in done.stderr
