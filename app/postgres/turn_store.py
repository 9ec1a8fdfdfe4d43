"""The turns' storage in PostgreSQL.

Every statement that changes a turn locks its session's head first. That a session has one running turn at most is the
unique index `turns_running`.
"""

from collections.abc import Collection, Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager

import asyncpg

from app.errors import SessionBusy, SessionDeleted
from app.events.canonical import decode
from app.events.envelope import Draft, Placed, now_ms
from app.postgres.pool import Pool
from app.turns.admission import Answering, Key, KeyReused, NothingAsked
from app.turns.turn_store import TurnRow

_START = """
WITH head AS MATERIALIZED (
  SELECT session_id, last_seq, lasting_count, queued FROM heads WHERE session_id = $1 AND phase = 'open' FOR UPDATE
), turn AS (
  INSERT INTO turns (id, session_id, state, owner, epoch, stored, first_seq, last_seq, trace_id, started_at, is_retired,
                     continues)
  SELECT $2, session_id, 'running', $3, 1, $5::int, last_seq + 1, last_seq + $5::int, $4, $6::bigint, false, $15
  FROM head
  WHERE queued = 0 AND ($14::text IS NULL OR EXISTS (
    SELECT FROM (SELECT id, code FROM turns WHERE session_id = $1 ORDER BY first_seq DESC LIMIT 1) latest
    WHERE id = $14 AND code = 'input_required'))
  ON CONFLICT (session_id) WHERE state = 'running' DO NOTHING
  RETURNING id
), keyed AS (
  INSERT INTO idempotency_keys (session_id, key, turn_id, request_hash, created_at)
  SELECT $1, $12, id, $13, $6::bigint FROM turn WHERE $12::text IS NOT NULL
), moved AS (
  UPDATE heads SET last_seq = heads.last_seq + $5::int, lasting_count = heads.lasting_count + $5::int
  FROM turn WHERE session_id = $1
), touched AS (
  UPDATE sessions SET updated_at = $6::bigint FROM turn WHERE sessions.id = $1
), written AS (
  INSERT INTO events (session_id, seq, ordinal, turn_id, type, ts, data, metadata)
  SELECT head.session_id, head.last_seq + d.nth, head.lasting_count + d.nth, turn.id, d.type, d.ts, d.data, d.metadata
  FROM unnest($7::int[], $8::text[], $9::bigint[], $10::json[], $11::json[]) AS d(nth, type, ts, data, metadata), head, turn
)
SELECT head.last_seq, head.lasting_count, head.queued, turn.id FROM head LEFT JOIN turn ON true"""

# Of its own, so that `_START` sees the answer that was first while it waited for the head.
_LOCK_HEAD = "SELECT FROM heads WHERE session_id = $1 FOR UPDATE"

_RUNNING = "SELECT id FROM turns WHERE session_id = $1 AND state = 'running'"

_ROW = (
    "SELECT id, session_id, epoch, stored, first_seq, last_seq, trace_id, status, code, continues FROM turns "
)

_GET = _ROW + "WHERE id = $1"

# A database that has just come back judges nobody: whoever lost its connection has had no chance to beat.
_ORPHANS = """
SELECT t.id, t.session_id, t.epoch, t.stored, t.first_seq, t.last_seq, t.trace_id, t.status, t.code,
       t.continues
FROM turns t LEFT JOIN replicas r ON r.id = t.owner
WHERE t.state = 'running' AND CASE
  WHEN t.owner = $1 THEN t.id <> ALL ($2::text[])
  WHEN $3 THEN true
  ELSE (r.id IS NULL OR r.beat_at < now() - interval '6 seconds')
    AND pg_postmaster_start_time() < now() - interval '10 seconds'
  END"""

_TAKE_OVER = """
WITH head AS MATERIALIZED (
  SELECT session_id FROM heads WHERE session_id = $1 FOR UPDATE
)
UPDATE turns SET owner = $2, epoch = epoch + 1
WHERE session_id = (SELECT session_id FROM head) AND id = $3 AND epoch = $4 AND state = 'running'
RETURNING id, session_id, epoch, stored, first_seq, last_seq, trace_id, status, code, continues"""

_ASK_TO_STOP = """
WITH head AS MATERIALIZED (
  SELECT session_id FROM heads WHERE session_id = $1 FOR UPDATE
), turn AS MATERIALIZED (
  SELECT id, stop FROM turns
  WHERE session_id = (SELECT session_id FROM head) AND state = 'running' AND ($2::text IS NULL OR id = $2)
  FOR UPDATE
)
UPDATE turns SET stop = 'aborted' FROM turn WHERE turns.id = turn.id RETURNING turn.id, turn.stop IS NULL AS is_first"""

_ASKED_TO_STOP = """
SELECT mine.id FROM unnest($2::text[]) AS mine(id) LEFT JOIN turns t ON t.id = mine.id
WHERE t.id IS NULL OR t.owner <> $1 OR t.state <> 'running' OR t.stop IS NOT NULL"""

