"""Says once a second that this process lives, by the database's clock.

From a thread with a connection of its own: a busy event loop must not look like a dead process, and a process that was
stopped must look like one. Whoever finds the last beat six seconds old may take this process's turns over, if its own
beats have been steady for as long: when the database stood still, or the whole machine slept, nobody could beat, and
nobody is to blame.
"""

import asyncio
import logging
import threading
import time
from collections.abc import Sequence

import asyncpg

from app.postgres.pool import Pool, storage_errors

BEAT = """
INSERT INTO replicas (id, beat_at) VALUES ($1, now()) ON CONFLICT (id) DO UPDATE SET beat_at = now()"""

LIVING = """
SELECT id, extract(epoch FROM now() - beat_at)::float8 AS age FROM replicas
WHERE beat_at > now() - interval '6 seconds' ORDER BY id"""

FORGET = "DELETE FROM replicas WHERE id = $1 OR beat_at < now() - interval '1 day'"

INTERVAL = 1.0
TIMEOUT = 2.0
STEADY = 6.0
MISSED = 3.0

_logger = logging.getLogger(__name__)


def _now() -> float:
    """Seconds that go on while the machine sleeps, where the system has such a clock."""
    clock = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if clock is None else time.clock_gettime(clock)


async def living(pool: Pool) -> Sequence[tuple[str, float]]:
    """Which processes live, and how many seconds ago each gave a sign of it. Raises `StorageUnavailable`."""
    async with pool.connection() as connection:
        return [(row["id"], row["age"]) for row in await connection.fetch(LIVING)]


class Heartbeat:
    """The beating of one process. `start` returns after the first beat."""

    def __init__(self, url: str, replica_id: str) -> None:
        self._url = url
        self._id = replica_id
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None
        self._steady_since: float | None = None
        self._last_beat = 0.0

    @property
    def is_steady(self) -> bool:
        """Whether this process has beaten for so long without a miss that it may judge others."""
        since, now = self._steady_since, _now()
        return since is not None and now - since > STEADY and now - self._last_beat < MISSED

    async def start(self) -> None:
        """Beat once, then go on in a thread."""
        with storage_errors():
            connection = await asyncpg.connect(self._url, timeout=TIMEOUT, command_timeout=TIMEOUT)
            try:
                await connection.execute(BEAT, self._id)
            finally:
                await connection.close()
        self._loop = asyncio.new_event_loop()
        self._task = self._loop.create_task(self._beat_for_ever())
        self._thread = threading.Thread(
            target=self._run, args=(self._loop, self._task), name="heartbeat", daemon=True
        )
        self._thread.start()

    async def stop(self) -> None:
        """Stop, and forget this process."""
        if self._thread is None or self._loop is None or self._task is None:
            return
        self._loop.call_soon_threadsafe(self._task.cancel)
        await asyncio.to_thread(self._thread.join, TIMEOUT * 2)
        self._thread = None

    def _run(self, loop: asyncio.AbstractEventLoop, beating: "asyncio.Task[None]") -> None:
        try:
            loop.run_until_complete(beating)
        except asyncio.CancelledError:
            loop.run_until_complete(self._forget())
        finally:
            loop.close()

    async def _beat_for_ever(self) -> None:
        while True:
            try:
                connection = await asyncpg.connect(self._url, timeout=TIMEOUT, command_timeout=TIMEOUT)
                try:
                    while True:
                        await connection.execute(BEAT, self._id)
                        self._has_beaten(_now())
                        await asyncio.sleep(INTERVAL)
                finally:
                    connection.terminate()
            except Exception as error:  # noqa: BLE001 - whatever goes wrong, a live process goes on beating
                self._steady_since = None
                _logger.warning("no heartbeat: %s", str(error) or type(error).__name__)
                await asyncio.sleep(INTERVAL)

    def _has_beaten(self, now: float) -> None:
        """Note a beat. One that comes late says that this process, too, has been stopped, and begins anew."""
        if self._steady_since is None or now - self._last_beat > MISSED:
            self._steady_since = now
        self._last_beat = now

    async def _forget(self) -> None:
        try:
            connection = await asyncpg.connect(self._url, timeout=TIMEOUT, command_timeout=TIMEOUT)
            try:
                await connection.execute(FORGET, self._id)
            finally:
                await connection.close()
        except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
            _logger.debug("not forgotten: %s", error)
