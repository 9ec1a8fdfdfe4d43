"""The log's storage in PostgreSQL.

Places are given in the transaction that stores the events: it locks the heads of the sessions, in id order, then the
turns, and counts on. A batch is one statement, unless its strands are long: then the same steps are taken one by one
around a COPY, which costs less per row but answers six times, each time at a later turn of the loop. Both say what became
of each strand: placed, repeated (an earlier try had stored it), or dropped.
"""

import struct
from collections.abc import Sequence
from itertools import accumulate

import asyncpg

from app.errors import StorageUnavailable
from app.events.envelope import Envelope, Placed, now_ms
from app.log.history import HistoryPage, HistoryQuery
from app.log.store import Head, Slice, Strand, StrandRejected
from app.postgres.copying import COLUMNS, binary_rows
from app.postgres.pool import Connection, Pool

COPY_FROM = 100
COPY_EACH = 10
"""A COPY is for so many drafts in all, and for so many in a strand on average."""
COPY_SIZE = 4 * 2**20
"""Or for so many bytes: as arguments of a statement, large ones are held once more, whole."""

_STRAND = """
WITH strand AS (
  SELECT s.*, (SELECT seq FROM events WHERE events.key = s.key) AS key_seq
  FROM unnest($1::int[], $2::text[], $3::text[], $4::int[], $5::int[], $6::text[], $7::text[], $8::text[],
              $9::bool[], $10::int[], $11::int[], $12::bool[])
    AS s(line, session_id, turn_id, epoch, first, key, status, code, closes, drafts, lasting, is_behind_the_end)
), head AS MATERIALIZED (
  SELECT session_id, last_seq, lasting_count, phase FROM heads
  WHERE session_id IN (SELECT session_id FROM strand)
  ORDER BY session_id FOR UPDATE
), owner AS MATERIALIZED (
  SELECT id, epoch, state, stored, last_seq FROM turns
  WHERE (SELECT count(*) FROM head) > 0  -- the heads are locked before any turn
    AND id IN (SELECT turn_id FROM strand)
  ORDER BY id FOR UPDATE
), fate AS (
  SELECT s.*, h.last_seq, h.lasting_count, o.last_seq AS turn_seq,
    CASE WHEN h.session_id IS NULL THEN 'dropped'
         WHEN s.key_seq IS NOT NULL THEN 'repeated'
         WHEN s.turn_id IS NOT NULL AND o.epoch IS DISTINCT FROM s.epoch THEN 'dropped'
         WHEN o.stored >= s.first THEN 'repeated'
         WHEN s.is_behind_the_end THEN 'dropped'
         WHEN h.phase = 'open' OR h.phase = 'closing' AND (s.turn_id IS NOT NULL OR s.closes) THEN
           CASE WHEN s.turn_id IS NULL OR o.state = 'running' THEN 'fresh' ELSE 'dropped' END
         ELSE 'dropped' END AS fate
  FROM strand s
  LEFT JOIN head h USING (session_id)
  LEFT JOIN owner o ON o.id = s.turn_id
)"""

_LOCK = (
    _STRAND
    + """
SELECT line, fate, last_seq, lasting_count, coalesce(key_seq, turn_seq) AS stored_at FROM fate ORDER BY line"""
)

