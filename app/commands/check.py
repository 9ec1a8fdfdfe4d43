"""`tarko-server check`: whether an agent, or the agent of a server, keeps the Agent Handler's contract.

The agent runs in a process of its own: whatever it does, there is a report. Returns 1 when a statement does not hold.
"""

import json
import sys
from collections import Counter
from dataclasses import dataclass

from rich.table import Table
from rich.text import Text

from app.commands.configuration import load_settings
from app.commands.failures import CommandFailed
from app.commands.rendering import clean
from app.commands.screen import wide_console
from app.conformance.isolated import check_isolated
from app.conformance.job import Job
from app.conformance.playing import Limits
from app.conformance.remote import Over
from app.conformance.report import Report, Verdict
from app.conformance.statements import AGENT, Statement

_COLOURS = {Verdict.PASS: "green", Verdict.WARN: "yellow", Verdict.FAIL: "red", Verdict.SKIP: "dim"}


@dataclass(frozen=True, slots=True)
class Prompts:
    """What the agent is asked. `remember` is said, asked, and what the answer must have."""

    ordinary: str
    failing: str | None
    waiting: str | None
    remember: tuple[str, str, str] | None


def check(
    target: str | None,
    prompts: Prompts,
    *,
    over: Over,
    token: str | None,
    only: str,
    patience: float,
    as_json: bool,
) -> int:
    """Check and show the report; returns the exit code. Raises `AgentLoadError`, `CommandFailed`."""
    job = Job(
        target or load_settings().agent,
        prompt=prompts.ordinary,
        failing=prompts.failing,
        waiting=prompts.waiting,
        conversation=prompts.remember,
        token=token,
        over=over,
        limits=Limits(patience=patience),
    )
    report = check_isolated(job, _chosen(only))
    if as_json:
        told = {
            "target": job.target,
            "conforms": not report.failures,
            "findings": [finding.as_json() for finding in report.findings],
        }
        sys.stdout.write(json.dumps(told, indent=2) + "\n")
    else:
        console = wide_console()
        console.print(table(report))
        console.print(summary(job.target, report), style=None, highlight=False)
    return 1 if report.failures else 0


def table(report: Report) -> Table:
    """The findings as a table."""
    shown = Table(box=None, pad_edge=False)
    for title in ("ID", "VERDICT", "STATEMENT", "EVIDENCE", "CLAUSE"):
        shown.add_column(title, overflow="fold", no_wrap=title in ("ID", "VERDICT"))
    for finding in report.findings:
        statement = finding.statement
        verdict = Text(str(finding.verdict), style=_COLOURS[finding.verdict])
        evidence = Text(clean(" ".join(finding.evidence.split())))
        shown.add_row(statement.id, verdict, Text(statement.text), evidence, Text(statement.clause))
    return shown


def summary(target: str, report: Report) -> str:
    """One line: how many of each verdict, and what that means."""
    counts = Counter(finding.verdict for finding in report.findings)
    told = ", ".join(f"{counts[verdict]} {verdict}" for verdict in Verdict if counts[verdict])
    return f"{clean(target)}: {'does not conform' if report.failures else 'conforms'} ({told})"


def _chosen(only: str) -> tuple[Statement, ...]:
    wanted = {word.strip().lower() for word in only.split(",") if word.strip()}
    unknown = wanted - {statement.id.lower() for statement in AGENT}
    if unknown:
        known = ", ".join(statement.id for statement in AGENT)
        raise CommandFailed(
            f"There is no statement {sorted(unknown)[0]!r}; there are {known}.", code="no_such_statement"
        )
    return tuple(statement for statement in AGENT if not wanted or statement.id.lower() in wanted)
