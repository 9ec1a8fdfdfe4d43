"""The sessions' storage in PostgreSQL. A session's head is locked before anything else of it is changed."""

from collections.abc import Sequence
from typing import Any

import asyncpg

from app.errors import StorageUnavailable
from app.events.canonical import decode, encode
from app.events.envelope import Draft, Placed
from app.postgres.pool import Pool
from app.sessions.session import Change, Session, Standing, merged
from app.sessions.store import ListPlace

_CREATE = """
WITH session AS (
  INSERT INTO sessions (id, principal, agent, name, tags, attributes, created_at, updated_at)
  VALUES ($1, $2, $3, $4, $5, $6, $7, $7)
), head AS (
  INSERT INTO heads (session_id, last_seq, lasting_count, phase) VALUES ($1, 1, 1, 'open')
)
INSERT INTO events (session_id, seq, ordinal, type, ts, data, metadata) VALUES ($1, 1, 1, $8, $9, $10, $11)"""

_STANDING = """
SELECT s.id, s.principal, s.agent, s.created_at, s.updated_at, s.name, s.tags, s.attributes, s.deleted_at,
       h.last_seq, h.lasting_count, h.queued, t.id AS running_turn, e.status AS last_ending
FROM sessions s
LEFT JOIN heads h ON h.session_id = s.id
LEFT JOIN turns t ON t.session_id = s.id AND t.state = 'running'
LEFT JOIN LATERAL (
  SELECT status FROM turns WHERE session_id = s.id AND state = 'ended' ORDER BY first_seq DESC LIMIT 1
) e ON true
"""

_GET = _STANDING + "WHERE s.id = $1"

_LIST = (
    _STANDING
    + """
WHERE s.principal = $1 AND s.deleted_at IS NULL AND ($3::bigint IS NULL OR (s.created_at, s.id) < ($3, $4))
ORDER BY s.created_at DESC, s.id DESC LIMIT $2"""
)

_LOCK = "SELECT name, tags, attributes FROM sessions WHERE id = $1 FOR UPDATE"

_UPDATE = """
UPDATE sessions SET name = $2, tags = $3, attributes = $4, updated_at = $5 WHERE id = $1"""

_BURY = """
WITH head AS MATERIALIZED (
  SELECT session_id FROM heads WHERE session_id = $1 FOR UPDATE
), closing AS (
  UPDATE heads SET phase = 'closing', queued = 0 WHERE session_id = (SELECT session_id FROM head) AND phase = 'open'
), unqueued AS (
  DELETE FROM queued_turns WHERE session_id = (SELECT session_id FROM head)
)
UPDATE sessions SET deleted_at = $2
WHERE id = (SELECT session_id FROM head) AND deleted_at IS NULL
RETURNING id"""

# Of its own, so that `_BURY` sees a turn that was queued while it waited for the head.
_LOCK_HEAD = "SELECT FROM heads WHERE session_id = $1 FOR UPDATE"

_MESSAGES = """
SELECT count(*) FROM events
WHERE session_id = $1 AND ordinal IS NOT NULL AND type IN ('user_message', 'assistant_message')"""

_UNFINISHED = """
SELECT s.id, s.principal, s.agent, s.created_at, s.updated_at, s.name, s.tags, s.attributes, s.deleted_at,
       h.last_seq, h.lasting_count, h.queued, NULL AS running_turn, NULL AS last_ending
FROM sessions s JOIN heads h ON h.session_id = s.id
WHERE s.deleted_at < $1 AND h.phase = 'closing' ORDER BY s.deleted_at LIMIT 20"""

