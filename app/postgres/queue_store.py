"""The queue's storage in PostgreSQL. The session's head is locked first, its turns next, its queue last."""

from collections.abc import Collection, Sequence

import asyncpg

from app.errors import SessionDeleted
from app.events.canonical import decode
from app.events.envelope import Draft, Placed, now_ms
from app.postgres.pool import Pool
from app.postgres.turn_store import key_conflicts
from app.sessions.session import Session
from app.turns.admission import Key, KeyReused, NextTurn, Query, QueuedTurn, QueueFull

# Turns that interrupt come before all others, in the order in which they came.
FRONT = 2**50

_ENQUEUE = """
WITH head AS MATERIALIZED (
  SELECT session_id, last_seq, queued FROM heads WHERE session_id = $1 AND phase = 'open' FOR UPDATE
), turn AS (
  INSERT INTO queued_turns (turn_id, session_id, position, accepted_at, trace_id, query)
  SELECT $2, session_id, nextval('queue_positions') - $3::bigint, $4::bigint, $5, $6 FROM head WHERE queued < $7
  RETURNING turn_id, position
), keyed AS (
  INSERT INTO idempotency_keys (session_id, key, turn_id, request_hash, created_at)
  SELECT $1, $8, turn_id, $9, $4::bigint FROM turn WHERE $8::text IS NOT NULL
), stopped AS (
  UPDATE turns SET stop = 'aborted' FROM turn WHERE $3::bigint > 0 AND turns.session_id = $1 AND turns.state = 'running'
), counted AS (
  UPDATE heads SET queued = heads.queued + 1 FROM turn WHERE session_id = $1
)
SELECT head.last_seq, head.queued, turn.turn_id,
       (SELECT count(*) FROM queued_turns q WHERE q.session_id = $1 AND q.position < turn.position) AS before
FROM head LEFT JOIN turn ON true"""

_START = """
WITH head AS MATERIALIZED (
  SELECT session_id, last_seq, lasting_count FROM heads WHERE session_id = $1 AND phase = 'open' FOR UPDATE
), turn AS (
  INSERT INTO turns (id, session_id, state, owner, epoch, stored, first_seq, last_seq, trace_id, started_at, is_retired)
  SELECT $2, session_id, 'running', $3, 1, $5::int, last_seq + 1, last_seq + $5::int, $4, $6::bigint, false FROM head
  WHERE $2 = (SELECT turn_id FROM queued_turns WHERE session_id = $1 ORDER BY position LIMIT 1)
  ON CONFLICT (session_id) WHERE state = 'running' DO NOTHING
  RETURNING id
), taken AS (
  DELETE FROM queued_turns USING turn WHERE turn_id = turn.id RETURNING turn_id
), moved AS (
  UPDATE heads SET last_seq = heads.last_seq + $5::int, lasting_count = heads.lasting_count + $5::int,
                   queued = heads.queued - 1
  FROM turn WHERE session_id = $1
), touched AS (
  UPDATE sessions SET updated_at = $6::bigint FROM turn WHERE sessions.id = $1
), written AS (
  INSERT INTO events (session_id, seq, ordinal, turn_id, type, ts, data, metadata)
  SELECT head.session_id, head.last_seq + d.nth, head.lasting_count + d.nth, turn.id, d.type, d.ts, d.data, d.metadata
  FROM unnest($7::int[], $8::text[], $9::bigint[], $10::json[], $11::json[]) AS d(nth, type, ts, data, metadata), head, turn
)
SELECT head.last_seq, head.lasting_count, turn.id, (SELECT count(*) FROM taken) AS taken FROM head JOIN turn ON true"""

# Of its own, so that `_START` sees a turn that was put in front while it waited for the head.
_LOCK_HEAD = "SELECT FROM heads WHERE session_id = $1 FOR UPDATE"

_NEXT = """
SELECT q.turn_id, q.session_id, q.accepted_at, q.query, q.trace_id,
       s.principal, s.agent, s.created_at, s.updated_at, s.name, s.tags, s.attributes
FROM queued_turns q JOIN sessions s ON s.id = q.session_id
WHERE q.session_id = $1 ORDER BY q.position LIMIT 1"""

_WAITING = """
SELECT turn_id, session_id, accepted_at, query, trace_id FROM queued_turns WHERE session_id = $1 ORDER BY position"""

