"""What only a real database can show: several writers, lost answers, content it refuses, its errors in our words."""

import asyncio
import random

import asyncpg
import pytest

from app.errors import StorageUnavailable
from app.events.canonical import encode
from app.events.ending import Ending
from app.events.envelope import Draft
from app.log.store import Slice, StrandRejected
from app.postgres.event_store import PostgresEventStore
from app.postgres.pool import Pool
from app.turns.admission import Answering, NothingAsked
from tests.conftest import Server, open_stores, run_on
from tests.log.storing import Stores, delta, draft, keyed, of_turn, until

WAITING = """
SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"""


async def ask(url: str, query: str, *arguments: object) -> object:
    connection = await asyncpg.connect(url)
    try:
        return await connection.fetchval(query, *arguments)
    finally:
        await connection.close()


async def test_writers_of_two_processes_never_gap_or_double_a_place(database: str) -> None:
    async with open_stores(database) as one, open_stores(database) as two:
        sessions = [await one.new_session() for _ in range(4)]
        turns = {session: await one.new_turn(session) for session in sessions}

        async def write_turn(store: Stores, session: str) -> None:
            for n in range(15):
                drafts = [delta(), draft("m"), delta()]
                await store.events.write([of_turn(session, turns[session], 3 + n * 3, drafts)])

        async def write_clients(store: Stores, seed: int) -> None:
            chance = random.Random(seed)  # noqa: S311 - a test's order, not a secret
            for n in range(15):
                chosen = chance.sample(sessions, 3)
                # Some of the writes are large enough for COPY.
                count = 40 if n % 4 == 0 else 2
                await store.events.write([keyed(session, *[draft("c")] * count) for session in chosen])

        writers = [
            write_turn(store, session) for store, session in zip([one, two] * 2, sessions, strict=True)
        ]
        await asyncio.gather(*writers, *(write_clients([one, two][n % 2], n) for n in range(6)))
        for session in sessions:
            events = await one.all(session)
            assert [event.place for event in events] == list(range(1, len(events) + 1))
            lasting = [event.ordinal for event in events if event.ordinal is not None]
            assert lasting == list(range(1, len(lasting) + 1))
            head = await one.events.head(session)
            assert head is not None
            assert (head.place, head.lasting) == (len(events), len(lasting))
            assert len([event for event in events if event.turn_id == turns[session]]) == 2 + 15 * 3


async def test_a_key_that_an_earlier_try_is_still_committing_is_asked_for_again(database: str) -> None:
    async with open_stores(database) as stores:
        session = await stores.new_session()
        strand = keyed(session, draft("once"))
        locker = await asyncpg.connect(database)
        transaction = locker.transaction()
        await transaction.start()
        await locker.execute("SELECT * FROM heads FOR UPDATE")
        tries = [asyncio.create_task(stores.events.write([strand])) for _ in range(2)]
        await until(lambda: ask(database, WAITING), lambda count: count == 2)
        await transaction.rollback()  # the second now counts on from the first, but cannot see its key yet
        await locker.close()
        outcomes = await asyncio.gather(*tries, return_exceptions=True)
        assert sorted(type(each).__name__ for each in outcomes) == ["StorageUnavailable", "list"]
        [placed] = await stores.events.write([strand])
        assert placed is not None
        assert (placed.skipped, placed.last) == (1, 2)
        assert await stores.types(session) == ["session_start", "once"]


async def test_a_turns_strand_that_is_written_twice_at_once_is_stored_once(database: str) -> None:
    async with open_stores(database) as stores:
        session = await stores.new_session()
        turn = await stores.new_turn(session)
        strand = of_turn(session, turn, 3, [draft("a"), draft("b")], ending=Ending.completed())
        places = await asyncio.gather(*(stores.events.write([strand]) for _ in range(5)))
        assert sorted(placed.skipped for [placed] in places if placed is not None) == [0, 2, 2, 2, 2]
        assert (await stores.types(session))[3:] == ["a", "b"]


@pytest.mark.parametrize("stores", ["embedded", "embedded-copy", "debian", "debian-copy"], indirect=True)
async def test_content_that_the_database_refuses_is_rejected(stores: Stores) -> None:
    session = await stores.new_session()
    for bad in (
        Draft("type", 1, b"{no json", b"{}"),
        Draft("nul \x00", 1, b"{}", b"{}"),
        Draft("surrogate \ud800", 1, b"{}", b"{}"),
        Draft("time", 2**70, b"{}", b"{}"),
    ):
        with pytest.raises(StrandRejected):
            await stores.events.write([keyed(session, bad)])
    assert await stores.types(session) == ["session_start"]
    assert await stores.append(session, draft("good")) is not None


