"""Runs the migrations over the connection that `app.postgres.migrations` hands in, or on `TARKO_DATABASE_URL`."""

import asyncio

from alembic import context
from sqlalchemy import Connection
from sqlmodel import SQLModel

from app.postgres import tables  # noqa: F401 - fills the metadata
from app.postgres.migrations import connect
from app.settings import Settings


def run(connection: Connection) -> None:
    context.configure(connection=connection, target_metadata=SQLModel.metadata)
    with context.begin_transaction():
        context.run_migrations()


async def run_alone() -> None:
    url = Settings().database_url
    if url is None:
        raise SystemExit("Set TARKO_DATABASE_URL, or use `tarko-server migrate` for the embedded database.")
    async with connect(url) as connection:
        await connection.run_sync(run)
        await connection.commit()


if (handed := context.config.attributes.get("connection")) is not None:
    run(handed)
else:
    asyncio.run(run_alone())
