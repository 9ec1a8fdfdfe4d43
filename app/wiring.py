"""The one place that builds, starts and stops every part."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from uuid import uuid4

from app.agents.contract import Agent
from app.agents.driver import abandoned_pumps
from app.agents.loading import agent_description, agent_name, load_agent
from app.agents.middleware.composing import wrapped
from app.dialects.a2a.parts import Parts as A2AParts
from app.dialects.operations.metrics import Reading
from app.dialects.operations.overview import Sign
from app.dialects.parts import Parts
from app.errors import StorageUnavailable
from app.log.group_commit import GroupCommit
from app.log.history import HistoryStore
from app.log.logs import Logs
from app.log.store import EventStore
from app.postgres.embedded import EmbeddedPostgres
from app.postgres.event_store import PostgresEventStore
from app.postgres.exchange_store import PostgresExchangeStore
from app.postgres.heartbeat import Heartbeat, living
from app.postgres.migrations import migrate
from app.postgres.pool import Pool
from app.postgres.queue_store import PostgresQueueStore
from app.postgres.session_store import PostgresSessionStore
from app.postgres.signals import Ears, Signals
from app.postgres.turn_store import PostgresTurnStore
from app.sessions.directory import Directory
from app.sessions.store import SessionStore
from app.settings import Settings
from app.transport.readers import Readers
from app.turns.deletion import finish_deletions
from app.turns.exchanges import ExchangeStore
from app.turns.limits import Limits
from app.turns.queue_store import QueueStore
from app.turns.supervisor import Stores, Supervisor
from app.turns.turn_store import TurnStore

ORPHAN_INTERVAL = 1.0
UPKEEP_INTERVAL = 15.0
WATCH_INTERVAL = 1.0
TOMBSTONE_AGE = 60.0
KEY_AGE = 7 * 24 * 3600.0

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Storage:
    """Where everything is kept."""

    events: EventStore
    history: HistoryStore
    exchanges: ExchangeStore
    turns: TurnStore
    queue: QueueStore
    sessions: SessionStore


def postgres_storage(pool: Pool) -> Storage:
    """Everything in PostgreSQL."""
    events = PostgresEventStore(pool)
    return Storage(
        events,
        events,
        PostgresExchangeStore(pool),
        PostgresTurnStore(pool),
        PostgresQueueStore(pool),
        PostgresSessionStore(pool),
    )


@dataclass(slots=True)
class Server:
    """A server's parts, running."""

    settings: Settings
    parts: Parts
    a2a: A2AParts
    pool: Pool
    database: EmbeddedPostgres | None
    replica_id: str

    async def living(self) -> list[Sign]:
        """The processes that serve this database."""
        return [Sign(*each) for each in await living(self.pool)]

    async def drain(self) -> None:
        """Admit no more work, tell every reader, end every turn, within the grace."""
        self.parts.supervisor.is_draining = True
        self.parts.readers.drain()
        await self.parts.supervisor.drain(self.settings.drain_grace)

    async def problems(self) -> Mapping[str, str]:
        """What keeps the server from doing its work."""
        found: dict[str, str] = {}
        if self.parts.supervisor.is_draining:
            found["server"] = "draining"
        try:
            async with asyncio.timeout(2), self.pool.connection() as connection:
                await connection.fetchval("SELECT 1")
        except (StorageUnavailable, TimeoutError):
            found["database"] = "away"
        if not self.parts.commit.is_storing:
            found["log"] = "events wait for the database"
        return found

    def readings(self) -> list[Reading]:
        """The figures for the metrics."""
        parts = self.parts
        commit, supervisor = parts.commit, parts.supervisor
        return [
            Reading("events_stored", "Events written to the log.", lambda: commit.events, is_counter=True),
            Reading("commits", "Writes to the log.", lambda: commit.writes, is_counter=True),
            Reading("commit_seconds", "Time spent in writes.", lambda: commit.waited, is_counter=True),
            Reading(
                "commit_failures", "Writes that had to be repeated.", lambda: commit.failures, is_counter=True
            ),
            Reading("events_waiting", "Events that are not stored yet.", lambda: commit.waiting_drafts),
            Reading("turns_running", "Turns that run here.", lambda: supervisor.running),
            Reading(
                "turns_ended",
                "Turns that ended here.",
                lambda: dict(supervisor.ended),
                is_counter=True,
                label="status",
            ),
            Reading("readers", "Streams and joined sessions.", lambda: len(parts.readers)),
            Reading("live_sessions", "Sessions in memory.", lambda: sum(1 for _ in parts.logs)),
            Reading("abandoned_agents", "Agents that ignored every cancel.", abandoned_pumps),
            Reading("database_connections_busy", "Connections in use.", lambda: self.pool.in_use),
        ]


