"""Fails when the measured branch coverage is under what each part of the project must have."""

import sys
from pathlib import Path

from coverage import Coverage

FLOORS = {
    "app/events/*,app/agents/*,app/log/*,app/turns/*,app/dialects/*": 100.0,
    "app/*": 95.0,
    "clients/python/tarko_client/*": 95.0,
}
# Measured where the frameworks are; without that environment nothing can be said of them.
FRAMEWORKS = "app/agents/adapters/frameworks/*"
HAS_FRAMEWORKS = Path(".venv-adapters/tested").exists()


def main() -> int:
    """Report each part and return the exit code."""
    measured = Coverage()
    measured.load()
    code = 0
    for include, floor in FLOORS.items():
        total = measured.report(
            include=include.split(","),
            omit=[] if HAS_FRAMEWORKS else [FRAMEWORKS],
            skip_covered=True,
            show_missing=True,
        )
        if round(total, 2) < floor:
            sys.stderr.write(f"{include}: {total:.2f} % is under {floor} %\n")
            code = 1
    return code


if __name__ == "__main__":
    sys.exit(main())
