"""What all tests share: asyncio, a clean environment, and real databases.

Each server is started once, migrated once into a template, and every test clones a database of its own from it. A
second server is used where one is on the machine; with TARKO_REQUIRE_ALL=1 its absence is a failure.
"""

import faulthandler
import itertools
import os
import signal
from collections.abc import AsyncIterator, Generator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import asyncpg
import hypothesis
import pytest
from anyio.from_thread import start_blocking_portal

from app.postgres import event_store
from app.postgres.embedded import throwaway_postgres
from app.postgres.event_store import PostgresEventStore
from app.postgres.migrations import migrate
from app.postgres.pool import Pool
from app.postgres.queue_store import PostgresQueueStore
from app.postgres.session_store import PostgresSessionStore
from app.postgres.turn_store import PostgresTurnStore
from tests.log.storing import Stores, memory_stores

REQUIRE_ALL = "TARKO_REQUIRE_ALL"
LONG = "TARKO_LONG"  # =1: tests that take a time of their own take a long one
DEBIAN = Path("/usr/lib/postgresql/15/bin")
CLEANING_UP = 180.0  # seconds
TEMPLATE = "template_of_tests"
EMPTY = """
DELETE FROM events; DELETE FROM heads; DELETE FROM turns; DELETE FROM sessions; DELETE FROM replicas;
DELETE FROM queued_turns; DELETE FROM idempotency_keys"""

# A shell starts what it puts into the background with SIGINT ignored, and children inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)

hypothesis.settings.register_profile("untimed", deadline=None)
hypothesis.settings.load_profile("untimed")

for _name in [name for name in os.environ if name.startswith("TARKO_") and name not in (REQUIRE_ALL, LONG)]:
    del os.environ[_name]


@dataclass(frozen=True)
class Server:
    """A PostgreSQL with a migrated template in it, and the clones that no test uses now."""

    url: str
    free: list[str] = field(default_factory=list)

    def database(self, name: str) -> str:
        """The address of another database of the server."""
        return self.url.replace("/tarko?", f"/{name}?")

    async def clone(self, name: str, template: str = TEMPLATE) -> str:
        """Make a database; returns its address."""
        await run_on(self.url, f"CREATE DATABASE {name} TEMPLATE {template} STRATEGY FILE_COPY")
        return self.database(name)


async def run_on(url: str, statements: str) -> None:
    connection = await asyncpg.connect(url)
    try:
        await connection.execute(statements)
    finally:
        await connection.close()


async def _prepare(server: Server) -> None:
    await run_on(server.url, f"CREATE DATABASE {TEMPLATE}")
    await migrate(server.database(TEMPLATE))


def _serve(binaries: Path | None) -> Iterator[Server]:
    with (
        start_blocking_portal("asyncio") as portal,
        portal.wrap_async_context_manager(throwaway_postgres(binaries=binaries)) as postgres,
    ):
        server = Server(postgres.dsn)
        portal.call(_prepare, server)
        yield server


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown() -> Generator[None]:
    """End the process if cleaning up takes for ever: with a failure, the time limits of its test are over."""
    faulthandler.dump_traceback_later(CLEANING_UP, exit=True, file=2)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session")
def embedded_server() -> Iterator[Server]:
    """The PostgreSQL that comes with the project."""
    yield from _serve(None)


@pytest.fixture(scope="session")
def debian_server() -> Iterator[Server]:
    """The oldest PostgreSQL that is supported, where it is installed."""
    if not DEBIAN.is_dir():
        if os.environ.get(REQUIRE_ALL) == "1":
            pytest.fail(f"{REQUIRE_ALL}=1, but PostgreSQL 15 is not in {DEBIAN}")
        pytest.skip(f"NOT TESTED on PostgreSQL 15: it is not in {DEBIAN}")
    yield from _serve(DEBIAN)


_numbers = itertools.count(1)


@pytest.fixture(params=["embedded", "debian"])
def server(request: pytest.FixtureRequest) -> Server:
    """Each server in turn."""
    found = request.getfixturevalue(f"{request.param}_server")
    assert isinstance(found, Server)
    return found


@pytest.fixture
async def database(server: Server) -> AsyncIterator[str]:
    """The address of a migrated database of this test's own, on each server in turn."""
    async with own_database(server) as url:
        yield url


@pytest.fixture
async def embedded_database(embedded_server: Server) -> AsyncIterator[str]:
    """The same on the embedded server alone."""
    async with own_database(embedded_server) as url:
        yield url


@asynccontextmanager
async def own_database(server: Server) -> AsyncIterator[str]:
    """A clone of the template, which the next test gets emptied: that takes 5 ms, a new clone up to 500."""
    url = server.free.pop() if server.free else await server.clone(f"test_{next(_numbers)}")
    yield url
    await run_on(url, EMPTY)
    server.free.append(url)


@pytest.fixture(params=["memory", "embedded"])
async def some_stores(request: pytest.FixtureRequest) -> AsyncIterator[Stores]:
    """The three stores, in memory and on the embedded server."""
    if request.param == "memory":
        yield memory_stores()
        return
    server = request.getfixturevalue("embedded_server")
    async with own_database(server) as url, open_stores(url) as found:
        yield found


@pytest.fixture(params=["memory", "embedded", "embedded-copy", "debian", "debian-copy"])
async def stores(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Stores]:
    """The three stores: in memory, and on each server by both ways to write."""
    if request.param == "memory":
        yield memory_stores()
        return
    name, _, way = request.param.partition("-")
    if way == "copy":
        monkeypatch.setattr(event_store, "COPY_FROM", 0)
        monkeypatch.setattr(event_store, "COPY_EACH", 0)
    async with own_database(request.getfixturevalue(f"{name}_server")) as url, open_stores(url) as found:
        yield found


@asynccontextmanager
async def open_stores(url: str) -> AsyncIterator[Stores]:
    """The stores of a database, over a pool of their own."""
    pool = Pool(url, size=8)
    await pool.open()
    try:
        yield Stores(
            PostgresEventStore(pool),
            PostgresSessionStore(pool),
            PostgresTurnStore(pool),
            PostgresQueueStore(pool),
            url,
        )
    finally:
        await pool.close()