@asynccontextmanager
async def running(
    settings: Settings,
    agent: Agent | None = None,
    storage: Callable[[Pool], Storage] = postgres_storage,
) -> AsyncIterator[Server]:
    """A server for as long as the block runs. `agent`: host this one instead of the settings' one.

    Raises `AgentLoadError`, `ConfigurationError`, `StorageUnavailable`.
    """
    hosted = load_agent(settings.agent, settings) if agent is None else agent
    served = wrapped(hosted, settings.middleware)
    async with AsyncExitStack() as stack:
        if (close := getattr(hosted, "aclose", None)) is not None:
            stack.push_async_callback(close)
        url, database = await _database(settings, stack)
        await migrate(url)
        pool = Pool(url, size=settings.pool_size)
        await pool.open()
        stack.push_async_callback(pool.close)
        replica_id = f"replica_{uuid4().hex}"
        heartbeat = Heartbeat(url, replica_id)
        await heartbeat.start()
        stack.push_async_callback(heartbeat.stop)
        signals = Signals(pool, replica_id)
        name = agent_name(hosted, settings.agent)
        agents = {name: served}
        stored = storage(pool)
        parts = _parts(settings, stored, agents, signals, replica_id)
        await _start(parts, settings, signals, heartbeat, stack, is_alone=database is not None)
        a2a = _a2a_parts(settings, stored, parts, {name: hosted})
        yield Server(settings, parts, a2a, pool, database, replica_id)


@asynccontextmanager
async def database_for_workers(settings: Settings) -> AsyncIterator[tuple[str, EmbeddedPostgres | None]]:
    """A database that workers will share, migrated. In an embedded one, what a killed server left is ended at once."""
    async with AsyncExitStack() as stack:
        url, database = await _database(settings, stack)
        await migrate(url)
        if database is not None:
            await _end_orphans(settings, url)
        yield url, database


async def _end_orphans(settings: Settings, url: str) -> None:
    """Nobody else can be alive on a database that was just started: judge at once."""
    pool = Pool(url, size=settings.pool_size)
    await pool.open()
    try:
        parts = _parts(settings, postgres_storage(pool), {}, Signals(pool, "nobody"), "nobody")
        parts.commit.start()
        await parts.supervisor.recover(is_alone=True)
        await parts.commit.stop()
    finally:
        await pool.close()


async def _database(settings: Settings, stack: AsyncExitStack) -> tuple[str, EmbeddedPostgres | None]:
    if settings.database_url is not None:
        return settings.database_url, None
    database = EmbeddedPostgres(settings.data_dir)
    url = await database.start()
    stack.push_async_callback(database.stop)
    return url, database


def _parts(
    settings: Settings, storage: Storage, agents: Mapping[str, Agent], signals: Signals, replica_id: str
) -> Parts:
    logs = Logs(storage.events)
    commit = GroupCommit(storage.events, logs, signals)
    supervisor = Supervisor(
        agents,
        stores=Stores(storage.turns, storage.queue, storage.events),
        commit=commit,
        logs=logs,
        hints=signals,
        replica_id=replica_id,
        limits=Limits(
            max_event=settings.max_event,
            max_turn=settings.max_turn,
            deadline=settings.turn_deadline or None,
            silence=settings.turn_silence or None,
            outage=settings.outage_limit,
            queue=settings.queue_limit,
        ),
    )
    return Parts(
        directory=Directory(storage.sessions),
        supervisor=supervisor,
        turns=storage.turns,
        commit=commit,
        logs=logs,
        history=storage.history,
        readers=Readers(ping_interval=settings.ping_interval),
        agents=tuple(agents),
        send_timeout=settings.send_timeout,
        on_busy=settings.on_busy,
    )