_REMOVE = """
WITH head AS MATERIALIZED (
  SELECT session_id FROM heads WHERE session_id = $1 FOR UPDATE
), gone AS (
  DELETE FROM queued_turns WHERE session_id = (SELECT session_id FROM head) AND turn_id = $2 RETURNING turn_id
)
UPDATE heads SET queued = queued - 1 FROM gone WHERE session_id = $1 RETURNING gone.turn_id"""

_STILL = "SELECT turn_id FROM queued_turns WHERE turn_id = ANY ($1::text[])"

_STRANDED = """
SELECT DISTINCT q.session_id FROM queued_turns q
WHERE NOT EXISTS (SELECT FROM turns t WHERE t.session_id = q.session_id AND t.state = 'running')"""

_KEY = "SELECT turn_id, request_hash FROM idempotency_keys WHERE session_id = $1 AND key = $2"


class _NotTaken(Exception):
    """The turn was removed in the meantime: undo its start."""


class PostgresQueueStore:
    """`app.turns.queue_store.QueueStore` over a pool."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def enqueue(
        self, turn_id: str, session_id: str, query: Query, *, first: bool, limit: int, key: Key | None
    ) -> tuple[int, int]:
        async with self._pool.connection() as connection:
            with key_conflicts():
                row = await connection.fetchrow(
                    _ENQUEUE,
                    session_id,
                    turn_id,
                    FRONT if first else 0,
                    now_ms(),
                    query.trace_id,
                    query.stored(),
                    limit,
                    key.key if key else None,
                    key.request_hash if key else None,
                )
        if row is None:
            raise SessionDeleted(f"Session {session_id} was deleted.")
        if row["turn_id"] is None:
            raise QueueFull(f"{limit} turns wait in this session.")
        # The head's count is true at this moment; the rows are as they were before the head was waited for.
        return (row["before"] if first else row["queued"]) + 1, row["last_seq"]

    async def next(self, session_id: str) -> NextTurn | None:
        async with self._pool.connection() as connection:
            row = await connection.fetchrow(_NEXT, session_id)
        if row is None:
            return None
        session = Session(
            id=row["session_id"],
            principal=row["principal"],
            agent=row["agent"],
            created_at=row["created_at"],
            updated_at=row["updated_at"],
            name=row["name"],
            tags=decode(row["tags"]),
            attributes=decode(row["attributes"]),
        )
        return NextTurn(_queued(row), session)

    async def start(self, turn: QueuedTurn, drafts: Sequence[Draft], *, owner: str) -> Placed | None:
        try:
            async with self._pool.connection() as connection, connection.transaction():
                await connection.execute(_LOCK_HEAD, turn.session_id)
                row = await connection.fetchrow(
                    _START,
                    turn.session_id,
                    turn.turn_id,
                    owner,
                    turn.query.trace_id,
                    len(drafts),
                    now_ms(),
                    list(range(1, len(drafts) + 1)),
                    [draft.type for draft in drafts],
                    [draft.timestamp for draft in drafts],
                    [draft.data for draft in drafts],
                    [draft.metadata for draft in drafts],
                )
                if row is None or row["taken"] != 1:
                    raise _NotTaken
        except (_NotTaken, asyncpg.UniqueViolationError):
            return None
        return Placed(row["last_seq"], row["lasting_count"], 0, row["last_seq"] + len(drafts))

    async def waiting(self, session_id: str) -> Sequence[QueuedTurn]:
        async with self._pool.connection() as connection:
            return [_queued(row) for row in await connection.fetch(_WAITING, session_id)]

    async def remove(self, session_id: str, turn_id: str) -> bool:
        async with self._pool.connection() as connection:
            return await connection.fetchval(_REMOVE, session_id, turn_id) is not None

    async def still_waiting(self, turn_ids: Collection[str]) -> set[str]:
        async with self._pool.connection() as connection:
            return {row["turn_id"] for row in await connection.fetch(_STILL, list(turn_ids))}

    async def stranded(self) -> Sequence[str]:
        async with self._pool.connection() as connection:
            return [row["session_id"] for row in await connection.fetch(_STRANDED)]

    async def turn_of_key(self, session_id: str, key: Key) -> str | None:
        async with self._pool.connection() as connection:
            row = await connection.fetchrow(_KEY, session_id, key.key)
        if row is None:
            return None
        if row["request_hash"] != key.request_hash:
            raise KeyReused("This Idempotency-Key was used for another request.")
        return str(row["turn_id"])


def _queued(row: asyncpg.Record) -> QueuedTurn:
    query = Query.restored(row["query"], row["trace_id"])
    return QueuedTurn(row["turn_id"], row["session_id"], row["accepted_at"], query)
