"""What the drill's agents have said, kept where `kill -9` and a power cut can't reach it.

One line an event: `<turn> <number> <hash of the text>`, `<turn> end -` before a turn's terminal event, and
`<turn> over <epoch ms>` when the agent's code has cleaned up. Every process appends to the same file; each line is
one write, on the disk before it returns, and before the event is said.
"""

import hashlib
import os
import time
from dataclasses import dataclass, field
from pathlib import Path

JOURNAL = "DRILL_JOURNAL"


def hash_of(said: bytes) -> str:
    """What is compared instead of texts and events."""
    return hashlib.sha256(said).hexdigest()[:24]


@dataclass(slots=True)
class Said:
    """What one turn's agent said: the hash of each text, whether it came to its end, and when its code was over."""

    words: list[str] = field(default_factory=list)
    has_ended: bool = False
    over_at: int | None = None


class Journal:
    """The journal of this process, for one turn."""

    def __init__(self, turn_id: str) -> None:
        self._turn_id = turn_id
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_DSYNC
        self._file = os.open(os.environ[JOURNAL], flags, 0o600)

    def says(self, number: int, text: str) -> None:
        self._write(f"{number} {hash_of(text.encode())}")

    def ends(self) -> None:
        self._write("end -")

    def is_over(self) -> None:
        self._write(f"over {time.time_ns() // 1_000_000}")
        os.close(self._file)

    def _write(self, what: str) -> None:
        os.write(self._file, f"{self._turn_id} {what}\n".encode())


def read_journal(file: Path) -> dict[str, Said]:
    """What each turn's agent said."""
    said: dict[str, Said] = {}
    for line in file.read_text().splitlines() if file.exists() else ():
        turn_id, what, value = line.split(" ")
        turn = said.setdefault(turn_id, Said())
        match what:
            case "end":
                turn.has_ended = True
            case "over":
                turn.over_at = int(value)
            case _:
                turn.words.append(value)
    return said