_TOOL_IDS = "SELECT data FROM events WHERE session_id = $1 AND type = 'tool_call' ORDER BY seq"

_RETIRE = """
WITH due AS MATERIALIZED (
  SELECT id, session_id, first_seq, last_seq FROM turns
  WHERE state = 'ended' AND NOT is_retired AND ended_at < $1
  ORDER BY ended_at LIMIT 100 FOR UPDATE SKIP LOCKED
), gone AS (
  DELETE FROM events e USING due
  WHERE e.session_id = due.session_id AND e.seq BETWEEN due.first_seq AND due.last_seq
    AND e.turn_id = due.id AND e.ordinal IS NULL
)
UPDATE turns SET is_retired = true FROM due WHERE turns.id = due.id"""


_FORGET_KEYS = "DELETE FROM idempotency_keys WHERE created_at < $1"


class PostgresTurnStore:
    """`app.turns.turn_store.TurnStore` over a pool."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def start(
        self,
        turn_id: str,
        session_id: str,
        drafts: Sequence[Draft],
        *,
        owner: str,
        trace_id: str | None,
        key: Key | None = None,
        answering: Answering | None = None,
    ) -> Placed:
        async with self._pool.connection() as connection, AsyncExitStack() as stack:
            if answering is not None:
                await stack.enter_async_context(connection.transaction())
                await connection.execute(_LOCK_HEAD, session_id)
            with key_conflicts():
                row = await connection.fetchrow(
                    _START,
                    session_id,
                    turn_id,
                    owner,
                    trace_id,
                    len(drafts),
                    now_ms(),
                    list(range(1, len(drafts) + 1)),
                    [draft.type for draft in drafts],
                    [draft.timestamp for draft in drafts],
                    [draft.data for draft in drafts],
                    [draft.metadata for draft in drafts],
                    key.key if key else None,
                    key.request_hash if key else None,
                    answering.asking if answering else None,
                    answering.first if answering else None,
                )
            if row is None:
                raise SessionDeleted(f"Session {session_id} was deleted.")
            if row["id"] is None:
                running = await connection.fetchval(_RUNNING, session_id)
                if running is not None:
                    raise SessionBusy("A turn is running in this session.", details={"turnId": running})
                if answering is not None and not row["queued"]:
                    raise NothingAsked("Nothing is asked there any more.")
                raise SessionBusy("Turns wait in this session.")
        return Placed(row["last_seq"], row["lasting_count"], 0, row["last_seq"] + len(drafts))

    async def get(self, turn_id: str) -> TurnRow | None:
        async with self._pool.connection() as connection:
            row = await connection.fetchrow(_GET, turn_id)
        return None if row is None else _turn(row)

    async def orphans(self, owner: str, running: Collection[str], *, is_alone: bool) -> Sequence[TurnRow]:
        async with self._pool.connection() as connection:
            rows = await connection.fetch(_ORPHANS, owner, list(running), is_alone)
        return [_turn(row) for row in rows]

    async def take_over(self, turn: TurnRow, owner: str) -> TurnRow | None:
        async with self._pool.connection() as connection:
            row = await connection.fetchrow(_TAKE_OVER, turn.session_id, owner, turn.id, turn.epoch)
        return None if row is None else _turn(row)

    async def ask_to_stop(self, session_id: str, turn_id: str | None) -> tuple[str, bool] | None:
        async with self._pool.connection() as connection:
            row = await connection.fetchrow(_ASK_TO_STOP, session_id, turn_id)
        return None if row is None else (row["id"], row["is_first"])

    async def asked_to_stop(self, owner: str, running: Collection[str]) -> Sequence[str]:
        async with self._pool.connection() as connection:
            return [row["id"] for row in await connection.fetch(_ASKED_TO_STOP, owner, list(running))]

    async def tool_ids(self, session_id: str) -> Sequence[str]:
        async with self._pool.connection() as connection:
            rows = await connection.fetch(_TOOL_IDS, session_id)
        return [decode(row["data"])["id"] for row in rows]

    async def forget_keys(self, before: int) -> int:
        async with self._pool.connection() as connection:
            return int((await connection.execute(_FORGET_KEYS, before)).rsplit(" ", 1)[-1])

    async def retire(self, before: int) -> int:
        async with self._pool.connection() as connection:
            return int((await connection.execute(_RETIRE, before)).rsplit(" ", 1)[-1])


@contextmanager
def key_conflicts() -> Iterator[None]:
    """Raise the violation of the keys' uniqueness as `KeyReused`."""
    try:
        yield
    except asyncpg.UniqueViolationError as error:
        if error.constraint_name != "idempotency_keys_pkey":
            raise
        raise KeyReused("This Idempotency-Key was used before.") from error


def _turn(row: asyncpg.Record) -> TurnRow:
    return TurnRow(*row)
