"""Reports of databases whose order, connections and notifications were trusted too much."""

import asyncio
import os
import random
import signal
import sys
import tempfile
import time
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import asyncpg
import httpx
import pytest

from app.agents.contract import AgentEvent, Prompt, Scope
from app.postgres import event_store, signals
from app.postgres.embedded import throwaway_postgres
from app.postgres.event_store import PostgresEventStore
from app.postgres.migrations import current, migrate, newest
from app.postgres.pool import Connection, _prepare
from tests.conftest import Server, own_database, run_on
from tests.log.storing import draft, keyed
from tests.replicas.processes import LISTENERS
from tests.reports.machine import ROOT
from tests.server import (
    COMPLETED,
    PATIENCE,
    Client,
    Json,
    elapsed,
    places,
    said,
    saying,
    serving,
    soon,
    types,
    until,
)

WAITING = (
    "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
)


async def ask(url: str, query: str, *arguments: object) -> Any:
    connection = await asyncpg.connect(url)
    try:
        return await connection.fetch(query, *arguments)
    finally:
        await connection.close()


async def until_told(look: Callable[[], Awaitable[bool]]) -> None:
    """Look until it is so, for what a database tells only when it is asked."""
    async with asyncio.timeout(PATIENCE):
        while not await look():  # noqa: ASYNC110 - a database sets no event
            await asyncio.sleep(0.01)


# ── order ────────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_d09_history_is_in_order_however_its_rows_lie(client: Client, embedded_server: Server) -> None:
    """google/adk-python#454: without ORDER BY the history came in the order in which rows happened to lie."""
    session_id = await client.session(saying(*(({"type": "note", "n": n}) for n in range(200))))
    await client.query(session_id)
    database = client.server.parts.pool.url
    before = await client.events(session_id)
    chance = random.Random(9)  # noqa: S311 - a test's order, not a secret
    for _ in range(5):
        # Updated rows move to wherever there is room, and a vacuum makes more of it.
        some = chance.sample(range(1, len(before)), 60)
        query = "UPDATE events SET ts = ts WHERE session_id = $1 AND seq = ANY ($2::bigint[])"
        await ask(database, query, session_id, some)
        await run_on(database, "VACUUM events")
        for _ in range(20):
            events = await client.events(session_id)
            assert events == before
        page = await client.page(session_id, order="desc", limit=1000)
        assert page["events"] == before[::-1]
        page = await client.page(session_id, limit=1000)
        assert page["events"] == before
        page = await client.page(session_id, types="note", limit=1000)
        assert [event["data"]["n"] for event in page["events"]] == list(range(200))
    lying = await ask(database, "SELECT seq FROM events WHERE session_id = $1 ORDER BY ctid", session_id)
    assert [row["seq"] for row in lying] != places(before), "the rows lay in order all the time"


class HeldPool:
    """A pool of one connection, in a transaction that is not committed yet."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        yield self._connection


async def test_d10_a_reader_does_not_skip_what_is_committed_late(client: Client) -> None:
    """commanded/eventstore#3: an event with a lower number was committed after one that a reader had seen."""
    session_id = await client.session()
    database = client.server.parts.pool.url
    slow = await asyncpg.connect(database)
    await _prepare(slow)
    other_replica = PostgresEventStore(HeldPool(slow))  # type: ignore[arg-type]  # all that it asks of a pool
    transaction = slow.transaction()
    async with client.stream(session_id) as stream:
        await stream.upto("session_start")
        await transaction.start()
        [held] = await other_replica.write([keyed(session_id, draft("early"), draft("early"))])
        assert held is not None
        quick = asyncio.create_task(client.append(session_id, "late"))
        await until_told(lambda: _is_waiting(database))
        assert not quick.done(), "it has a place, and the one before it is not there yet"
        assert types(await client.events(session_id)) == ["session_start"]
        await transaction.commit()
        await quick
        seen = await stream.upto("late")
    await slow.close()

    assert types(seen) == ["early", "early", "late"]
    assert places(seen) == [2, 3, 4]
    assert seen == (await client.events(session_id))[1:]


async def _is_waiting(database: str) -> bool:
    [[count]] = await ask(database, WAITING)
    return bool(count)


