"""The connections of one process, and what becomes of their errors.

JSON travels as the bytes that were stored: no codec parses it. Whatever says that the database is away, or that the
outcome of a statement is unknown, is raised as `StorageUnavailable`; callers know nothing of the driver.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import TypeAlias

import asyncpg
from asyncpg.pool import PoolConnectionProxy

from app.errors import StorageUnavailable

ACQUIRE_TIMEOUT = 5.0
STATEMENT_TIMEOUT = 30.0

# Every statement is by key, and a new database has no statistics: without these its planner would read whole tables,
# and keep that plan while they grow.
PLANS = {
    "plan_cache_mode": "force_generic_plan",
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "jit": "off",
}

Connection: TypeAlias = "PoolConnectionProxy[asyncpg.Record]"

_AWAY = (
    OSError,
    TimeoutError,
    asyncpg.InterfaceError,
    asyncpg.PostgresConnectionError,
    asyncpg.OperatorInterventionError,
    asyncpg.InsufficientResourcesError,
    asyncpg.TransactionRollbackError,
    asyncpg.InternalClientError,
)


@contextmanager
def storage_errors() -> Iterator[None]:
    """Raise the driver's "not now" and "who knows" as `StorageUnavailable`."""
    try:
        yield
    except _AWAY as error:
        raise StorageUnavailable(f"The database is away ({type(error).__name__}: {error}).") from error


class Pool:
    """Up to `size` connections, opened as they are needed.

    What comes back from a block that went well is kept at hand, unless somebody waits for it: through the driver's own
    pool, each use would wait for several turns of the loop, and a busy one turns slowly.
    """

    def __init__(self, url: str, *, size: int) -> None:
        self.url = url
        self.size = size
        self._pool: asyncpg.Pool[asyncpg.Record] | None = None
        self._at_hand: list[Connection] = []
        self._waiting = 0

    async def open(self) -> None:
        """Connect once, so that a wrong address is found at the start."""
        with storage_errors():
            self._pool = await asyncpg.create_pool(
                self.url,
                min_size=0,  # else the driver logs a traceback for every try to refill it in an outage
                max_size=self.size,
                init=_prepare,
                command_timeout=STATEMENT_TIMEOUT,
                max_inactive_connection_lifetime=0,
                max_queries=2**62,
                reset=_keep,
                server_settings=PLANS,
            )
        async with self.connection():
            pass

    async def close(self) -> None:
        """Close every connection, within two seconds."""
        if self._pool is None:
            return
        try:
            async with asyncio.timeout(2):
                for connection in self._at_hand:
                    await self._pool.release(connection)
                await self._pool.close()
        except TimeoutError:
            self._pool.terminate()

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        """A connection for the block. Raises `StorageUnavailable` when there is none in time."""
        if self._pool is None:
            raise StorageUnavailable("The database is not connected.")
        with storage_errors():
            connection = await self._acquire(self._pool)
            is_whole = False
            try:
                yield connection
                is_whole = not connection.is_closed()
            finally:
                if is_whole and not self._waiting:
                    self._at_hand.append(connection)
                else:
                    await self._pool.release(connection)

    async def _acquire(self, pool: "asyncpg.Pool[asyncpg.Record]") -> Connection:
        while self._at_hand:
            connection = self._at_hand.pop()
            if not connection.is_closed():
                return connection
            await pool.release(connection)
        self._waiting += 1
        try:
            return await pool.acquire(timeout=ACQUIRE_TIMEOUT)
        finally:
            self._waiting -= 1

    @property
    def in_use(self) -> int:
        """How many connections are busy."""
        if self._pool is None:
            return 0
        return self._pool.get_size() - self._pool.get_idle_size() - len(self._at_hand)


async def _prepare(connection: "asyncpg.Connection[asyncpg.Record]") -> None:
    await connection.set_type_codec(
        "json", schema="pg_catalog", format="binary", encoder=_as_is, decoder=_as_is
    )


async def _keep(_: object) -> None:
    """Nothing of a session's state is ever changed, so nothing is to be reset between two uses."""


def _as_is(raw: bytes) -> bytes:
    return raw