_PURGE = """
WITH gone AS MATERIALIZED (
  SELECT h.session_id FROM heads h JOIN sessions s ON s.id = h.session_id
  WHERE s.deleted_at < $1 AND h.phase = 'closed'
  ORDER BY h.session_id LIMIT 20 FOR UPDATE OF h SKIP LOCKED
), no_keys AS (
  DELETE FROM idempotency_keys WHERE session_id IN (SELECT session_id FROM gone)
), no_turns AS (
  DELETE FROM turns WHERE session_id IN (SELECT session_id FROM gone) RETURNING id
), nameless AS (
  UPDATE sessions SET name = NULL, tags = '[]', attributes = '{}' WHERE id IN (SELECT session_id FROM gone)
), no_events AS (
  DELETE FROM events WHERE session_id IN (SELECT session_id FROM gone)
    AND (SELECT count(*) FROM no_turns) >= 0  -- turns before their events, as whoever retires them locks both
)
DELETE FROM heads WHERE session_id IN (SELECT session_id FROM gone)"""


class PostgresSessionStore:
    """`app.sessions.store.SessionStore` over a pool."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def create(self, session: Session, start: Draft) -> Placed:
        async with self._pool.connection() as connection:
            try:
                await connection.execute(
                    _CREATE,
                    session.id,
                    session.principal,
                    session.agent,
                    session.name,
                    encode(session.tags),
                    encode(session.attributes),
                    session.created_at,
                    start.type,
                    start.timestamp,
                    start.data,
                    start.metadata,
                )
            except asyncpg.UniqueViolationError as error:
                raise StorageUnavailable(f"Session {session.id} is there already.") from error
        return Placed(0, 0, 0, 1)

    async def get(self, session_id: str) -> Standing | None:
        async with self._pool.connection() as connection:
            row = await connection.fetchrow(_GET, session_id)
        return None if row is None else _standing(row)

    async def list(self, principal: str, *, limit: int, after: ListPlace | None = None) -> Sequence[Standing]:
        created_at, session_id = after or (None, None)
        async with self._pool.connection() as connection:
            rows = await connection.fetch(_LIST, principal, limit, created_at, session_id)
        return [_standing(row) for row in rows]

    async def update(self, session_id: str, change: Change, now: int) -> None:
        async with self._pool.connection() as connection, connection.transaction():
            row = await connection.fetchrow(_LOCK, session_id)
            if row is None:
                return
            name = row["name"] if change.name is None else change.name
            tags = row["tags"] if change.tags is None else encode(change.tags)
            attributes = encode(merged(decode(row["attributes"]), change.attributes))
            await connection.execute(_UPDATE, session_id, name, tags, attributes, now)

    async def bury(self, session_id: str, now: int) -> bool:
        async with self._pool.connection() as connection, connection.transaction():
            await connection.execute(_LOCK_HEAD, session_id)
            return await connection.fetchval(_BURY, session_id, now) is not None

    async def message_count(self, session_id: str) -> int:
        async with self._pool.connection() as connection:
            return int(await connection.fetchval(_MESSAGES, session_id) or 0)

    async def unfinished(self, before: int) -> Sequence[Session]:
        async with self._pool.connection() as connection:
            return [_standing(row).session for row in await connection.fetch(_UNFINISHED, before)]

    async def purge(self, before: int) -> int:
        async with self._pool.connection() as connection:
            return _count(await connection.execute(_PURGE, before))


def _standing(row: asyncpg.Record) -> Standing:
    values: dict[str, Any] = dict(row)
    session = Session(
        id=values["id"],
        principal=values["principal"],
        agent=values["agent"],
        created_at=values["created_at"],
        updated_at=values["updated_at"],
        name=values["name"],
        tags=decode(values["tags"]),
        attributes=decode(values["attributes"]),
        deleted_at=values["deleted_at"],
    )
    return Standing(
        session,
        values["last_seq"] or 0,
        values["lasting_count"] or 0,
        values["running_turn"],
        values["queued"] or 0,
        values["last_ending"],
    )


def _count(tag: str) -> int:
    """How many rows a statement's tag, such as `DELETE 3`, speaks of."""
    return int(tag.rsplit(" ", 1)[-1])