def _a2a_parts(settings: Settings, storage: Storage, parts: Parts, agents: Mapping[str, Agent]) -> A2AParts:
    return A2AParts(
        directory=parts.directory,
        supervisor=parts.supervisor,
        turns=storage.turns,
        exchanges=storage.exchanges,
        events=storage.events,
        history=storage.history,
        commit=parts.commit,
        logs=parts.logs,
        readers=parts.readers,
        agents={name: agent_description(agent, name) for name, agent in agents.items()},
        send_timeout=settings.send_timeout,
        heartbeat=settings.a2a_heartbeat,
        final_task_for=frozenset(filter(None, map(str.strip, settings.a2a_final_task.split(",")))),
        is_idempotent=settings.a2a_idempotency,
        public_url=settings.public_url,
        asks_for_tokens=bool(settings.tokens.strip()),
    )


async def _start(
    parts: Parts,
    settings: Settings,
    signals: Signals,
    heartbeat: Heartbeat,
    stack: AsyncExitStack,
    *,
    is_alone: bool,
) -> None:
    supervisor, logs = parts.supervisor, parts.logs
    dispatching: set[asyncio.Task[None]] = set()

    def dispatch(session_id: str) -> None:
        task = asyncio.create_task(
            _guarded(lambda: supervisor.queue.dispatch(session_id), "dispatch"), name="dispatch"
        )
        dispatching.add(task)
        task.add_done_callback(dispatching.discard)

    parts.commit.start()
    stack.push_async_callback(parts.commit.stop)
    parts.readers.start()
    stack.push_async_callback(parts.readers.stop)
    if is_alone:
        await supervisor.recover(is_alone=True)
    await signals.start(
        Ears(logs.moved, dispatch, supervisor.stops.obey, lambda: [log.session_id for log in logs])
    )
    stack.push_async_callback(signals.stop)

    async def upkeep() -> None:
        await finish_deletions(directory=parts.directory, supervisor=supervisor, commit=parts.commit)
        await _until_none(lambda: parts.directory.purge(TOMBSTONE_AGE))
        await _until_none(lambda: supervisor.retire(settings.delta_retention))
        await supervisor.forget_keys(KEY_AGE)

    async def watch() -> None:
        supervisor.fail_turns_in_an_outage()
        await supervisor.stops.obey_all()
        await supervisor.queue.dispatch_stranded()

    async def recover() -> None:
        if is_alone or heartbeat.is_steady:
            await supervisor.recover(is_alone=is_alone)

    for name, work, interval in (
        ("upkeep", upkeep, UPKEEP_INTERVAL),
        ("watch", watch, WATCH_INTERVAL),
        ("orphans", recover, ORPHAN_INTERVAL),
    ):
        task = asyncio.create_task(_for_ever(work, interval, name), name=name)
        stack.callback(task.cancel)


async def _until_none(work: Callable[[], Awaitable[int]]) -> None:
    """Repeat what takes a bounded bite, until there is nothing left to bite."""
    while await work():  # noqa: ASYNC110 - it is work, not a wait
        await asyncio.sleep(0)


async def _for_ever(work: Callable[[], Awaitable[None]], interval: float, name: str) -> None:
    while True:
        await asyncio.sleep(interval)
        await _guarded(work, name)


async def _guarded(work: Callable[[], Awaitable[None]], name: str) -> None:
    try:
        await work()
    except StorageUnavailable as error:
        _logger.info("%s waits for the database: %s", name, error)
    except Exception:
        _logger.exception("%s failed", name)
