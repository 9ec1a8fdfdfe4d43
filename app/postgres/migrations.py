"""Brings a database to the newest revision. Several processes may start at once: one migrates, the others wait.

The lock is a session-level advisory lock on a connection of its own; a process that dies lets go of it. A database that
is newer than the code is refused, never downgraded.
"""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import asyncpg
from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from alembic.script.revision import ResolutionError
from alembic.util import CommandError
from sqlalchemy import Connection
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncConnection, create_async_engine
from sqlalchemy.pool import NullPool

from app.errors import ConfigurationError
from app.postgres.pool import storage_errors

LOCK = 0x7461726B6F  # "tarko"
PACKAGE = Path(__file__).parent.parent


@asynccontextmanager
async def connect(url: str) -> AsyncIterator[AsyncConnection]:
    """A SQLAlchemy connection that asyncpg opens from its own kind of URL."""
    engine = create_async_engine(
        "postgresql+asyncpg://", async_creator=lambda: asyncpg.connect(url), poolclass=NullPool
    )
    try:
        async with engine.connect() as connection:
            yield connection
    finally:
        await engine.dispose()


async def migrate(url: str, revision: str = "head") -> str | None:
    """Move the database to a revision, by default the newest; returns the one it was at.

    Raises `ConfigurationError` when the database is at a revision that this code does not know or lets nobody in, and
    `StorageUnavailable` when it is away.
    """
    with _told():
        return await _migrate(url, revision)


async def _migrate(url: str, revision: str) -> str | None:
    if revision == "head" and await current(url) == newest():
        return newest()
    lock = await asyncpg.connect(url)
    try:
        await lock.execute("SELECT pg_advisory_lock($1)", LOCK)
        async with connect(url) as connection:
            before: str | None = await connection.run_sync(_move, revision)
            await connection.commit()
            return before
    finally:
        await lock.close()


async def current(url: str) -> str | None:
    """The revision that the database is at; None for an empty one."""
    async with connect(url) as connection:
        return await connection.run_sync(_current)


def newest() -> str | None:
    """The newest revision that this code knows."""
    return ScriptDirectory.from_config(config()).get_current_head()


def config() -> Config:
    """Alembic's configuration: of the repository, or of an installed package."""
    packaged = PACKAGE / "_alembic"
    found = Config()
    found.set_main_option(
        "script_location", str(packaged if packaged.is_dir() else PACKAGE.parent / "alembic")
    )
    return found


@contextmanager
def _told() -> Iterator[None]:
    """Raise what the driver says of a database that can't be used as an error for the operator."""
    try:
        with storage_errors():
            yield
    except (asyncpg.PostgresError, SQLAlchemyError, ValueError) as error:
        if any(isinstance(cause, ValueError) for cause in _causes(error)):
            # The driver's own words may quote what it took for a host or a port, and a part of a password be that.
            raise ConfigurationError(
                "TARKO_DATABASE_URL can't be read. It is postgresql://user:password@host:port/name, "
                "with special characters of the password percent-encoded."
            ) from error
        reason = getattr(error, "orig", None) or error
        raise ConfigurationError(
            f"The database can't be used: {reason}. Check TARKO_DATABASE_URL."
        ) from error


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _current(connection: Connection) -> str | None:
    return MigrationContext.configure(connection).get_current_revision()


def _move(connection: Connection, revision: str) -> str | None:
    before = _current(connection)
    settings = config()
    settings.attributes["connection"] = connection
    try:
        if revision == "base" or (before is not None and revision != "head" and before > revision):
            command.downgrade(settings, revision)
        else:
            command.upgrade(settings, revision)
    except (CommandError, ResolutionError) as error:
        raise ConfigurationError(
            f"The database is at revision {before}, which this version does not know ({error}). "
            "Install the version that made it, or a newer one."
        ) from error
    return before
