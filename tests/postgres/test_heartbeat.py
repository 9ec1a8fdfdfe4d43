"""Heartbeats and orphans: who lives is judged by the database's clock, never by our own."""

import logging
import threading
from typing import Any

import asyncpg
import pytest

from app.errors import StorageUnavailable
from app.postgres import heartbeat
from app.postgres.heartbeat import Heartbeat
from tests.conftest import open_stores, run_on
from tests.log.storing import Stores, until

BEAT_AT = "SELECT beat_at FROM replicas WHERE id = $1"

# The postmaster of the tests is young; judging begins ten seconds after its start, so the test waits for that.
IS_OLD_ENOUGH = "SELECT pg_postmaster_start_time() < now() - interval '10 seconds'"


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A beat may take as long as this machine needs for it."""
    monkeypatch.setattr(heartbeat, "TIMEOUT", 60.0)


async def ask(url: str, query: str, *arguments: object) -> Any:
    connection = await asyncpg.connect(url)
    try:
        return await connection.fetchval(query, *arguments)
    finally:
        await connection.close()


async def orphans_of(stores: Stores, **options: bool) -> list[str]:
    return [
        orphan.id for orphan in await stores.turns.orphans("me", [], is_alone=options.get("is_alone", False))
    ]


async def orphans_after(seconds: int, url: str, stores: Stores) -> set[str]:
    """What is found when `lives` has beaten so long ago, and less than a second longer."""
    beat = f"UPDATE replicas SET beat_at = now() - interval '{seconds} seconds' WHERE id = 'lives'"  # noqa: S608
    age = "SELECT extract(epoch FROM now() - beat_at)::float8 FROM replicas WHERE id = 'lives'"
    while True:
        await run_on(url, beat)
        found = set(await orphans_of(stores))
        if await ask(url, age) < seconds + 1:
            return found


async def test_a_process_that_beats_is_known_and_forgotten_when_it_stops(
    embedded_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heartbeat, "INTERVAL", 0.01)
    await run_on(embedded_database, "INSERT INTO replicas VALUES ('long gone', now() - interval '2 days')")
    beating = Heartbeat(embedded_database, "one")
    await beating.start()
    first = await ask(embedded_database, BEAT_AT, "one")
    await until(lambda: ask(embedded_database, BEAT_AT, "one"), lambda beat_at: beat_at != first)
    await beating.stop()
    assert await ask(embedded_database, "SELECT count(*) FROM replicas") == 0
    assert "heartbeat" not in [thread.name for thread in threading.enumerate()]
    await beating.stop()


async def test_one_that_is_stopped_at_once_or_was_never_started_stops(embedded_database: str) -> None:
    await Heartbeat(embedded_database, "never").stop()
    for _ in range(10):
        beating = Heartbeat(embedded_database, "short")
        await beating.start()
        await beating.stop()
    assert await ask(embedded_database, BEAT_AT, "short") is None


async def test_a_beat_that_fails_is_tried_again(
    embedded_database: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(heartbeat, "INTERVAL", 0.01)
    beating = Heartbeat(embedded_database, "one")
    await beating.start()
    cut = (
        "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity"
        " WHERE query LIKE '%INSERT INTO replicas%' AND pid <> pg_backend_pid() AND datname = current_database()"
    )
    with caplog.at_level(logging.WARNING):
        # Again and again: what is found first may be the connection of the start, which is just closing.
        await until(lambda: ask(embedded_database, cut), lambda _: "no heartbeat" in caplog.text)
        await run_on(embedded_database, "DELETE FROM replicas")
        await until(lambda: ask(embedded_database, BEAT_AT, "one"))
    await beating.stop()


async def test_one_whose_database_is_away_does_not_start() -> None:
    with pytest.raises(StorageUnavailable):
        await Heartbeat("postgresql://nobody@/x?host=/nowhere", "one").start()


async def test_one_that_cannot_be_forgotten_stops_all_the_same(embedded_database: str) -> None:
    beating = Heartbeat(embedded_database, "one")
    await beating.start()
    beating._url = "postgresql://nobody@/x?host=/nowhere"
    await beating.stop()
    assert "heartbeat" not in [thread.name for thread in threading.enumerate()]


async def test_turns_are_orphans_when_their_process_has_not_beaten_for_six_seconds(database: str) -> None:
    async with open_stores(database) as stores:
        turns = {}
        for owner, age in (("lives", 5), ("dead", 7), ("unknown", None), ("me", 0)):
            turns[owner] = await stores.new_turn(await stores.new_session(), owner=owner)
            if age is not None:
                await run_on(
                    database,
                    f"INSERT INTO replicas VALUES ('{owner}', now() - interval '{age} seconds')",  # noqa: S608
                )
        found = await orphans_of(stores)
        if not await ask(database, IS_OLD_ENOUGH):
            assert found == [turns["me"]], "a database that has just come back judges nobody else"
        await until(lambda: ask(database, IS_OLD_ENOUGH))
        assert await orphans_after(5, database, stores) == {turns["dead"], turns["unknown"], turns["me"]}
        assert set(await orphans_of(stores, is_alone=True)) == set(turns.values())


async def test_one_that_missed_a_beat_judges_nobody_for_a_while(
    embedded_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heartbeat, "INTERVAL", 0.01)
    monkeypatch.setattr(heartbeat, "STEADY", 3600.0)
    beating = Heartbeat(embedded_database, "one")
    await beating.start()
    first = await ask(embedded_database, BEAT_AT, "one")
    await until(lambda: ask(embedded_database, BEAT_AT, "one"), lambda beat_at: beat_at != first)
    assert not beating.is_steady
    monkeypatch.setattr(heartbeat, "STEADY", 0.1)
    await until(lambda: steadiness(beating))
    monkeypatch.setattr(heartbeat, "BEAT", "SELECT 1 / 0 WHERE $1 <> ''")
    await until(lambda: steadiness(beating), lambda is_steady: not is_steady)
    await beating.stop()


async def steadiness(beating: Heartbeat) -> bool:
    return beating.is_steady


async def test_a_process_that_was_stopped_itself_judges_nobody_at_once(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1000.0
    monkeypatch.setattr("app.postgres.heartbeat._now", lambda: now)
    heartbeat = Heartbeat(database, "replica")
    for _ in range(10):
        heartbeat._has_beaten(now)
        now += 1.0
    assert heartbeat.is_steady
    now += 8.0
    assert not heartbeat.is_steady
    heartbeat._has_beaten(now)
    assert not heartbeat.is_steady
    for _ in range(7):
        now += 1.0
        heartbeat._has_beaten(now)
    assert heartbeat.is_steady
