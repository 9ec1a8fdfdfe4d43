"""Checks an agent in a process of its own: it can neither block nor end the one that asks.

The process tells what it finds as it goes, and beats while its event loop is free. When it falls silent it is asked
where it is, ended, and the statement that it was at has failed; likewise when it dies, takes too much memory or meddles
with what the two say to each other. The statements that are left are tried in a new process, until that has happened
`MOST_ENDS` times. What the agent prints is dropped. What it started ends with it: it is known by its group, and what went
into a session of its own by a mark in the environment that it inherits.
"""

import contextlib
import json
import os
import re
import secrets
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import psutil

from app.conformance.job import Job
from app.conformance.report import FAIL, SKIP, Finding, Report, Verdict
from app.conformance.statements import AGENT, Statement
from app.errors import AgentLoadError

LOADING = 60.0
MOST_ENDS = 3
_A_LAST_WORD = 0.5
_MOST_ENDING = 5.0
_LOOK = 0.2
_OF_THE_FREE_MEMORY = 0.75
_MARK = "CONFORMANCE_MARK"
_PLACE = re.compile(rb'File "([^"]+)", line (\d+) in (\S+)')


_MEDDLED = "it meddled with a descriptor that is not its own"


class _Ended(Exception):
    """The process is gone, or had to go; the message is the evidence."""


def check_isolated(job: Job, statements: Sequence[Statement] = AGENT) -> Report:
    """Try these statements. Raises `AgentLoadError` when the agent can't be loaded."""
    left = list(statements)
    findings: list[Finding] = []
    ends = 0
    while left and ends < MOST_ENDS:
        try:
            for finding in _checked(job, left):
                findings.append(finding)
                left.remove(finding.statement)
        except _Ended as ended:
            ends += 1
            # Lost after the last finding and before its end was told: that finding does not count.
            statement = left.pop(0) if left else findings.pop().statement
            findings.append(Finding(statement, FAIL, str(ended)))
    skipped = f"not tried: the process was lost {ends} times"
    return Report([*findings, *(Finding(statement, SKIP, skipped) for statement in left)])


def _checked(job: Job, statements: Sequence[Statement]) -> Iterator[Finding]:
    """What a process finds, as it goes. Raises `_Ended` when it is lost before the last one."""
    expected = {statement.id: statement for statement in statements}
    memory = job.memory or int(psutil.virtual_memory().available * _OF_THE_FREE_MEMORY)
    mark = secrets.token_hex(8)
    with tempfile.TemporaryFile() as said:
        read, write = os.pipe()
        process = subprocess.Popen(
            [sys.executable, "-m", "app.conformance.child"],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=[write, said.fileno()],
            start_new_session=True,
            env={**os.environ, "PYTHONPATH": _path(), _MARK: mark},
        )
        os.close(write)
        try:
            assert process.stdin is not None  # noqa: S101 - it is a pipe
            told = {"job": job.as_json(), "statements": list(expected), "out": write, "place": said.fileno()}
            process.stdin.write(json.dumps(told).encode())
            process.stdin.close()
            for message in _messages(process, read, said, job.stall, memory):
                if "refused" in message:
                    raise AgentLoadError(message["refused"], code=message["code"])
                if "found" in message:
                    yield _finding(message, expected)
        finally:
            os.close(read)
            _end(process, mark)


def _finding(message: dict[str, Any], expected: dict[str, Statement]) -> Finding:
    try:
        return Finding(expected.pop(message["found"]), Verdict(message["verdict"]), message["evidence"])
    except (LookupError, ValueError) as error:
        raise _Ended(_MEDDLED) from error


def _messages(
    process: "subprocess.Popen[bytes]", read: int, said: Any, stall: float, memory: int
) -> Iterator[dict[str, Any]]:
    rest = b""
    patience = LOADING
    heard = time.monotonic()
    while True:
        has_said = select.select([read], [], [], _LOOK)[0]
        if _taken(process) > memory:
            raise _Ended(f"it took more than {memory / 2**20:.0f} MiB of memory")
        if not has_said:
            if time.monotonic() - heard > patience:
                raise _Ended(f"it blocked the event loop for more than {patience:g} s{_where(process, said)}")
            continue
        chunk = os.read(read, 65536)
        if not chunk:
            raise _Ended(_how_it_ended(process))
        heard = time.monotonic()
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            message = _read(line)
            if "over" in message:
                return
            patience = stall
            yield message


def _read(line: bytes) -> dict[str, Any]:
    try:
        message = json.loads(line)
    except ValueError as error:
        raise _Ended(_MEDDLED) from error
    if not isinstance(message, dict):
        raise _Ended(_MEDDLED)
    return message


def _how_it_ended(process: "subprocess.Popen[bytes]") -> str:
    try:
        return f"it ended the process, with code {process.wait(_A_LAST_WORD)}"
    except subprocess.TimeoutExpired:
        return _MEDDLED


def _taken(process: "subprocess.Popen[bytes]") -> int:
    """How many bytes of memory it has."""
    try:
        return psutil.Process(process.pid).memory_info().rss
    except psutil.Error:
        return 0


def _where(process: "subprocess.Popen[bytes]", said: Any) -> str:
    """Where the process is, if it can still say so."""
    process.send_signal(signal.SIGUSR1)
    deadline = time.monotonic() + _A_LAST_WORD
    while time.monotonic() < deadline:
        said.seek(0)
        if place := _PLACE.search(said.read()):
            name, line, function = (part.decode(errors="replace") for part in place.groups())
            return f", at line {line} of {Path(name).name} in {function}"
        time.sleep(0.02)
    return ""


def _end(process: "subprocess.Popen[bytes]", mark: str) -> None:
    """End it and what it started, which then runs no more, but for what this process may not end."""
    if process.returncode is None:
        for kill in (os.kill, os.killpg):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                kill(process.pid, signal.SIGKILL)
    deadline = time.monotonic() + _MOST_ENDING
    while left := [each for each in psutil.process_iter() if _was_started(each, process, mark)]:
        for each in left:
            with contextlib.suppress(psutil.Error):
                each.kill()
        psutil.wait_procs(left, timeout=_A_LAST_WORD)
        if time.monotonic() > deadline:
            break
    process.wait()


def _was_started(found: psutil.Process, by: "subprocess.Popen[bytes]", mark: str) -> bool:
    """Whether it was started by this process and still runs."""
    with contextlib.suppress(psutil.Error, OSError):
        if found.pid == by.pid or found.status() == psutil.STATUS_ZOMBIE:
            return False
        # Until it is waited for, its number, which is its group's, is nobody else's.
        if by.returncode is None and os.getpgid(found.pid) == by.pid:
            return True
        return found.environ().get(_MARK) == mark
    return False


def _path() -> str:
    """Where modules are found: as here, and in the current directory, as when an agent is served."""
    return os.pathsep.join(path or "." for path in (*sys.path, "."))
