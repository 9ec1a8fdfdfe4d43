"""Exchanges in PostgreSQL: read from the rows of turns. A session's head is locked before a question is closed."""

from app.postgres.pool import Pool
from app.turns.exchanges import Exchange, ExchangePage, ExchangePlace, Wanted

# `h` began the exchange, `c` is the last turn that continues it, if one does. Who stopped a turn is known by its code.
_EXCHANGES = """
SELECT h.id, h.session_id, coalesce(c.id, h.id) AS last_turn, h.first_seq,
       CASE WHEN c.id IS NULL THEN h.last_seq ELSE c.last_seq END AS last_seq,
       CASE WHEN coalesce(c.state, h.state) = 'running' THEN 'running'
            WHEN coalesce(c.code, h.code) = 'input_required' THEN
              CASE WHEN coalesce(c.id, h.id) = (
                SELECT latest.id FROM turns latest WHERE latest.session_id = h.session_id
                ORDER BY latest.first_seq DESC LIMIT 1) THEN 'asking' ELSE 'aborted' END
            WHEN coalesce(c.code, h.code) IN ('aborted', 'server_shutdown') THEN 'aborted'
            ELSE coalesce(c.status, h.status) END AS state,
       CASE WHEN c.id IS NULL THEN coalesce(h.ended_at, h.started_at) ELSE coalesce(c.ended_at, c.started_at) END
         AS updated_at
FROM turns h LEFT JOIN LATERAL (
  SELECT * FROM turns later WHERE later.continues = h.id ORDER BY later.first_seq DESC LIMIT 1) c ON true"""

_GET = _EXCHANGES + " WHERE h.id = $1 AND h.continues IS NULL"

_LIST = (
    "WITH wanted AS MATERIALIZED (SELECT * FROM ("  # noqa: S608 - constants
    + _EXCHANGES
    + """
  WHERE h.continues IS NULL AND h.session_id = ANY (ARRAY(
    SELECT id FROM sessions
    WHERE principal = $6 AND agent = $7 AND deleted_at IS NULL AND ($8::text IS NULL OR id = $8)))) e
  WHERE ($1::text[] IS NULL OR state = ANY ($1)) AND ($2::bigint IS NULL OR updated_at > $2)
)
SELECT id, session_id, last_turn, first_seq, last_seq, state, updated_at, (SELECT count(*) FROM wanted) AS total
FROM wanted WHERE $3::bigint IS NULL OR (updated_at, id) < ($3, $4)
ORDER BY updated_at DESC, id DESC LIMIT $5"""
)

_LOCK_HEAD = "SELECT FROM heads WHERE session_id = $1 FOR UPDATE"

_CLOSE = """
UPDATE turns SET code = 'aborted'
WHERE id = $2 AND code = 'input_required'
  AND id = (SELECT id FROM turns WHERE session_id = $1 ORDER BY first_seq DESC LIMIT 1)
RETURNING id"""


class PostgresExchangeStore:
    """`app.turns.exchanges.ExchangeStore` over a pool."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def get(self, first_turn: str) -> Exchange | None:
        async with self._pool.connection() as connection:
            row = await connection.fetchrow(_GET, first_turn)
        return None if row is None else Exchange(*row)

    async def list(self, wanted: Wanted, *, limit: int, after: ExchangePlace | None = None) -> ExchangePage:
        updated_at, last = after or (None, None)
        async with self._pool.connection() as connection:
            rows = await connection.fetch(
                _LIST,
                wanted.states,
                wanted.since,
                updated_at,
                last,
                limit + 1,
                wanted.principal,
                wanted.agent,
                wanted.session_id,
            )
        total = rows[0]["total"] if rows else 0
        return ExchangePage([Exchange(*row[:7]) for row in rows[:limit]], total, len(rows) > limit)

    async def close_question(self, exchange: Exchange) -> bool:
        async with self._pool.connection() as connection, connection.transaction():
            await connection.execute(_LOCK_HEAD, exchange.session_id)
            return await connection.fetchval(_CLOSE, exchange.session_id, exchange.last_turn) is not None
