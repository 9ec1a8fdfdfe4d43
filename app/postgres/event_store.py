"""The log's storage in PostgreSQL.

Places are given in the transaction that stores the events: it locks the heads of the sessions, in id order, then the
turns, and counts on. A small batch is one statement; from `COPY_FROM` drafts on, the same steps are taken one by one
around a COPY, which is faster per row. Both say what became of each strand: placed, repeated (an earlier try had stored
it), or dropped.
"""

from collections.abc import Sequence
from itertools import accumulate

import asyncpg

from app.errors import StorageUnavailable
from app.events.envelope import Envelope, Placed, now_ms
from app.log.store import Head, Slice, Strand, StrandRejected
from app.postgres.pool import Connection, Pool

COPY_FROM = 100

_STRAND = """
WITH strand AS (
  SELECT * FROM unnest($1::int[], $2::text[], $3::text[], $4::int[], $5::int[], $6::text[], $7::text[], $8::text[],
                       $9::bool[], $10::int[], $11::int[])
    AS s(line, session_id, turn_id, epoch, first, key, status, code, closes, drafts, lasting)
), head AS MATERIALIZED (
  SELECT session_id, last_seq, lasting_count, phase FROM heads
  WHERE session_id IN (SELECT session_id FROM strand) AND phase <> 'closed'
  ORDER BY session_id FOR UPDATE
), owner AS MATERIALIZED (
  SELECT id, epoch, state, stored, last_seq FROM turns
  WHERE (SELECT count(*) FROM head) > 0  -- the heads are locked before any turn
    AND id IN (SELECT turn_id FROM strand)
  ORDER BY id FOR UPDATE
), fate AS (
  SELECT s.*, h.last_seq, h.lasting_count, e.seq AS key_seq, o.last_seq AS turn_seq,
    CASE WHEN h.session_id IS NULL THEN 'dropped'
         WHEN e.seq IS NOT NULL THEN 'repeated'
         WHEN s.turn_id IS NULL THEN CASE WHEN s.closes OR h.phase = 'open' THEN 'fresh' ELSE 'dropped' END
         WHEN o.epoch IS DISTINCT FROM s.epoch THEN 'dropped'
         WHEN o.stored >= s.first THEN 'repeated'
         WHEN o.state = 'running' THEN 'fresh'
         ELSE 'dropped' END AS fate
  FROM strand s
  LEFT JOIN head h USING (session_id)
  LEFT JOIN owner o ON o.id = s.turn_id
  LEFT JOIN events e ON e.key = s.key
)"""

_LOCK = (
    _STRAND
    + """
SELECT line, fate, last_seq, lasting_count, coalesce(key_seq, turn_seq) AS stored_at FROM fate ORDER BY line"""
)

_APPEND = (
    _STRAND
    + """, fresh AS (
  SELECT *,
    last_seq + coalesce(sum(drafts) OVER before, 0) AS after,
    lasting_count + coalesce(sum(lasting) OVER before, 0) AS ordinal_after
  FROM fate WHERE fate = 'fresh'
  WINDOW before AS (PARTITION BY session_id ORDER BY line ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)
), moved AS (
  UPDATE heads h SET
    last_seq = h.last_seq + f.drafts, lasting_count = h.lasting_count + f.lasting,
    phase = CASE WHEN f.closes THEN 'closed' ELSE h.phase END
  FROM (SELECT session_id, sum(drafts) AS drafts, sum(lasting) AS lasting, bool_or(closes) AS closes
        FROM fresh GROUP BY session_id) f
  WHERE h.session_id = f.session_id
), owned AS (
  UPDATE turns t SET
    stored = f.stored, last_seq = f.last_seq, status = f.status, code = f.code,
    state = CASE WHEN f.status IS NULL THEN 'running' ELSE 'ended' END,
    ended_at = CASE WHEN f.status IS NULL THEN NULL ELSE $12::bigint END
  FROM (SELECT turn_id, max(first + drafts - 1) AS stored, max(after + drafts) AS last_seq,
               max(status) AS status, max(code) AS code
        FROM fresh WHERE turn_id IS NOT NULL GROUP BY turn_id) f
  WHERE t.id = f.turn_id
), written AS (
  INSERT INTO events (session_id, seq, ordinal, turn_id, type, ts, data, metadata, key)
  SELECT f.session_id, f.after + d.nth, f.ordinal_after + d.nth_lasting, f.turn_id, d.type, d.ts, d.data, d.metadata,
         f.key
  FROM unnest($13::int[], $14::int[], $15::int[], $16::text[], $17::bigint[], $18::json[], $19::json[])
    AS d(line, nth, nth_lasting, type, ts, data, metadata)
  JOIN fresh f USING (line)
)
SELECT s.line, s.fate, f.after AS last_seq, f.ordinal_after AS lasting_count,
       coalesce(s.key_seq, s.turn_seq) AS stored_at
FROM fate s LEFT JOIN fresh f USING (line) ORDER BY s.line"""
)