async def test_d21_pages_neither_skip_nor_repeat_while_events_are_added(client: Client) -> None:
    """Git-on-my-level/agent-nexus#193: pages by offset skipped and repeated while events were added."""
    count, of_page = 3_000, 100
    session_id = await client.session(saying(*({"type": "note", "n": n} for n in range(count))))
    await client.query(session_id)
    is_read, has_begun = asyncio.Event(), asyncio.Event()

    async def goes_on(_: Scope, __: Prompt) -> AsyncIterator[AgentEvent]:
        while not is_read.is_set():
            yield {"type": "later"}
            has_begun.set()
            await asyncio.sleep(0.002)
        yield COMPLETED

    before = await client.events(session_id, deltas=False)
    client.server.agent.in_session[session_id] = goes_on
    query = asyncio.create_task(client.query(session_id))
    await soon(has_begun.wait())
    newest_first = await _read_backwards(client, session_id, of_page)
    by_offset = await _read_by_offset(client, session_id, of_page, len(before))
    is_read.set()
    await query

    everything = await client.events(session_id, deltas=False)
    assert len(everything) > len(before) + 10, "nothing was added meanwhile"
    assert newest_first == everything[: len(newest_first)][::-1]
    assert newest_first[-len(before) :] == before[::-1]
    assert by_offset == everything[: len(by_offset)]


async def _read_backwards(client: Client, session_id: str, limit: int) -> list[Json]:
    """The session newest first, as a page that scrolls up reads it."""
    seen: list[Json] = []
    params: Json = {}
    while True:
        page = await client.page(session_id, order="desc", limit=limit, **params)
        seen += page["events"]
        if not page["hasMore"]:
            return seen
        params = {"before": page["nextBefore"]}


async def _read_by_offset(client: Client, session_id: str, limit: int, at_least: int) -> list[Json]:
    seen: list[Json] = []
    total = 0
    while len(seen) < at_least:
        page = await client.page(session_id, limit=limit, offset=len(seen))
        assert page["total"] >= total, "the session got shorter"
        total = page["total"]
        assert page["hasMore"] == (len(seen) + len(page["events"]) < total)
        seen += page["events"]
    return seen


# ── connections ──────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_d24_streams_hold_no_connection_of_the_database(embedded_server: Server) -> None:
    """aegra/aegra#423: each open stream held a connection, and the pool ran dry."""
    async with own_database(embedded_server) as url, serving(url, pool_size=2) as server:
        client = await server.client()
        sessions = [await client.session() for _ in range(20)]
        async with AsyncExitStack() as stack:
            streams = [
                await stack.enter_async_context(client.stream(sessions[number % 20])) for number in range(200)
            ]
            for stream in streams:
                await stream.upto("session_start")
            readers = server.parts.parts.readers
            assert len(readers) == 200
            await until(lambda: server.parts.pool.in_use <= 1)  # the one that looks after things now and then
            # Without a connection to be had they would wait for one, and fail.
            for number in range(50):
                assert (await client.status(sessions[number % 20]))["state"] == "idle"
                assert (await client.append(sessions[number % 20], "note")).status_code == 201
            await soon(asyncio.gather(*(stream.upto("note") for stream in streams)))
            assert len(readers) == 200


async def test_d28_the_pool_recovers_whenever_postgres_is_killed() -> None:
    """MagicStack/asyncpg#1307: after a fail-over the pool's users hung until the process was restarted."""
    kills = 3
    go_on = asyncio.Event()
    words = 0

    async def talks(_: Scope, __: Prompt) -> AsyncIterator[AgentEvent]:
        nonlocal words
        while not go_on.is_set():
            yield said(f"{words} ")
            words += 1
            await asyncio.sleep(0.01)
        yield COMPLETED

    options = {"synchronous_commit": "on"}  # what was answered must outlive the kill
    async with throwaway_postgres(options=options) as postgres:
        await migrate(postgres.dsn)
        async with serving(postgres.dsn, pool_size=3) as server:
            client = await server.client()
            session_id, other = await client.session(talks), await client.session()
            query = asyncio.create_task(
                client.http.post("/api/v1/sessions/query", json=_hello(session_id), timeout=120)
            )
            await until(lambda: words > 0)
            async with _load(client, other) as answers:
                for restarts in range(1, kills + 1):
                    await until(lambda: answers[-3:] == [200] * 3)
                    assert postgres.pid is not None
                    os.kill(postgres.pid, signal.SIGKILL)
                    await soon(_until_restarted(postgres, restarts))
                    since = time.monotonic()
                    assert (await client.status(other))["state"] == "idle"
                    assert (await client.append(other, "note")).status_code == 201
                    assert elapsed(since) < 20
                    answers.clear()
                await until(lambda: answers[-3:] == [200] * 3)
            go_on.set()
            answer = (await query).json()
            assert (await client.get("/readyz")).status_code == 200
            events = await client.events(session_id)

    assert answer.get("status") == "completed", answer
    assert answer["response"] == "".join(f"{number} " for number in range(words))
    assert places(events) == list(range(1, len(events) + 1))


