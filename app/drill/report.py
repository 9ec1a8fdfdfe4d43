"""The drill's table: faults against invariants, then the figures, then each violation."""

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from app.drill.findings import INVARIANTS, Findings

NOT_CHECKED = "·"
MIB = 2**20


def show(console: Console, found: Sequence[Findings], seed: int, seconds: float) -> None:
    """Print everything."""
    console.print(_table(found, seed, seconds))
    for findings in found:
        for note in findings.notes:
            console.print(Text(f"{findings.fault}: {note}", style="dim"))
        if findings.skipped is not None:
            console.print(Text(f"{findings.fault} WAS NOT DONE: {findings.skipped}", style="bold yellow"))
    for findings in found:
        for violation in findings.violations:
            where = f"{findings.fault} {violation.invariant} {INVARIANTS[violation.invariant]}: "
            console.print(Text(where, style="red").append(violation.what, style="default"))


def _table(found: Sequence[Findings], seed: int, seconds: float) -> Table:
    table = Table(title=f"The drill: violations of each invariant (seed {seed}, {seconds:.0f} s)")
    table.add_column("fault", no_wrap=True)
    for column in ("rounds", *(f"{name}\n{word}" for name, word in INVARIANTS.items())):
        table.add_column(column, justify="right")
    for column in (
        "events",
        "turns",
        "resumed",
        "boot s",
        "orphan s",
        "abort s",
        "usable s",
        "RSS MiB",
        "took s",
    ):
        table.add_column(column, justify="right")
    for findings in found:
        table.add_row(*_row(findings))
    return table


def _row(findings: Findings) -> list[Text]:
    figures = findings.figures
    return [
        Text(f"{findings.fault} {findings.title}"),
        Text("skipped", style="yellow") if findings.skipped else Text(str(findings.rounds)),
        *(_cell(findings, invariant) for invariant in INVARIANTS),
        Text(str(figures.events)),
        Text(" ".join(f"{status[:5]} {count}" for status, count in sorted(figures.turns.items()))),
        Text(str(figures.resumed)),
        *(
            _seconds(value)
            for value in (
                figures.slowest_boot,
                figures.slowest_orphan,
                figures.slowest_abort,
                figures.slowest_use,
            )
        ),
        Text(f"{figures.largest_rss / MIB:.0f}" if figures.largest_rss else NOT_CHECKED),
        Text(f"{findings.seconds:.0f}"),
    ]


def _cell(findings: Findings, invariant: str) -> Text:
    count = sum(violation.invariant == invariant for violation in findings.violations)
    if count:
        return Text(str(count), style="bold red")
    return Text("0", style="green") if invariant in findings.checked else Text(NOT_CHECKED, style="dim")


def _seconds(value: float) -> Text:
    return Text(f"{value:.2f}") if value else Text(NOT_CHECKED, style="dim")
