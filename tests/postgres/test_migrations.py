"""Migrations: up and down, the same tables as the code's, safe when many start at once."""

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import Connection
from sqlmodel import SQLModel

from app.errors import ConfigurationError
from app.postgres import migrations, tables
from app.postgres.migrations import connect, current, migrate, newest
from tests.conftest import Server, run_on

ROOT = Path(__file__).parents[2]

TABLES = """
SELECT string_agg(table_name, ' ' ORDER BY table_name) FROM information_schema.tables
WHERE table_schema = 'public' AND table_name <> 'alembic_version'"""

PROCESS = """
import asyncio, sys
from app.postgres.migrations import migrate
asyncio.run(migrate(sys.argv[1]))
"""


async def ask(url: str, query: str) -> Any:
    connection = await asyncpg.connect(url)
    try:
        return await connection.fetchval(query)
    finally:
        await connection.close()


@pytest.fixture
async def empty_database(server: Server) -> AsyncIterator[str]:
    url = await server.clone("empty_one", "template0")
    yield url
    await run_on(server.url, "DROP DATABASE empty_one WITH (FORCE)")


async def test_the_way_up_and_down_and_up(empty_database: str) -> None:
    assert await current(empty_database) is None
    assert await migrate(empty_database) is None
    assert await current(empty_database) == newest()
    assert (
        await ask(empty_database, TABLES)
        == "events heads idempotency_keys queued_turns replicas sessions turns"
    )
    assert await migrate(empty_database) == newest()
    assert await migrate(empty_database, "base") == newest()
    assert await current(empty_database) is None
    assert await ask(empty_database, TABLES) is None
    await migrate(empty_database)
    assert (
        await ask(empty_database, TABLES)
        == "events heads idempotency_keys queued_turns replicas sessions turns"
    )


async def test_the_tables_of_the_code_are_those_of_the_migrations(database: str) -> None:
    assert tables.EventTable.metadata is SQLModel.metadata

    def differences(connection: Connection) -> list[Any]:
        options = {"compare_type": True, "compare_server_default": True, "include_object": _is_ours}
        return list(compare_metadata(MigrationContext.configure(connection, opts=options), SQLModel.metadata))

    async with connect(database) as connection:
        assert await connection.run_sync(differences) == []


def _is_ours(_item: object, name: str | None, kind: str, *_: object) -> bool:
    return not (kind == "table" and name == "alembic_version")


async def test_what_alembic_does_not_compare_is_the_same_too(database: str, server: Server) -> None:
    """Collations, storage parameters and the conditions of partial indexes: as the tables say, made afresh."""
    made = await server.clone("made_by_the_code", "template0")
    try:
        async with connect(made) as connection:
            await connection.run_sync(SQLModel.metadata.create_all)
            await connection.commit()
        for query in (
            """SELECT string_agg(format('%s.%s %s %s', table_name, column_name, collation_name, is_nullable), E'\\n'
                      ORDER BY table_name, column_name)
               FROM information_schema.columns WHERE table_schema = 'public' AND table_name <> 'alembic_version'""",
            """SELECT string_agg(format('%s %s', relname, reloptions), E'\\n' ORDER BY relname) FROM pg_class
               WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace AND relname <> 'alembic_version'""",
            """SELECT string_agg(indexdef, E'\\n' ORDER BY indexname) FROM pg_indexes
               WHERE schemaname = 'public' AND tablename <> 'alembic_version'""",
        ):
            assert await ask(database, query) == await ask(made, query)
    finally:
        await run_on(server.url, "DROP DATABASE made_by_the_code WITH (FORCE)")


async def test_event_data_is_stored_uncompressed(database: str) -> None:
    storage = (
        "SELECT attstorage::text FROM pg_attribute WHERE attrelid = 'events'::regclass AND attname = 'data'"
    )
    assert await ask(database, storage) == "e"


async def test_many_tasks_that_start_at_once_migrate_once(empty_database: str) -> None:
    before = await asyncio.gather(*(migrate(empty_database) for _ in range(4)))
    assert sorted(str(revision) for revision in before) == [newest()] * 3 + ["None"]
    assert (
        await ask(empty_database, TABLES)
        == "events heads idempotency_keys queued_turns replicas sessions turns"
    )


async def test_many_processes_that_start_at_once_migrate_once(embedded_server: Server) -> None:
    empty_database = await embedded_server.clone("for_processes", "template0")
    processes = [
        await asyncio.create_subprocess_exec(
            sys.executable, "-c", PROCESS, empty_database, cwd=ROOT, stderr=asyncio.subprocess.PIPE
        )
        for _ in range(4)
    ]
    told = await asyncio.gather(*(each.communicate() for each in processes))
    assert [each.returncode for each in processes] == [0] * 4, told
    assert await current(empty_database) == newest()


async def test_a_database_that_is_newer_than_the_code_is_refused_and_left_alone(empty_database: str) -> None:
    await migrate(empty_database)
    await run_on(empty_database, "UPDATE alembic_version SET version_num = '9999'")
    with pytest.raises(ConfigurationError, match="9999"):
        await migrate(empty_database)
    assert await current(empty_database) == "9999"
    assert (
        await ask(empty_database, TABLES)
        == "events heads idempotency_keys queued_turns replicas sessions turns"
    )


async def test_a_revision_that_never_was_is_refused(embedded_database: str) -> None:
    with pytest.raises(ConfigurationError):
        await migrate(embedded_database, "0042")


async def test_an_installed_package_brings_its_own_scripts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert migrations.config().get_main_option("script_location") == str(ROOT / "alembic")
    (tmp_path / "_alembic").mkdir()
    monkeypatch.setattr(migrations, "PACKAGE", tmp_path)
    assert migrations.config().get_main_option("script_location") == str(tmp_path / "_alembic")


async def alembic(**environment: str) -> tuple[int | None, bytes]:
    """Run the command line tool; returns how it ended and what it said."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "alembic", "upgrade", "head",
        cwd=ROOT, env={"PATH": "", **environment}, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    _, said = await process.communicate()
    return process.returncode, said


async def test_alembic_alone_migrates_the_database_of_the_settings(embedded_server: Server) -> None:
    empty_database = await embedded_server.clone("for_alembic", "template0")
    code, said = await alembic(TARKO_DATABASE_URL=empty_database)
    assert code == 0, said
    assert await current(empty_database) == newest()
    code, said = await alembic()
    assert code != 0
    assert b"TARKO_DATABASE_URL" in said
