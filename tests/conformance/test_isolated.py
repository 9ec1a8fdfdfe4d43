"""Checks in a process of their own, and from code without a loop."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from app.agents.contract import AgentEvent, Prompt, Scope
from app.agents.demo import DemoAgent
from app.conformance import (
    AGENT,
    Conversation,
    Job,
    Limits,
    Subject,
    Verdict,
    check_isolated,
    examine,
    isolated,
)
from app.conformance.gallery.exhibit import Acting
from app.conformance.gallery.misbehaving import swallows_every_cancel
from app.conformance.remote import InvokedAgent, TarkoAgent
from app.conformance.running import run
from app.conformance.statements import Statement
from app.errors import AgentLoadError

LIMITS = Limits(patience=2, stop=0.3, settle=0.1)
DEAF = r"""
import os, signal, subprocess, sys, time

async def ends(*_):
    yield {"type": "completed"}

def then_ends(first):
    async def agent(scope, prompt):
        first()
        yield {"type": "completed"}
    return agent

def write_everywhere():
    for descriptor in range(3, 4096):
        try:
            os.write(descriptor, os.environ["WORDS"].encode() + b"\n")
        except OSError:
            pass

forks = then_ends(os.fork)
writes = then_ends(write_everywhere)
reads = then_ends(lambda: sys.stdin.read())
exits = then_ends(lambda: os._exit(3))
prints = then_ends(lambda: [os.write(out, b"x" * 1_000_000) for out in (1, 2)])

def close_everything():
    os.closerange(3, 4096)
    time.sleep(3600)

closes = then_ends(close_everything)

async def eats(scope, prompt):
    eaten = bytearray(b"x") * (256 * 2**20)
    time.sleep(3600)
    yield {"type": "completed"}

def start(**how):
    started = subprocess.Popen(["sleep", "3600"], **how)
    open("started", "a").write(f"{started.pid}\n")

starts_a_session = then_ends(lambda: start(start_new_session=True))
starts_in_no_environment = then_ends(lambda: start(env={"PATH": os.defpath}))

async def blocks(scope, prompt):
    time.sleep(3600)
    yield {"type": "completed"}

async def deaf(scope, prompt):
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    time.sleep(3600)
    yield {"type": "completed"}
