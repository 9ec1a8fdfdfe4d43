"""`tarko-server migrate`: brings the database of the settings to a revision, by default the newest.

A running embedded database is joined and left running.
"""

import asyncio

import typer

from app.commands.configuration import load_settings
from app.commands.database import database, database_errors
from app.postgres.migrations import current
from app.postgres.migrations import migrate as move
from app.settings import Settings


def migrate(revision: str) -> None:
    """Move the database and say from where to where."""
    settings = load_settings()
    before, after = asyncio.run(_moved(settings, revision))
    if before == after:
        typer.echo(f"The database is at revision {after or 'base'} already.")
    else:
        typer.echo(f"The database was at revision {before or 'base'} and is now at {after or 'base'}.")


async def _moved(settings: Settings, revision: str) -> tuple[str | None, str | None]:
    with database_errors(settings.database_url):
        async with database(settings) as url:
            before = await move(url, revision)
            return before, await current(url)
