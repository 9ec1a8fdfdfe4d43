"""What a check found: a verdict and the evidence for it, statement by statement."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeAlias

from app.conformance.statements import Statement


class Verdict(StrEnum):
    """`warn` is a breach that no caller has to suffer from; `skip` says why a statement could not be tried."""

    PASS = "pass"  # noqa: S105 - no password
    WARN = "warn"
    FAIL = "fail"
    SKIP = "skip"


PASS, WARN, FAIL, SKIP = Verdict.PASS, Verdict.WARN, Verdict.FAIL, Verdict.SKIP

Judgement: TypeAlias = tuple[Verdict, str]
"""A verdict and the evidence for it."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What was found of one statement."""

    statement: Statement
    verdict: Verdict
    evidence: str

    def raise_for_failure(self) -> None:
        """Raise AssertionError if the statement does not hold."""
        if self.verdict is Verdict.FAIL:
            raise AssertionError(
                f"{self.statement.id} ({self.statement.text}) does not hold: {self.evidence}"
            )

    def as_json(self) -> Mapping[str, Any]:
        """The finding as an object."""
        return {
            "id": self.statement.id,
            "verdict": str(self.verdict),
            "statement": self.statement.text,
            "clause": self.statement.clause,
            "evidence": self.evidence,
        }


@dataclass(frozen=True, slots=True)
class Report:
    """All findings, in the order of the statements."""

    findings: Sequence[Finding]

    @property
    def failures(self) -> list[Finding]:
        """Those that do not hold."""
        return [finding for finding in self.findings if finding.verdict is Verdict.FAIL]

    def verdicts(self) -> dict[str, Verdict]:
        """The verdict of each statement, by its id."""
        return {finding.statement.id: finding.verdict for finding in self.findings}

    def raise_for_failures(self) -> None:
        """Raise AssertionError that names every statement that does not hold."""
        if self.failures:
            lines = [
                f"{finding.statement.id} {finding.statement.text}: {finding.evidence}"
                for finding in self.failures
            ]
            raise AssertionError("not conforming:\n" + "\n".join(lines))
