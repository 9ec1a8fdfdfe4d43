"""Hints between the processes on one database, over LISTEN and NOTIFY.

A hint is sent outside of every transaction that writes, and at most one is under way: what comes meanwhile is merged
into the next, so a notification's lock (it is instance-wide) is taken at most once a flush. Notifications are lost, in
silence, while the listening connection is down; therefore whoever listens again, and everyone now and then, looks at the
heads of what is read here. A process that knows of no other sends and looks at nothing.

The payload is lines of `<kind> <words>`, the first line the sender. Where the moved sessions would make it too long it says
`look` instead of them; stops and queues that do not fit wait for the next one.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

import asyncpg

from app.errors import StorageUnavailable
from app.postgres.pool import Pool

CHANNEL = "tarko"
MAX_PAYLOAD = 7_000
MAX_LINES = 80  # of up to 50 bytes each
RETRY = 0.5
ALIVE = 5.0
LOOK = 2.0

_OTHERS = "SELECT count(*) FROM replicas WHERE id <> $1 AND beat_at > now() - interval '10 seconds'"
_HEADS = "SELECT session_id, last_seq FROM heads WHERE session_id = ANY ($1::text[])"

# A hint, or one look, is worth no more than this: whatever the database says, the tasks here go on.
_AWAY = (StorageUnavailable, OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError)

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Ears:
    """Whom to tell what was heard: a session's new place, a changed queue, a turn to stop. `read_here`: live sessions."""

    moved: Callable[[str, int], None]
    queued: Callable[[str], None]
    stop: Callable[[str], None]
    read_here: Callable[[], list[str]]


class Signals:
    """The hints of one process: what it says (`app.log.hints.Hints`), and what it hears."""

    def __init__(self, pool: Pool, replica_id: str) -> None:
        self._pool = pool
        self._id = replica_id
        self._places: dict[str, int] = {}
        self._lines: dict[str, None] = {}
        self._waiting = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._ears: Ears | None = None
        self.others = True

    async def start(self, ears: Ears) -> None:
        """Begin to listen and to speak."""
        self._ears = ears
        await self._count_others()
        self._say("look")  # so that one that was alone knows at once that it no longer is
        for name, work in (
            ("listen", self._listen),
            ("notify", self._speak),
            ("look", self._look_now_and_then),
        ):
            self._tasks.append(asyncio.create_task(work(), name=f"signals {name}"))

    async def stop(self) -> None:
        """Stop both."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # ── speaking ─────────────────────────────────────────────────────────────────────────────────────────────────

    def moved(self, places: Mapping[str, int]) -> None:
        if self.others:
            self._places.update(places)
            self._waiting.set()

    def queued(self, session_id: str) -> None:
        self._say(f"queued {session_id}")

    def stop_turn(self, turn_id: str) -> None:
        self._say(f"stop {turn_id}")

    def _say(self, line: str) -> None:
        if self.others:
            self._lines[line] = None
            self._waiting.set()

    async def _speak(self) -> None:
        while True:
            await self._waiting.wait()
            self._waiting.clear()
            payload = self._payload()
            try:
                async with self._pool.connection() as connection:
                    await connection.execute("SELECT pg_notify($1, $2)", CHANNEL, payload)
            except _AWAY as error:
                _logger.debug("a hint was lost: %s", error)

    def _payload(self) -> str:
        fitting = list(self._lines)[:MAX_LINES]
        for line in fitting:
            del self._lines[line]
        if self._lines:
            self._waiting.set()
        places, self._places = self._places, {}
        moved = [f"moved {session} {place}" for session, place in places.items()]
        payload = "\n".join([self._id, *fitting, *moved])
        return payload if len(payload) <= MAX_PAYLOAD else "\n".join([self._id, *fitting, "look"])

    # ── hearing ──────────────────────────────────────────────────────────────────────────────────────────────────

    async def _listen(self) -> None:
        while True:
            try:
                connection = await asyncpg.connect(self._pool.url, timeout=ALIVE, command_timeout=ALIVE)
                try:
                    await self._listen_on(connection)
                finally:
                    connection.terminate()
            except _AWAY as error:
                _logger.info("not listening: %s", error)
            await asyncio.sleep(RETRY)

    async def _listen_on(self, connection: "asyncpg.Connection[asyncpg.Record]") -> None:
        lost = asyncio.Event()
        connection.add_termination_listener(lambda _: lost.set())
        await connection.add_listener(CHANNEL, self._heard)
        await self._look()
        while not lost.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(ALIVE):
                    await lost.wait()
            if not lost.is_set():
                await connection.execute("SELECT 1")

    def _heard(self, _connection: object, _pid: int, _channel: str, payload: object) -> None:
        sender, *lines = str(payload).split("\n")
        if sender == self._id or self._ears is None:
            return
        self.others = True
        for line in lines:
            kind, *words = line.split(" ")
            match kind, words:
                case "moved", [session_id, place]:
                    self._ears.moved(session_id, int(place))
                case "queued", [session_id]:
                    self._ears.queued(session_id)
                case "stop", [turn_id]:
                    self._ears.stop(turn_id)
                case _:
                    self._spawn(self._look())

    def _spawn(self, work: Awaitable[None]) -> None:
        async def run() -> None:
            with contextlib.suppress(*_AWAY):
                await work

        task = asyncio.create_task(run(), name="signals look at once")
        self._tasks.append(task)
        task.add_done_callback(self._tasks.remove)

    async def _look_now_and_then(self) -> None:
        while True:
            await asyncio.sleep(LOOK)
            with contextlib.suppress(*_AWAY):
                await self._count_others()
                if self.others:
                    await self._look()

    async def _look(self) -> None:
        """Look at the heads of all sessions that are read here."""
        assert self._ears is not None  # noqa: S101 - `start` was called
        sessions = self._ears.read_here()
        if not sessions:
            return
        async with self._pool.connection() as connection:
            for row in await connection.fetch(_HEADS, sessions):
                self._ears.moved(row["session_id"], row["last_seq"])

    async def _count_others(self) -> None:
        async with self._pool.connection() as connection:
            self.others = bool(await connection.fetchval(_OTHERS, self._id))