"""


BLOCKS = DEAF[: DEAF.index("async def blocks")].count("\n") + 2


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "deaf_agent.py").write_text(DEAF)


def test_a_process_that_can_not_say_where_it_is_is_ended_all_the_same() -> None:
    report = check_isolated(Job("deaf_agent:deaf", limits=LIMITS, stall=1), AGENT[:1])
    (finding,) = report.failures
    assert finding.evidence == "it blocked the event loop for more than 1 s"


def test_an_agent_that_blocks_is_reported_with_its_place() -> None:
    report = check_isolated(Job("deaf_agent:blocks", limits=LIMITS, stall=1), AGENT[:1])
    (finding,) = report.failures
    assert finding.evidence == (
        f"it blocked the event loop for more than 1 s, at line {BLOCKS} of deaf_agent.py in blocks"
    )


@pytest.mark.parametrize("agent", ["forks", "reads", "prints"])
def test_an_agent_may_fork_read_and_print_which_is_dropped(
    agent: str, capfd: pytest.CaptureFixture[str]
) -> None:
    report = check_isolated(Job(f"deaf_agent:{agent}", limits=LIMITS), AGENT[:2])
    assert [str(each.verdict) for each in report.findings] == ["pass", "pass"], report
    assert capfd.readouterr() == ("", "")


def test_after_three_ends_the_rest_is_not_tried() -> None:
    report = check_isolated(Job("deaf_agent:exits", limits=LIMITS), AGENT[:5])
    assert [(str(each.verdict), each.evidence) for each in report.findings] == [
        *[("fail", "it ended the process, with code 3")] * 3,
        *[("skip", "not tried: the process was lost 3 times")] * 2,
    ]


MEDDLED = "it meddled with a descriptor that is not its own"


@pytest.mark.parametrize(
    "words",
    ["?", "7", '{"found": "A7"}', '{"found": "A0", "verdict": "fine", "evidence": ""}', '{"found": "A0"}'],
)
def test_an_agent_that_speaks_for_the_kit_fails(words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORDS", words)
    (finding,) = check_isolated(Job("deaf_agent:writes", limits=LIMITS), AGENT[:1]).findings
    assert (finding.verdict, finding.evidence) == (Verdict.FAIL, MEDDLED)


@pytest.mark.parametrize("statements", [AGENT[:1], AGENT[:2]])
def test_a_verdict_of_the_agents_own_is_taken_for_none(
    statements: tuple[Statement, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORDS", '{"found": "A0", "verdict": "pass", "evidence": "I am fine"}')
    report = check_isolated(Job("deaf_agent:writes", limits=LIMITS), statements)
    assert [each.statement for each in report.findings] == [*statements]
    assert [(each.verdict, each.evidence) for each in report.failures[:1]] == [(Verdict.FAIL, MEDDLED)]


def test_an_agent_that_closes_everything_and_goes_on_is_ended() -> None:
    (finding,) = check_isolated(Job("deaf_agent:closes", limits=LIMITS), AGENT[:1]).findings
    assert finding.evidence == MEDDLED


def test_an_agent_that_takes_too_much_memory_is_ended() -> None:
    job = Job("deaf_agent:eats", limits=LIMITS, memory=256 * 2**20)
    (finding,) = check_isolated(job, AGENT[:1]).findings
    assert finding.evidence == "it took more than 256 MiB of memory"


def is_running(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.mark.parametrize("agent", ["starts_a_session", "starts_in_no_environment"])
def test_what_an_agent_started_ends_with_it(agent: str, tmp_path: Path) -> None:
    check_isolated(Job(f"deaf_agent:{agent}", limits=LIMITS), AGENT[:1]).raise_for_failures()
    started = (tmp_path / "started").read_text().split()
    assert started
    assert not [pid for pid in started if is_running(int(pid))]


def test_what_may_not_be_ended_holds_nobody_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(process: psutil.Process) -> None:
        raise psutil.AccessDenied(process.pid)

    with monkeypatch.context() as patch:
        patch.setattr(psutil.Process, "kill", refuses)
        patch.setattr(isolated, "_MOST_ENDING", 0)
        check_isolated(Job("deaf_agent:starts_a_session", limits=LIMITS), AGENT[:1]).raise_for_failures()
    started = [psutil.Process(int(pid)) for pid in (tmp_path / "started").read_text().split()]
    assert started
    for process in started:
        process.kill()


def test_an_agent_that_can_not_be_loaded_is_an_error() -> None:
    with pytest.raises(AgentLoadError, match="no_such_module") as caught:
        check_isolated(Job("no_such_module:agent"))
    assert caught.value.code == "agent_not_loaded"


def test_a_job_survives_its_way_to_the_process() -> None:
    job = Job("demo", failing="fail", conversation=("a", "b", "c"), limits=LIMITS, over="invoke")
    assert Job.of(json.loads(json.dumps(job.as_json()))) == job
    assert "token" not in repr(Job("demo", token="secret"))


def test_a_subject_is_what_its_job_says() -> None:
    job = Job("demo", "Hi", failing="f", waiting="w", conversation=("a", "b", "c"), limits=LIMITS)
    subject = job.subject()
    assert isinstance(subject.make(), DemoAgent)
    assert (subject.prompt, subject.failing, subject.waiting) == (
        {"text": "Hi"},
        {"text": "f"},
        {"text": "w"},
    )
    assert (subject.conversation, subject.limits) == (Conversation("a", "b", "c"), LIMITS)
    subject = Job("demo").subject()
    assert (subject.failing, subject.waiting, subject.conversation) == (None, None, None)


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_the_subject_of_an_address_speaks_to_it_as_the_job_says(scheme: str) -> None:
    url = f"{scheme}://127.0.0.1:1"
    invoked: Any = Job(url, token="t", over="invoke").subject().make()
    assert isinstance(invoked, InvokedAgent)
    assert (invoked._url, invoked._token) == (url, "t")
    assert isinstance(Job(url).subject().make(), TarkoAgent)


def test_a_job_whose_agent_can_not_be_loaded_has_no_subject() -> None:
    with pytest.raises(AgentLoadError, match="no_such_module"):
        Job("no_such_module:agent").subject()


def test_an_ordinary_test_may_examine_an_agent() -> None:
    async def agent(_: Scope, __: Prompt) -> AsyncIterator[AgentEvent]:
        yield {"type": "completed"}

    report = examine(Subject(lambda: Acting(agent), limits=LIMITS), *AGENT[:3])
    report.raise_for_failures()
    for finding in report.findings:
        finding.raise_for_failure()
    assert list(report.verdicts()) == ["A0", "A1", "A1b"]


def test_what_does_not_hold_is_an_assertion_error() -> None:
    async def agent(_: Scope, __: Prompt) -> AsyncIterator[AgentEvent]:
        yield {"type": "text", "delta": "a"}

    report = examine(Subject(lambda: Acting(agent), limits=LIMITS), AGENT[1])
    with pytest.raises(AssertionError, match="not conforming:\nA1 "):
        report.raise_for_failures()
    with pytest.raises(AssertionError, match=r"A1 .* does not hold"):
        report.findings[0].raise_for_failure()


def test_a_task_that_ignores_its_cancellation_is_left_behind() -> None:
    async def main() -> str:
        async def deaf() -> None:
            async for _ in swallows_every_cancel({"session": "s"}, {"text": "t"}):
                pass

        main.task = asyncio.create_task(deaf())  # type: ignore[attr-defined]
        await asyncio.sleep(0)
        return "done"

    assert run(main()) == "done"


def test_every_verdict_is_a_word() -> None:
    assert [str(verdict) for verdict in Verdict] == ["pass", "warn", "fail", "skip"]