def _hello(session_id: str) -> Json:
    return {"sessionId": session_id, "query": "hello"}


async def _until_restarted(postgres: Any, restarts: int) -> None:
    while postgres.restarts < restarts or not postgres.is_healthy:  # noqa: ASYNC110 - it tells nobody
        await asyncio.sleep(0.02)


@asynccontextmanager
async def _load(client: Client, session_id: str) -> AsyncIterator[list[int]]:
    """More requests at once than the pool has connections, again and again; their answers' statuses."""
    answers: list[int] = []

    async def go_on() -> None:
        while True:
            response = await client.get("/api/v1/sessions/details", sessionId=session_id)
            assert response.status_code in (200, 503), response.text
            answers.append(response.status_code)
            await asyncio.sleep(0.005)

    tasks = [asyncio.create_task(go_on()) for _ in range(6)]
    try:
        yield answers
    finally:
        for task in tasks:
            task.cancel()
        ends = await asyncio.gather(*tasks, return_exceptions=True)
    assert [end for end in ends if not isinstance(end, asyncio.CancelledError)] == []


MIGRATES = """
import asyncio, sys
from app.postgres.migrations import migrate
print("ready", flush=True)
for url in map(str.strip, sys.stdin):
    asyncio.run(migrate(url))
    print("done", flush=True)
"""


async def test_d32_four_processes_may_migrate_one_empty_database_at_once(embedded_server: Server) -> None:
    """aegra/aegra#548: two replicas migrated at once, and one of them died."""
    processes = [
        await asyncio.create_subprocess_exec(
            sys.executable, "-c", MIGRATES, cwd=ROOT, stdin=PIPE, stdout=PIPE, stderr=PIPE
        )
        for _ in range(4)
    ]

    async def tell(process: asyncio.subprocess.Process, word: str) -> bytes:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(f"{word}\n".encode())
        return await soon(process.stdout.readline())

    try:
        ready = await asyncio.gather(*(soon(p.stdout.readline()) for p in processes if p.stdout))
        assert ready == [b"ready\n"] * 4
        for number in range(3):
            name = f"empty_{number}"
            await run_on(embedded_server.url, f"CREATE DATABASE {name}")
            url = embedded_server.database(name)
            told = await asyncio.gather(*(tell(process, url) for process in processes))
            assert told == [b"done\n"] * 4
            assert await current(url) == newest()
            assert await migrate(url) == newest(), "there was something left to do"
            await run_on(embedded_server.url, f"DROP DATABASE {name}")
    finally:
        for process in processes:
            _, errors = await soon(process.communicate(b""))
            assert (process.returncode, errors) == (0, b"")