async def test_a_place_that_is_taken_is_rejected_not_retried(embedded_database: str) -> None:
    async with open_stores(embedded_database) as stores:
        session = await stores.new_session()
        await ask(embedded_database, "UPDATE heads SET last_seq = 0 WHERE session_id = $1", session)
        with pytest.raises(StrandRejected):
            await stores.append(session, draft())


async def test_a_database_that_writes_nothing_is_away(
    embedded_database: str, embedded_server: Server
) -> None:
    async with open_stores(embedded_database) as stores:
        session = await stores.new_session()
        name = await ask(embedded_database, "SELECT current_database()")
        await ask(embedded_database, f"ALTER DATABASE {name} SET default_transaction_read_only = on")
        async with open_stores(embedded_database) as standby:
            with pytest.raises(StorageUnavailable):
                await standby.append(session, draft())
        await run_on(embedded_server.url, f"ALTER DATABASE {name} RESET ALL")


async def test_a_connection_that_is_cut_is_unavailability(embedded_database: str) -> None:
    async with open_stores(embedded_database) as stores:
        session = await stores.new_session()
        locker = await asyncpg.connect(embedded_database)
        transaction = locker.transaction()
        await transaction.start()
        await locker.execute("SELECT * FROM heads FOR UPDATE")
        write = asyncio.create_task(stores.append(session, draft()))
        waiting = (
            "SELECT pid FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
        )
        pid = await until(lambda: ask(embedded_database, waiting), lambda pid: pid is not None)
        await ask(embedded_database, "SELECT pg_terminate_backend($1)", pid)
        with pytest.raises(StorageUnavailable):
            await write
        await transaction.rollback()
        await locker.close()
        assert await stores.types(session) == ["session_start"]


async def test_a_pool_that_is_not_open_is_unavailable(embedded_database: str) -> None:
    pool = Pool(embedded_database, size=2)
    assert pool.in_use == 0
    with pytest.raises(StorageUnavailable):
        await PostgresEventStore(pool).head("sess_x")
    await pool.close()
    await pool.open()
    async with pool.connection():
        assert pool.in_use == 1
    assert pool.in_use == 0
    await pool.close()
    with pytest.raises(StorageUnavailable):
        await PostgresEventStore(pool).head("sess_x")


async def test_a_pool_closes_in_time_although_a_connection_is_kept(embedded_database: str) -> None:
    pool = Pool(embedded_database, size=2)
    await pool.open()

    async def keep_a_connection() -> None:
        async with asyncio.timeout(60), pool.connection() as connection:
            await pool.close()
            await connection.execute("SELECT 1")

    with pytest.raises(StorageUnavailable):
        await keep_a_connection()


async def test_a_wrong_address_is_unavailability() -> None:
    with pytest.raises(StorageUnavailable):
        await Pool("postgresql://nobody@/x?host=/nowhere", size=2).open()


async def test_a_page_that_stays_under_its_budget_is_the_last_whatever_its_sizes_are(database: str) -> None:
    """The database's sizes have headers of one or four bytes, or lie elsewhere; the reader's have none."""
    async with open_stores(database) as stores:
        session = await stores.new_session()
        sizes = [1, 50, 120, 124, 125, 126, 127, 128, 500, 1990, 2000, 2100, 8000, 9000]
        drafts = [Draft("note", 1, encode("x" * (size - 2) if size > 1 else 1), b"{}") for size in sizes]
        await stores.append(session, *drafts)
        total = sum(len(each.data) for each in drafts)
        for budget in range(1, total + 2, 31):
            events = await stores.events.read(session, Slice(1, budget=budget))
            is_last = sum(len(event.data) for event in events) < budget
            assert not is_last or len(events) == len(sizes)


async def test_an_answer_that_waits_for_its_session_sees_that_the_question_was_closed_meanwhile(
    database: str,
) -> None:
    async with open_stores(database) as stores:
        session = await stores.new_session()
        asking = await stores.new_turn(session)
        answering = Answering(asking, asking)
        ending = Ending.completed(question="Which city?")
        await stores.events.write([of_turn(session, asking, 3, [draft("agent_run_end")], ending=ending)])
        closer = await asyncpg.connect(database)
        async with closer.transaction():
            await closer.execute("SELECT FROM heads WHERE session_id = $1 FOR UPDATE", session)
            answer = asyncio.create_task(
                stores.turns.start(
                    "turn_answer", session, [draft()], owner="me", trace_id=None, answering=answering
                )
            )
            await until(lambda: ask(database, WAITING))
            await closer.execute("UPDATE turns SET code = 'aborted' WHERE id = $1", asking)
        with pytest.raises(NothingAsked):
            await answer
        await closer.close()
