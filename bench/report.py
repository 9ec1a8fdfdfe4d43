"""Figures for people: medians, tables, and the stated goals, which are met or missed but never an error."""

import statistics
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

KIBIBYTE = 2**10
MEBIBYTE = 2**20
WIDTH = 118


def median(values: Sequence[float]) -> float:
    return statistics.median(values) if values else float("nan")


def percentile(values: Sequence[float], percent: float) -> float:
    """The value under which so many percent lie."""
    if not values:
        return float("nan")
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]


def thousands(value: float) -> str:
    return f"{value / 1000:,.1f} k"


def micros(seconds: float, count: float) -> str:
    """Processor time for each of so many, in microseconds."""
    return f"{seconds / count * 1e6:.1f}" if count else "-"


def milliseconds(*seconds: float) -> str:
    return " / ".join(f"{value * 1000:.2f}" for value in seconds)


class Report:
    """Prints as the bench goes and keeps the goals for its end."""

    def __init__(self) -> None:
        self._console = Console(highlight=False, soft_wrap=False)
        if not self._console.is_terminal:
            self._console = Console(highlight=False, width=WIDTH)
        self._goals: list[tuple[str, str, str, bool]] = []

    def say(self, text: str) -> None:
        self._console.print(text)

    def heading(self, text: str) -> None:
        self._console.print()
        self._console.rule(f"[bold]{text}", align="left")

    def table(self, *columns: str, rows: Sequence[Sequence[str]]) -> None:
        table = Table(*columns, pad_edge=False)
        for column in table.columns[1:]:
            column.justify = "right"
        for row in rows:
            table.add_row(*row)
        self._console.print(table)

    def goal(self, what: str, found: str, wanted: str, *, is_met: bool) -> None:
        self._goals.append((what, found, wanted, is_met))
        self._console.print(_verdict(what, found, wanted, is_met=is_met))

    def goals(self) -> None:
        """All goals once more."""
        if not self._goals:
            return
        self.heading("Goals")
        table = Table("goal", "found", "wanted", "", pad_edge=False)
        for what, found, wanted, is_met in self._goals:
            table.add_row(what, found, wanted, _word(is_met=is_met))
        self._console.print(table)


def _verdict(what: str, found: str, wanted: str, *, is_met: bool) -> str:
    return f"  goal: {what}: {found}, wanted {wanted}: {_word(is_met=is_met)}"


def _word(*, is_met: bool) -> str:
    return "[green]ok[/]" if is_met else "[red]missed[/]"