_MOVE = """
WITH fresh AS (
  SELECT * FROM unnest($1::text[], $2::text[], $3::int[], $4::bigint[], $5::bigint[], $6::text[], $7::text[], $8::bool[])
    AS f(session_id, turn_id, stored, last_seq, lasting_count, status, code, closes)
), moved AS (
  UPDATE heads h SET last_seq = f.last_seq, lasting_count = f.lasting_count,
    phase = CASE WHEN f.closes THEN 'closed' ELSE h.phase END
  FROM (SELECT session_id, max(last_seq) AS last_seq, max(lasting_count) AS lasting_count, bool_or(closes) AS closes
        FROM fresh GROUP BY session_id) f
  WHERE h.session_id = f.session_id
)
UPDATE turns t SET
  stored = f.stored, last_seq = f.last_seq, status = f.status, code = f.code,
  state = CASE WHEN f.status IS NULL THEN 'running' ELSE 'ended' END,
  ended_at = CASE WHEN f.status IS NULL THEN NULL ELSE $9::bigint END
FROM (SELECT turn_id, max(stored) AS stored, max(last_seq) AS last_seq, max(status) AS status, max(code) AS code
      FROM fresh WHERE turn_id IS NOT NULL GROUP BY turn_id) f
WHERE t.id = f.turn_id"""

_COLUMNS = ("session_id", "seq", "ordinal", "turn_id", "type", "ts", "data", "metadata", "key")

_HEAD = """
SELECT h.last_seq, h.lasting_count, t.id, h.phase = 'closed'
FROM heads h LEFT JOIN turns t ON t.session_id = h.session_id AND t.state = 'running'
WHERE h.session_id = $1"""

# The inner query finds out how far the budget reaches without fetching any data.
_READ = """
SELECT session_id, seq, ordinal, turn_id, type, ts, data, metadata FROM (
  SELECT *, sum(pg_column_size(data)) OVER (ORDER BY seq) - pg_column_size(data) AS size_before FROM (
    SELECT * FROM events
    WHERE session_id = $1 AND seq > $2 AND seq <= $3
      AND ($4::text IS NULL OR ordinal IS NOT NULL OR turn_id = $4)
    ORDER BY seq LIMIT $5) page) sized
WHERE size_before < $6 ORDER BY seq"""

_LAST_PLACE = 2**62


