"""Checks an agent in a process of its own: it can neither block nor end the one that asks.

The process tells what it finds as it goes, and beats while its event loop is free. When it falls silent it is asked
where it is, ended, and the statement that it was at has failed; likewise when it dies. The statements that are left are
tried in a new process, until that has happened `MOST_ENDS` times.
"""

import contextlib
import json
import os
import re
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from app.conformance.job import Job
from app.conformance.report import Finding, Report, Verdict
from app.conformance.statements import AGENT, Statement
from app.errors import AgentLoadError

LOADING = 60.0
MOST_ENDS = 3
_A_LAST_WORD = 0.5
_PLACE = re.compile(rb'File "([^"]+)", line (\d+) in (\S+)')


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
            findings.append(Finding(left.pop(0), Verdict.FAIL, str(ended)))
    skipped = f"not tried: the process was lost {ends} times"
    return Report([*findings, *(Finding(statement, Verdict.SKIP, skipped) for statement in left)])


def _checked(job: Job, statements: Sequence[Statement]) -> Iterator[Finding]:
    """What a process finds, as it goes. Raises `_Ended` when it is lost before the last one."""
    expected = {statement.id: statement for statement in statements}
    with tempfile.TemporaryFile() as said:
        read, write = os.pipe()
        process = subprocess.Popen(
            [sys.executable, "-m", "app.conformance.child"],
            stdin=subprocess.PIPE,
            stdout=said,
            stderr=said,
            pass_fds=[write],
            start_new_session=True,
            env={**os.environ, "PYTHONPATH": _path()},
        )
        os.close(write)
        try:
            assert process.stdin is not None  # noqa: S101 - it is a pipe
            told = {"job": job.as_json(), "statements": list(expected), "out": write}
            process.stdin.write(json.dumps(told).encode())
            process.stdin.close()
            for message in _messages(process, read, said, job.stall):
                if "refused" in message:
                    raise AgentLoadError(message["refused"], code=message["code"])
                if "found" in message:
                    statement = expected[message["found"]]
                    yield Finding(statement, Verdict(message["verdict"]), message["evidence"])
        finally:
            os.close(read)
            _end(process)


def _messages(
    process: "subprocess.Popen[bytes]", read: int, said: Any, stall: float
) -> Iterator[dict[str, Any]]:
    rest = b""
    patience = LOADING
    while True:
        if not select.select([read], [], [], patience)[0]:
            raise _Ended(f"it blocked the event loop for more than {patience:g} s{_where(process, said)}")
        chunk = os.read(read, 65536)
        if not chunk:
            code = process.wait()
            raise _Ended(f"it ended the process, with code {code}")
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            message: dict[str, Any] = json.loads(line)
            if "over" in message:
                return
            patience = stall
            yield message


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


def _end(process: "subprocess.Popen[bytes]") -> None:
    """End it and what it started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _path() -> str:
    """Where modules are found: as here, and in the current directory, as when an agent is served."""
    return os.pathsep.join(path or "." for path in (*sys.path, "."))
