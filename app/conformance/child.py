"""The process in which an agent is checked for `app.conformance.isolated`: reads a job, writes what it finds.

The job comes on stdin; lines of JSON go to the descriptor that it names, and a beat as long as the event loop is free.
What the agent forks has that descriptor no more: two would speak at once. A SIGUSR1 writes where the process is to
another one. At the end it leaves at once: the agent may have left threads behind.
"""

import asyncio
import faulthandler
import json
import os
import signal
import sys
from typing import Any

from app.conformance.agent import examine_agent
from app.conformance.job import Job
from app.conformance.report import Finding
from app.conformance.running import run
from app.conformance.statements import AGENT, Statement, named
from app.conformance.subject import Subject
from app.errors import TarkoError

BEAT = 0.2


def main() -> None:
    """Do the job."""
    told = json.load(sys.stdin)
    out, place = int(told["out"]), int(told["place"])
    faulthandler.register(signal.SIGUSR1, file=place, all_threads=False)
    os.set_inheritable(out, False)  # noqa: FBT003 - it takes no names
    os.register_at_fork(after_in_child=lambda: _silence(out))
    try:
        subject = Job.of(told["job"]).subject()
    except TarkoError as error:
        _write(out, {"refused": str(error), "code": error.code})
    else:
        run(_examine(subject, [named(AGENT, each) for each in told["statements"]], out))
        _write(out, {"over": True})
    os._exit(0)


async def _examine(subject: Subject, statements: list[Statement], out: int) -> None:
    async def beat() -> None:
        while True:
            _write(out, {"beat": True})
            await asyncio.sleep(BEAT)

    def found(finding: Finding) -> None:
        _write(
            out,
            {"found": finding.statement.id, "verdict": str(finding.verdict), "evidence": finding.evidence},
        )

    beating = asyncio.create_task(beat(), name="conformance: beats")
    await asyncio.sleep(0)
    await examine_agent(
        subject, statements, begun=lambda statement: _write(out, {"begun": statement.id}), found=found
    )
    beating.cancel()


def _silence(out: int) -> None:
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, out, inheritable=False)
    os.close(nowhere)


def _write(out: int, message: dict[str, Any]) -> None:
    os.write(out, json.dumps(message).encode() + b"\n")


if __name__ == "__main__":
    main()
