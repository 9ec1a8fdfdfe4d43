"""What a drill has found: violations by invariant and fault, and figures."""

from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple

INVARIANTS = {
    "I1": "lost",
    "I2": "doubled",
    "I3": "order",
    "I4": "ending",
    "I5": "usable",
    "I6": "bounded",
    "I7": "orphan",
    "I8": "honest",
    "I9": "isolated",
    "I10": "clean",
}


class Violation(NamedTuple):
    """An invariant that was broken, and how."""

    invariant: str
    what: str


@dataclass(slots=True)
class Figures:
    """What was counted and measured; times are seconds, memory is bytes."""

    events: int = 0
    turns: Counter[str] = field(default_factory=Counter)
    resumed: int = 0
    slowest_boot: float = 0.0
    slowest_orphan: float = 0.0
    slowest_abort: float = 0.0
    slowest_use: float = 0.0
    largest_rss: int = 0


@dataclass(slots=True)
class Findings:
    """What one fault's rounds have found. `checked` are the invariants that were looked at."""

    fault: str
    title: str
    rounds: int = 0
    seconds: float = 0.0
    figures: Figures = field(default_factory=Figures)
    checked: set[str] = field(default_factory=set)
    violations: list[Violation] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    skipped: str | None = None

    def add(self, invariant: str, what: str) -> None:
        self.violations.append(Violation(invariant, what))