# ── notifications ────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_d33_a_listener_that_is_lost_loses_no_event(
    embedded_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MagicStack/asyncpg#519: the connection that listens was lost unnoticed, and notifications stopped.

    Without the poll that backs it: only listening again, and looking then, brings what was missed.
    """
    monkeypatch.setattr(signals, "LOOK", 3600)
    rounds = 3
    async with (
        own_database(embedded_server) as url,
        serving(url) as writing,
        serving(url) as reading,
    ):
        writer, reader = await writing.client(), await reading.client()
        session_id = await writer.session()
        await until_told(lambda: _count(url, LISTENERS, 2))
        writing.parts.parts.commit._hints.others = True  # type: ignore[misc]  # it was alone when it counted
        async with reader.stream(session_id) as stream, reader.socket() as socket:
            await socket.ask({"type": "join_session", "sessionId": session_id}, "session_start")
            await stream.upto("session_start")
            for number in range(rounds):
                lost = {row["pid"] for row in await ask(url, LISTENERS)}
                for pid in lost:
                    await ask(url, "SELECT pg_terminate_backend($1)", pid)
                for _ in range(5):
                    assert (await writer.append(session_id, "missed")).status_code == 201
                await writer.append(session_id, f"last of {number}")
                seen = await stream.upto(f"last of {number}")
                heard = await socket.until(f"last of {number}")
                assert types(seen) == ["missed"] * 5 + [f"last of {number}"]
                assert heard == seen
                await until_told(lambda: _count(url, LISTENERS, 2))
                assert not lost & {row["pid"] for row in await ask(url, LISTENERS)}
            await writer.append(session_id, "heard")
            assert types(await stream.upto("heard")) == ["heard"], "hints are heard again"


async def _count(url: str, query: str, wanted: int) -> bool:
    return len(await ask(url, query)) == wanted


# ── its like: an answer that was lost ────────────────────────────────────────────────────────────────────────────────

DONE = b"Z\x00\x00\x00\x05I"  # ReadyForQuery, outside of a transaction


class LosingAnswers:
    """A way to the server that cuts the connection in place of the answer to what has the next of the marks."""

    def __init__(self, upstream: str) -> None:
        self.marks: list[bytes] = []
        self._upstream = upstream
        self._tasks: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def listening(self, path: Path) -> AsyncIterator[None]:
        async with await asyncio.start_unix_server(self._accept, path):
            yield
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_unix_connection(self._upstream)
        is_marked = asyncio.Event()
        self._tasks.add(asyncio.create_task(self._ask(reader, far_writer, is_marked)))
        self._tasks.add(asyncio.create_task(self._answer(far_reader, writer, is_marked)))

    async def _ask(
        self, client: asyncio.StreamReader, server: asyncio.StreamWriter, is_marked: asyncio.Event
    ) -> None:
        while data := await client.read(2**16):
            if self.marks and self.marks[0] in data:
                self.marks.pop(0)
                is_marked.set()
            server.write(data)
        server.close()

    async def _answer(
        self, server: asyncio.StreamReader, client: asyncio.StreamWriter, is_marked: asyncio.Event
    ) -> None:
        while data := await server.read(2**16):
            if is_marked.is_set() and DONE in data:
                break
            client.write(data)
        client.close()


@pytest.fixture
def short_home() -> Iterator[Path]:
    """A directory whose name is short enough for a socket's path."""
    with tempfile.TemporaryDirectory(prefix="pg-", dir="/tmp") as home:
        yield Path(home)


@pytest.mark.parametrize("way", ["one statement", "COPY"])
async def test_a_write_whose_answer_was_lost_is_stored_and_shown_once(
    embedded_database: str, monkeypatch: pytest.MonkeyPatch, short_home: Path, way: str
) -> None:
    """The like of D10: the commit's answer was lost, and the batch is sent again."""
    if way == "COPY":
        monkeypatch.setattr(event_store, "COPY_FROM", 0)
        monkeypatch.setattr(event_store, "COPY_EACH", 0)
    [host] = httpx.QueryParams(embedded_database.partition("?")[2]).get_list("host")
    way_there = LosingAnswers(f"{host}/.s.PGSQL.5432")
    async with (
        way_there.listening(short_home / ".s.PGSQL.5432"),
        serving(embedded_database.replace(host, str(short_home))) as server,
    ):
        client = await server.client()
        session_id = await client.session(saying(said("a lost word "), {"type": "lost note"}))
        async with client.stream(session_id) as stream:
            way_there.marks += [b"a lost word", b"a client's"]
            answer = (await client.query(session_id)).json()
            appended = await client.append(session_id, "by_client", "a client's")
            seen = await stream.upto("by_client")
        failures = server.parts.parts.commit.failures
        everything = await client.events(session_id)

    assert (way_there.marks, failures) == ([], 2)
    assert (answer["status"], answer["response"], appended.status_code) == ("completed", "a lost word ", 201)
    assert seen == everything
    assert places(everything) == list(range(1, len(everything) + 1))
    assert types(everything).count("by_client") == types(everything).count("lost note") == 1
