"""The database that the settings name, for a command that needs it without a server of ours.

Promise: an embedded PostgreSQL that runs already is joined and left running; one that doesn't is started and stopped
again. No message holds a password.
"""

import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from urllib.parse import quote

import asyncpg

from app.errors import StorageUnavailable, TarkoError
from app.postgres.data_directory import DataDirectory
from app.postgres.embedded import DATABASE, EmbeddedPostgres
from app.postgres.postmaster import PORT, ROLE, find_orphan
from app.settings import Settings

_USER_INFO = re.compile(r"^(\w+://[^/?#:@]*):.*@")
_PASSWORD = re.compile(r"(?i)([?&](?:\w*password|passfile)=)[^&]*")

_DRIVERS = (asyncpg.PostgresError, asyncpg.InterfaceError, OSError, ValueError)


@asynccontextmanager
async def database(settings: Settings) -> AsyncIterator[str]:
    """The address of a database that is there for the block."""
    if settings.database_url:
        yield settings.database_url
        return
    if running := await running_embedded(settings.data_dir):
        yield running
        return
    embedded = EmbeddedPostgres(settings.data_dir)
    try:
        yield await embedded.start()
    finally:
        await embedded.stop()


async def running_embedded(data_dir: Path) -> str | None:
    """The address of the embedded PostgreSQL that runs on this directory; None when none does."""
    home = DataDirectory.choose(data_dir)
    postmaster = await find_orphan(home.cluster, home.account.uid)
    if postmaster is None:
        return None
    return f"postgresql://{ROLE}@/{DATABASE}?host={quote(str(postmaster.sockets), safe='/')}&port={PORT}"


def redacted(url: str) -> str:
    """The address without its password. Greedy: of an odd address rather too much is hidden."""
    return _PASSWORD.sub(r"\1***", _USER_INFO.sub(r"\1:***@", url))


@contextmanager
def database_errors(url: str | None) -> Iterator[None]:
    """Raise what the driver says as one line. `url` is the one of the settings; None: the embedded database."""
    where = f"The database at {redacted(url)}" if url else "The embedded database"
    try:
        yield
    except TarkoError as error:
        if not _holds_words_of_the_driver(error):
            raise
        raise StorageUnavailable(f"{where} could not be used: {_reason(error.__cause__ or error)}") from error
    except _DRIVERS as error:
        raise StorageUnavailable(f"{where} could not be used: {_reason(error)}") from error


def _holds_words_of_the_driver(error: TarkoError) -> bool:
    """Whether somebody wrapped the driver's error already: without the address, or with a part of a password."""
    cause = error.__cause__
    return isinstance(cause, ValueError) or (
        isinstance(error, StorageUnavailable) and isinstance(cause, _DRIVERS)
    )


def _reason(error: BaseException) -> str:
    if isinstance(error, ValueError):
        # The driver's own words repeat parts of the address, which may be parts of a password.
        return (
            "that is no address, which is postgresql://user:password@host:port/name, "
            "with %-escapes for `/`, `@`, `:` and `?` in the password."
        )
    return " ".join(str(error).split()) or type(error).__name__
