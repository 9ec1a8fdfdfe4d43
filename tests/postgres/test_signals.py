"""Hints between processes: heard by the others, few, never needed, and never silent for long."""

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field

import asyncpg
import pytest

from app.postgres import pool as pools
from app.postgres import signals as signalling
from app.postgres.embedded import throwaway_postgres
from app.postgres.migrations import migrate
from app.postgres.pool import Pool
from app.postgres.signals import CHANNEL, MAX_PAYLOAD, Ears, Signals
from tests.conftest import open_stores, run_on
from tests.log.storing import draft, settle
from tests.replicas.processes import LISTENERS, ask, poll
from tests.server import soon, until

# A beat that is enough for the whole test, however slow the machine is.
BEAT = "INSERT INTO replicas VALUES ('{}', now() + interval '1 hour')"
NEVER = 3600.0


@dataclass
class Process:
    """A process's hints, and what it has heard."""

    signals: Signals
    pool: Pool
    reads: Sequence[str]
    moved: dict[str, int] = field(default_factory=dict)
    queued: list[str] = field(default_factory=list)
    stopped: list[str] = field(default_factory=list)
    has_looked: asyncio.Event = field(default_factory=asyncio.Event)

    def ears(self) -> Ears:
        return Ears(self.moved.__setitem__, self.queued.append, self.stopped.append, self._read_here)

    def _read_here(self) -> list[str]:
        self.has_looked.set()
        return list(self.reads)


@asynccontextmanager
async def process(url: str, name: str, *, reads: Sequence[str] = (), size: int = 2) -> AsyncIterator[Process]:
    """A process that lives and listens: it looks for the first time when its connection tells it what it hears."""
    await run_on(url, BEAT.format(name))
    async with AsyncExitStack() as stack:
        pool = Pool(url, size=size)
        await pool.open()
        stack.push_async_callback(pool.close)
        one = Process(Signals(pool, name), pool, reads)
        await one.signals.start(one.ears())
        stack.push_async_callback(one.signals.stop)
        await soon(one.has_looked.wait())
        yield one


async def listeners(url: str) -> list[int]:
    return await ask(url, LISTENERS)


async def listening_again(url: str, before: set[int]) -> None:
    """Wait for a listener that was not there before."""
    await poll(lambda: listeners(url), lambda found: bool(set(found) - before))


@asynccontextmanager
async def overhearing(url: str) -> AsyncIterator[list[str]]:
    """Everything that is said on the channel."""
    said: list[str] = []
    connection = await asyncpg.connect(url)
    await connection.add_listener(CHANNEL, lambda *hint: said.append(str(hint[3])))
    try:
        yield said
    finally:
        await connection.close()


@asynccontextmanager
async def overheard(url: str, *, size: int = 2) -> AsyncIterator[tuple[Process, list[str]]]:
    """The process `one`, which knows of another, and all that it says once it has greeted it."""
    async with overhearing(url) as said, process(url, "one", size=size) as one:
        await until(lambda: said == ["one\nlook"])
        said.clear()
        yield one, said


async def cut(url: str, pids: Sequence[int]) -> None:
    await run_on(url, "".join(f"SELECT pg_terminate_backend({pid});" for pid in pids))


async def test_the_hints_of_another_process_arrive_and_ones_own_are_ignored(database: str) -> None:
    async with process(database, "one") as one, process(database, "two") as two:
        await until(lambda: one.signals.others)
        one.signals.moved({"sess_a": 7, "sess_b": 8})
        one.signals.queued("sess_c")
        one.signals.stop_turn("turn_d")
        await until(lambda: bool(two.stopped))
        assert (two.moved, two.queued, two.stopped) == ({"sess_a": 7, "sess_b": 8}, ["sess_c"], ["turn_d"])
        # Notifications come in the order of their commits: what is heard now was said after all of the above.
        two.signals.queued("sess_e")
        await until(lambda: bool(one.queued))
        assert (one.moved, one.queued, one.stopped) == ({}, ["sess_e"], [])


async def test_one_notification_is_under_way_and_what_comes_meanwhile_is_merged(
    embedded_database: str,
) -> None:
    async with (
        process(embedded_database, "two") as two,
        overheard(embedded_database, size=1) as (one, said),
    ):
        async with one.pool.connection():
            one.signals.moved({"sess_a": 1})
            await settle()
            for place in range(2, 1001):
                one.signals.moved({"sess_a": place})
                await asyncio.sleep(0)
        one.signals.queued("sess_b")
        await until(lambda: two.moved == {"sess_a": 1000} and two.queued == ["sess_b"] and len(said) > 1)
        assert said[0] == "one\nmoved sess_a 1"
        assert len(said) in (2, 3)  # the queue's change may have come in time for the second


async def test_a_burst_of_changes_makes_few_notifications(embedded_database: str) -> None:
    async with (
        process(embedded_database, "two") as two,
        overheard(embedded_database) as (one, said),
    ):
        for place in range(1, 1001):
            one.signals.moved({"sess_a": place})
            if place % 100 == 0:
                await asyncio.sleep(0)
        await until(lambda: two.moved == {"sess_a": 1000} and said[-1:] == ["one\nmoved sess_a 1000"])
        assert len(said) <= 11
        places = [int(hint.rpartition(" ")[2]) for hint in said]
        assert places == sorted(places)