class PostgresEventStore:
    """`app.log.store.EventStore` over a pool."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def write(self, strands: Sequence[Strand]) -> list[Placed | None]:
        count = sum(len(strand.drafts) for strand in strands)
        try:
            async with self._pool.connection() as connection:
                if count < COPY_FROM:
                    return await _append(connection, strands)
                async with connection.transaction():
                    return await _copy(connection, strands)
        except asyncpg.UniqueViolationError as error:
            # The earlier try whose answer was lost was still committing; now it has.
            raise StorageUnavailable(str(error)) from error
        except asyncpg.PostgresError as error:
            raise StrandRejected(f"{type(error).__name__}: {error}") from error

    async def head(self, session_id: str) -> Head | None:
        async with self._pool.connection() as connection:
            row = await connection.fetchrow(_HEAD, session_id)
        return None if row is None else Head(*row)

    async def read(self, session_id: str, which: Slice) -> list[Envelope]:
        upto = _LAST_PLACE if which.upto is None else which.upto
        async with self._pool.connection() as connection:
            rows = await connection.fetch(
                _READ, session_id, which.after, upto, which.whole_turn, which.limit, which.budget
            )
        return [Envelope(*row) for row in rows]


async def _append(connection: Connection, strands: Sequence[Strand]) -> list[Placed | None]:
    drafts = [(line, draft) for line, strand in enumerate(strands) for draft in strand.drafts]
    nth: list[int] = []
    nth_lasting: list[int | None] = []
    for strand in strands:
        nth.extend(range(1, len(strand.drafts) + 1))
        counts = accumulate(draft.is_lasting for draft in strand.drafts)
        nth_lasting.extend(
            count if draft.is_lasting else None for count, draft in zip(counts, strand.drafts, strict=True)
        )
    rows = await connection.fetch(
        _APPEND,
        *_strand_columns(strands),
        now_ms(),
        [line for line, _ in drafts],
        nth,
        nth_lasting,
        [draft.type for _, draft in drafts],
        [draft.timestamp for _, draft in drafts],
        [draft.data for _, draft in drafts],
        [draft.metadata for _, draft in drafts],
    )
    return [_placed(row, strand) for row, strand in zip(rows, strands, strict=True)]


async def _copy(connection: Connection, strands: Sequence[Strand]) -> list[Placed | None]:
    rows = await connection.fetch(_LOCK, *_strand_columns(strands))
    standing: dict[str, tuple[int, int]] = {}
    places: list[Placed | None] = []
    moves = []
    records: list[tuple[object, ...]] = []
    for row, strand in zip(rows, strands, strict=True):
        if row["fate"] != "fresh":
            places.append(_placed(row, strand))
            continue
        after, ordinal = standing.get(strand.session_id, (row["last_seq"], row["lasting_count"]))
        placed = Placed(after, ordinal, 0, after + len(strand.drafts))
        places.append(placed)
        ordinal = _add_records(records, strand, placed)
        standing[strand.session_id] = (placed.last, ordinal)
        moves.append((strand, placed.last, ordinal))
    if records:
        await connection.copy_records_to_table("events", records=records, columns=_COLUMNS)
        await connection.execute(_MOVE, *_move_columns(moves), now_ms())
    return places


def _add_records(records: list[tuple[object, ...]], strand: Strand, placed: Placed) -> int:
    session_id, key = strand.session_id, strand.key
    turn_id = strand.fence.turn_id if strand.fence else None
    seq, ordinal = placed.after, placed.ordinal_after
    for draft in strand.drafts:
        seq += 1
        if draft.is_lasting:
            ordinal += 1
        records.append(
            (
                session_id,
                seq,
                ordinal if draft.is_lasting else None,
                turn_id,
                draft.type,
                draft.timestamp,
                draft.data,
                draft.metadata,
                key,
            )
        )
    return ordinal


def _strand_columns(strands: Sequence[Strand]) -> list[list[object]]:
    rows = [
        (
            line,
            strand.session_id,
            strand.fence.turn_id if strand.fence else None,
            strand.fence.epoch if strand.fence else None,
            strand.first,
            strand.key,
            strand.ending.status if strand.ending else None,
            strand.ending.code if strand.ending else None,
            strand.closes_session,
            len(strand.drafts),
            sum(draft.is_lasting for draft in strand.drafts),
        )
        for line, strand in enumerate(strands)
    ]
    return [list(column) for column in zip(*rows, strict=True)]


def _move_columns(moves: Sequence[tuple[Strand, int, int]]) -> list[list[object]]:
    rows = [
        (
            strand.session_id,
            strand.fence.turn_id if strand.fence else None,
            strand.first + len(strand.drafts) - 1,
            last_seq,
            lasting_count,
            strand.ending.status if strand.ending else None,
            strand.ending.code if strand.ending else None,
            strand.closes_session,
        )
        for strand, last_seq, lasting_count in moves
    ]
    return [list(column) for column in zip(*rows, strict=True)]


def _placed(row: asyncpg.Record, strand: Strand) -> Placed | None:
    count = len(strand.drafts)
    match row["fate"]:
        case "fresh":
            after = int(row["last_seq"])
            return Placed(after, int(row["lasting_count"]), 0, after + count)
        case "repeated":
            return Placed(0, 0, count, row["stored_at"])
        case _:
            return None
