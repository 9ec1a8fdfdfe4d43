"""`make drill`: fifty rounds of `kill -9`, and a table of what was found."""

import argparse
import asyncio
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tests.drill.rounds import Findings, drill

INVARIANTS = ("I1 lost", "I2 doubled", "I3 order", "I4 ending", "I5 usable")


def main() -> int:
    """Run the drill; the exit code says whether an invariant broke."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--rounds", type=int, default=50)
    options.add_argument("--seed", type=int, default=time.time_ns() % 2**32)
    chosen = options.parse_args()
    with tempfile.TemporaryDirectory(prefix="drill-", dir="/tmp") as directory:
        findings = asyncio.run(drill(Path(directory), chosen.rounds, chosen.seed))
    _show(findings, chosen.seed)
    return 1 if findings.violations else 0


def _show(findings: Findings, seed: int) -> None:
    table = Table(title=f"{findings.rounds} rounds of kill -9 (seed {seed})")
    table.add_column("invariant")
    table.add_column("violations", justify="right")
    for invariant in INVARIANTS:
        found = [what for which, what in findings.violations if which == invariant]
        table.add_row(invariant, str(len(found)), style="red" if found else "")
    console = Console()
    console.print(table)
    console.print(
        f"{sum(findings.turns.values())} turns {dict(findings.turns)}, {findings.events} events, "
        f"{findings.resumed} readers resumed, slowest start {findings.slowest_start:.2f} s"
    )
    for which, what in findings.violations[:20]:
        console.print(f"[red]{which}[/]: {what}")


if __name__ == "__main__":
    sys.exit(main())