_APPEND = (
    _STRAND  # noqa: S608 - two constants
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
    ended_at = CASE WHEN f.status IS NULL THEN NULL ELSE $13::bigint END
  FROM (SELECT turn_id, max(first + drafts - 1) AS stored, max(after + drafts) AS last_seq,
               max(status) AS status, max(code) AS code
        FROM fresh WHERE turn_id IS NOT NULL GROUP BY turn_id) f
  WHERE t.id = f.turn_id
), written AS (
  INSERT INTO events (session_id, seq, ordinal, turn_id, type, ts, data, metadata, key)
  SELECT f.session_id, f.after + d.nth, f.ordinal_after + d.nth_lasting, f.turn_id, d.type, d.ts, d.data, d.metadata,
         CASE WHEN d.nth = f.drafts THEN f.key END
  FROM unnest($14::int[], $15::int[], $16::int[], $17::text[], $18::bigint[], $19::json[], $20::json[])
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

_HEAD = """
SELECT h.last_seq, h.lasting_count, t.id, h.phase = 'closed', h.phase <> 'open'
FROM heads h LEFT JOIN turns t ON t.session_id = h.session_id AND t.state = 'running'
WHERE h.session_id = $1"""

# The inner query finds out how far the budget reaches without fetching any data: by their stored sizes without headers,
# which are never more than their lengths, so that a page that is shorter than its budget is the last one.
_READ = """
SELECT session_id, seq, ordinal, turn_id, type, ts, data, metadata FROM (
  SELECT *, coalesce(sum(pg_column_size(data) - 4) OVER before, 0) AS size_before FROM (
    SELECT * FROM events
    WHERE session_id = $1 AND seq > $2 AND seq <= $3
      AND ($4::text IS NULL OR ordinal IS NOT NULL OR turn_id = $4)
    ORDER BY seq LIMIT $5) page
  WINDOW before AS (ORDER BY seq ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)) sized
WHERE size_before < $6 ORDER BY seq"""

_HISTORY = """
SELECT session_id, seq, ordinal, turn_id, type, ts, data, metadata, found FROM (
  SELECT *, count(*) OVER () AS found,
         sum(pg_column_size(data)) OVER (ORDER BY seq {order}) - pg_column_size(data) AS size_before
  FROM (
    SELECT * FROM events
    WHERE session_id = $1 AND seq > $2 AND seq < $3
      AND ($4::bool OR ordinal IS NOT NULL)
      AND ($5::text[] IS NULL OR type = ANY ($5))
      AND ($6::bigint IS NULL OR ts >= $6)
      AND ($7::bigint IS NULL OR ts < $7)
      AND ($8::text IS NULL OR turn_id = $8)
    ORDER BY seq {order} LIMIT $9) page) sized
WHERE size_before < $10 ORDER BY seq {order} LIMIT $9 - 1"""

_OLDEST_FIRST = _HISTORY.format(order="ASC")
_NEWEST_FIRST = _HISTORY.format(order="DESC")

_LASTING = """
SELECT session_id, seq, ordinal, turn_id, type, ts, data, metadata FROM (
  SELECT *, sum(pg_column_size(data)) OVER (ORDER BY ordinal) - pg_column_size(data) AS size_before FROM (
    SELECT * FROM events WHERE session_id = $1 AND ordinal > $2 AND ordinal <= $3 ORDER BY ordinal LIMIT 1000) page
  ) sized
WHERE size_before < $4 ORDER BY ordinal"""

_LAST_PLACE = 2**62

# What can never be stored. Whatever else the server says (a standby took over, a disk is full) may pass.
_CONTENT = (
    ValueError,
    OverflowError,
    struct.error,
    asyncpg.DataError,
    asyncpg.IntegrityConstraintViolationError,
    asyncpg.ProgramLimitExceededError,
)


class PostgresEventStore:
    """`app.log.store.EventStore` and `app.log.history.HistoryStore` over a pool."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def write(self, strands: Sequence[Strand]) -> list[Placed | None]:
        count = sum(len(strand.drafts) for strand in strands)
        size = sum(strand.size for strand in strands)
        is_long = count >= max(COPY_FROM, COPY_EACH * len(strands)) or size >= COPY_SIZE
        try:
            async with self._pool.connection() as connection:
                if not is_long:
                    return await _append(connection, strands)
                async with connection.transaction():
                    return await _copy(connection, strands)
        except asyncpg.UniqueViolationError as error:
            if error.constraint_name == "events_keyed":
                # The earlier try whose answer was lost was still committing; now it has.
                raise StorageUnavailable(str(error)) from error
            raise StrandRejected(str(error)) from error
        except _CONTENT as error:
            raise StrandRejected(f"{type(error).__name__}: {error}") from error
        except asyncpg.PostgresError as error:
            raise StorageUnavailable(
                f"The database writes nothing ({type(error).__name__}: {error})."
            ) from error

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

    async def history(self, session_id: str, query: HistoryQuery) -> HistoryPage:
        async with self._pool.connection() as connection:
            rows = await connection.fetch(
                _NEWEST_FIRST if query.is_descending else _OLDEST_FIRST,
                session_id,
                query.after,
                _LAST_PLACE if query.before is None else query.before,
                query.with_passing,
                query.types,
                query.since,
                query.until,
                query.turn_id,
                query.limit + 1,
                query.budget,
            )
        events = [Envelope(*row[:8]) for row in rows]
        return HistoryPage(events, bool(rows) and rows[0]["found"] > len(rows))

    async def lasting(self, session_id: str, after: int, upto: int, budget: int) -> Sequence[Envelope]:
        async with self._pool.connection() as connection:
            rows = await connection.fetch(_LASTING, session_id, after, upto, budget)
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
    fresh = []
    for row, strand in zip(rows, strands, strict=True):
        if row["fate"] != "fresh":
            places.append(_placed(row, strand))
            continue
        after, ordinal = standing.get(strand.session_id, (row["last_seq"], row["lasting_count"]))
        placed = Placed(after, ordinal, 0, after + len(strand.drafts))
        places.append(placed)
        fresh.append((strand, placed))
        ordinal += sum(draft.is_lasting for draft in strand.drafts)
        standing[strand.session_id] = (placed.last, ordinal)
        moves.append((strand, placed.last, ordinal))
    if fresh:
        await connection.copy_to_table("events", source=binary_rows(fresh), columns=COLUMNS, format="binary")
        await connection.execute(_MOVE, *_move_columns(moves), now_ms())
    return places


def _strand_columns(strands: Sequence[Strand]) -> list[list[object]]:
    rows: list[tuple[object, ...]] = []
    closed: set[str] = set()
    for line, strand in enumerate(strands):
        rows.append(
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
                strand.session_id in closed,
            )
        )
        if strand.closes_session:
            closed.add(strand.session_id)
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