async def test_a_hint_too_long_to_send_says_look(
    embedded_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(signalling, "LOOK", NEVER)
    async with open_stores(embedded_database) as stores:
        session = await stores.new_session()
        async with (
            process(embedded_database, "two", reads=[session]) as two,
            overheard(embedded_database) as (one, said),
        ):
            await stores.append(session, draft(), draft())
            one.signals.moved({f"sess_{n:0100}": n for n in range(MAX_PAYLOAD // 100)})
            # Each hears it on a connection of its own.
            await until(lambda: two.moved == {session: 3} and bool(said))
            assert said == ["one\nlook"]


async def test_stops_and_queues_are_told_however_much_there_is_to_say(
    embedded_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(signalling, "LOOK", NEVER)
    stops = [f"turn_{n:026}" for n in range(1000)]
    async with process(embedded_database, "two") as two, process(embedded_database, "one") as one:
        one.signals.moved({f"sess_{n:026}": n for n in range(1000)})
        for turn_id in stops:
            one.signals.stop_turn(turn_id)
        one.signals.queued("sess_a")
        await until(lambda: bool(two.queued))
        assert two.stopped == stops


async def test_a_listener_that_was_cut_listens_again_and_looks_for_what_it_missed(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D33: nothing says that notifications were lost."""
    monkeypatch.setattr(signalling, "LOOK", NEVER)
    async with open_stores(database) as stores:
        session = await stores.new_session()
        async with process(database, "one") as one:
            ones = await listeners(database)
            async with process(database, "two", reads=[session]) as two:
                twos = [pid for pid in await listeners(database) if pid not in ones]
                await cut(database, twos)
                await stores.append(session, draft())
                one.signals.queued("sess_lost")
                await until(lambda: one.signals.others and two.moved.get(session) == 2)
                one.signals.stop_turn("turn_heard")
                await until(lambda: two.stopped == ["turn_heard"])
                assert await listeners(database) != twos


async def test_a_listener_that_cannot_look_because_every_connection_is_busy_tries_again(
    embedded_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(signalling, "LOOK", NEVER)
    monkeypatch.setattr(signalling, "RETRY", 0.02)
    async with open_stores(embedded_database) as stores:
        session = await stores.new_session()
        async with process(embedded_database, "two", reads=[session], size=1) as two:
            async with two.pool.connection():
                monkeypatch.setattr(pools, "ACQUIRE_TIMEOUT", 0.02)
                before = set(await poll(lambda: listeners(embedded_database)))
                await cut(embedded_database, [*before])
                await listening_again(embedded_database, before)
                await stores.append(session, draft())
                again = set(await listeners(embedded_database))
                await listening_again(embedded_database, before | again)
            await until(lambda: two.moved.get(session) == 2)


async def test_whoever_loses_every_hint_looks_now_and_then(
    embedded_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(signalling, "LOOK", 0.05)
    async with open_stores(embedded_database) as stores:
        session = await stores.new_session()
        async with process(embedded_database, "two", reads=[session]) as two:
            await run_on(embedded_database, BEAT.format("one"))
            await stores.append(session, draft())
            await until(lambda: two.moved.get(session) == 2)


async def test_one_that_is_alone_says_nothing_and_notices_when_it_no_longer_is(
    embedded_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(signalling, "LOOK", NEVER)
    async with overhearing(embedded_database) as said, process(embedded_database, "one") as one:
        assert not one.signals.others
        one.signals.moved({"sess_a": 1})
        one.signals.queued("sess_a")
        one.signals.stop_turn("turn_a")
        async with process(embedded_database, "two") as two:
            await until(lambda: one.signals.others)
            one.signals.moved({"sess_a": 2})
            await until(lambda: two.moved == {"sess_a": 2})
            assert (two.queued, two.stopped) == ([], [])
            await until(lambda: said == ["two\nlook", "one\nmoved sess_a 2"])


async def test_one_whose_neighbours_beat_no_longer_is_alone_again(
    embedded_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(signalling, "LOOK", 0.02)
    async with process(embedded_database, "one") as one:
        await run_on(embedded_database, BEAT.format("two"))
        await until(lambda: one.signals.others)
        await run_on(
            embedded_database,
            "UPDATE replicas SET beat_at = now() - interval '11 seconds' WHERE id = 'two'",
        )
        await until(lambda: not one.signals.others)


async def test_a_hint_that_the_database_refuses_does_not_silence_the_next(
    embedded_database: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, signalling.__name__)
    async with process(embedded_database, "two") as two, process(embedded_database, "one") as one:
        one.signals.queued("sess_\x00")
        await until(lambda: "a hint was lost" in caplog.text)
        one.signals.queued("sess_a")
        await until(lambda: two.queued == ["sess_a"])


async def test_a_restart_of_the_database_is_survived() -> None:
    async with throwaway_postgres() as postgres:
        await migrate(postgres.dsn)
        async with open_stores(postgres.dsn) as stores:
            session = await stores.new_session()
        async with process(postgres.dsn, "one") as one, process(postgres.dsn, "two", reads=[session]) as two:
            await postgres.stop()
            one.signals.queued("sess_lost")
            await postgres.start()
            await until(lambda: two.moved.get(session) == 1)  # it looked

            async def is_heard() -> bool:
                one.signals.stop_turn("turn_a")
                await asyncio.sleep(0.02)
                return bool(two.stopped)

            await poll(is_heard)
