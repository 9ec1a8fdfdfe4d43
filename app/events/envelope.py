"""An event before and after it has its place.

A `Draft` is an event that somebody wants in a session's log; an `Envelope` is one that is there. Only `place` makes
one from the other, and only with the place that the store gave. `data` and `metadata` are canonical JSON, encoded
once; nobody parses them again to pass them on.

A *lasting* event stays for ever and is counted by an `ordinal`, its number among the session's lasting events. A
*passing* one (a delta) is removed some time after its turn ended: the message that closes it repeats it.
"""

import time
from collections.abc import Sequence
from typing import NamedTuple


class Draft(NamedTuple):
    """An event without a place. `timestamp` is epoch milliseconds; `data` and `metadata` are canonical JSON."""

    type: str
    timestamp: int
    data: bytes
    metadata: bytes
    is_lasting: bool = True


class Envelope(NamedTuple):
    """An event in the log. `ordinal` is None for a passing event; `turn_id` is None outside turns."""

    session_id: str
    place: int
    ordinal: int | None
    turn_id: str | None
    type: str
    timestamp: int
    data: bytes
    metadata: bytes


class Placed(NamedTuple):
    """Where the store put a run of drafts.

    `after` is the place and `ordinal_after` the ordinal before the first newly stored one; `skipped` counts those at
    the front that an earlier try had stored; `last` is the place of the last draft of the run.
    """

    after: int
    ordinal_after: int
    skipped: int
    last: int


def place(session_id: str, turn_id: str | None, drafts: Sequence[Draft], placed: Placed) -> list[Envelope]:
    """The envelopes of the newly stored drafts, oldest first."""
    envelopes = []
    seq, ordinal = placed.after, placed.ordinal_after
    # A named tuple's own constructor takes twice the time of everything else here.
    new = tuple.__new__
    for kind, timestamp, data, marks, is_lasting in drafts[placed.skipped :] if placed.skipped else drafts:
        seq += 1
        if is_lasting:
            ordinal += 1
        values = (session_id, seq, ordinal if is_lasting else None, turn_id, kind, timestamp, data, marks)
        envelopes.append(new(Envelope, values))
    return envelopes


def now_ms() -> int:
    """The time as events tell it: epoch milliseconds."""
    return time.time_ns() // 1_000_000
