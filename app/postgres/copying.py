"""Events as rows of PostgreSQL's binary COPY format, a piece at a time.

The driver's own encoder holds a row twice, whole, until the server has taken it: for a closing message of 24 MB, that
is more than all else the server needs. Source: https://www.postgresql.org/docs/current/sql-copy.html, "Binary Format".
"""

from collections.abc import AsyncIterator, Iterable
from struct import Struct

from app.events.envelope import Draft, Placed
from app.log.store import Strand

COLUMNS = ("session_id", "turn_id", "seq", "ordinal", "type", "ts", "data", "metadata", "key")
PIECE = 2**18  # bytes

_BEGIN = b"PGCOPY\n\xff\r\n\0" + bytes(8)
_END = b"\xff\xff"
_NULL = b"\xff\xff\xff\xff"
_count = Struct(">h").pack
_length = Struct(">i").pack
_bigint = Struct(">iq").pack


async def binary_rows(placings: Iterable[tuple[Strand, Placed]]) -> AsyncIterator[bytes]:
    """What COPY reads for the strands, each with its place, in pieces of about `PIECE` bytes.

    Raises ValueError for text that is not Unicode, `struct.error` for a number that is too large.
    """
    waiting = bytearray(_BEGIN)
    for strand, placed in placings:
        owner = _count(len(COLUMNS)) + _text(strand.session_id) + _text(strand.fence and strand.fence.turn_id)
        seq, ordinal = placed.after, placed.ordinal_after
        for draft in strand.drafts:
            seq += 1
            ordinal += draft.is_lasting
            waiting += owner + _bigint(8, seq) + (_bigint(8, ordinal) if draft.is_lasting else _NULL)
            waiting += _text(draft.type) + _bigint(8, draft.timestamp)
            for part in _json(draft):
                waiting += part
                if len(waiting) >= PIECE:
                    yield bytes(waiting)
                    waiting.clear()
            waiting += _text(strand.key) if seq == placed.last else _NULL
    yield bytes(waiting) + _END


def _text(value: str | None) -> bytes:
    if value is None:
        return _NULL
    encoded = value.encode()
    return _length(len(encoded)) + encoded


def _json(draft: Draft) -> Iterable[bytes | memoryview]:
    for value in (draft.data, draft.metadata):
        yield _length(len(value))
        if len(value) < PIECE:
            yield value
        else:
            view = memoryview(value)
            yield from (view[start : start + PIECE] for start in range(0, len(view), PIECE))
