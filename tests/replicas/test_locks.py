"""The transactions of several processes against each other: none deadlocks, and what they leave is sound."""

import asyncio
import json
import os
import sys
from asyncio.subprocess import PIPE
from collections import Counter
from typing import Any

import asyncpg

from app.agents.prompt import prompt_of
from app.events.ending import Ending
from app.events.envelope import now_ms
from app.events.ids import new_turn_id
from app.turns.admission import Query
from tests.conftest import LONG, open_stores
from tests.log.storing import delta, draft, of_turn
from tests.replicas.processes import ROOT, ask, wait_for

PROCESSES = 8
SECONDS = 60.0 if os.environ.get(LONG) == "1" else 5.0
DEEDS = {
    "flush", "start", "enqueue", "start_queued", "remove", "ask_to_stop", "take_over", "update", "delete", "retire",
    "purge",
}  # fmt: skip
WAIT_FOR_LOCKS = """
SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"""

DEADLOCKS = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"

# Each names what is wrong; none may find a row.
WRONGS = {
    "a place is missing that no retired turn had": """
        SELECT h.session_id FROM heads h, generate_series(1, h.last_seq) AS place
        WHERE NOT EXISTS (SELECT FROM events e WHERE e.session_id = h.session_id AND e.seq = place)
          AND NOT EXISTS (SELECT FROM turns t WHERE t.session_id = h.session_id AND t.is_retired
                            AND place BETWEEN t.first_seq AND t.last_seq)""",
    "an event lies behind the head": """
        SELECT e.session_id FROM events e LEFT JOIN heads h USING (session_id)
        WHERE h.session_id IS NULL OR e.seq > h.last_seq""",
    "lasting events are not counted": """
        SELECT h.session_id FROM heads h JOIN events e USING (session_id)
        GROUP BY h.session_id, h.lasting_count
        HAVING count(e.ordinal) <> h.lasting_count OR max(e.ordinal) <> h.lasting_count""",
    "two turns run in a session": """
        SELECT session_id FROM turns WHERE state = 'running' GROUP BY session_id HAVING count(*) > 1""",
    "turns overlap": """
        SELECT a.id FROM turns a JOIN turns b ON a.session_id = b.session_id AND a.id < b.id
        WHERE a.first_seq <= b.last_seq AND b.first_seq <= a.last_seq""",
    "a turn has not one ending, or something after it": """
        SELECT t.id FROM turns t LEFT JOIN events e ON e.turn_id = t.id AND e.type = 'agent_run_end'
        GROUP BY t.id, t.state, t.last_seq
        HAVING count(e.seq) <> CASE t.state WHEN 'ended' THEN 1 ELSE 0 END OR max(e.seq) <> t.last_seq""",
    "a running turn's events are not counted": """
        SELECT t.id FROM turns t JOIN events e ON e.turn_id = t.id
        WHERE NOT t.is_retired GROUP BY t.id, t.stored HAVING count(*) <> t.stored""",
    "turns that wait are not counted": """
        SELECT h.session_id FROM heads h LEFT JOIN queued_turns q USING (session_id)
        GROUP BY h.session_id, h.queued HAVING count(q.turn_id) <> h.queued""",
    "a turn waits in a session that is gone": """
        SELECT q.turn_id FROM queued_turns q LEFT JOIN heads h USING (session_id)
        WHERE h.phase IS DISTINCT FROM 'open'""",
}


async def stress(url: str, seed: int) -> dict[str, Any]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.replicas.stress", url, str(seed), str(SECONDS),
        cwd=ROOT, stdout=PIPE, stderr=PIPE,
    )  # fmt: skip
    said, errors = await process.communicate()
    assert process.returncode == 0, errors.decode()
    report: dict[str, Any] = json.loads(said)
    return report


async def test_what_replicas_do_to_the_same_sessions_at_once_never_deadlocks(embedded_database: str) -> None:
    database = embedded_database
    [before] = await ask(database, DEADLOCKS)
    reports = await asyncio.gather(*(stress(database, seed) for seed in range(PROCESSES)))
    done: Counter[str] = Counter()
    for report in reports:
        done.update(report["done"])
    print(dict(done))  # noqa: T201 - shown with -s, and when it fails
    assert [deadlock for report in reports for deadlock in report["deadlocks"]] == []
    assert await ask(database, DEADLOCKS) == [before]
    assert set(done) >= DEEDS
    assert {wrong: found for wrong, query in WRONGS.items() if (found := await ask(database, query))} == {}


async def test_a_turn_that_is_queued_while_its_session_is_deleted_leaves_nothing(database: str) -> None:
    async with open_stores(database) as stores:
        session = await stores.new_session()
        await stores.new_turn(session)
        locker = await asyncpg.connect(database)
        transaction = locker.transaction()
        await transaction.start()
        await locker.execute("SELECT FROM heads FOR UPDATE")
        query = Query("hi", prompt_of("hi"))
        enqueue = asyncio.create_task(
            stores.queue.enqueue(new_turn_id(), session, query, first=False, limit=1, key=None)
        )
        await wait_for(database, WAIT_FOR_LOCKS, answers=1)
        delete = asyncio.create_task(stores.sessions.bury(session, 1))
        await wait_for(database, WAIT_FOR_LOCKS, answers=2)
        await transaction.rollback()
        await locker.close()
        await asyncio.gather(enqueue, delete)
        assert await ask(database, "SELECT count(*) FROM queued_turns") == [0]
        assert await stores.queue.stranded() == []


async def test_purging_a_session_whose_deltas_are_just_being_retired_never_deadlocks(database: str) -> None:
    async with open_stores(database) as stores:
        ended = []
        for _ in range(2):
            session = await stores.new_session()
            turn = await stores.new_turn(session)
            drafts = [delta(), delta(), draft("agent_run_end")]
            await stores.events.write([of_turn(session, turn, 3, drafts, ending=Ending.completed())])
            ended.append(session)
        blocking, deleted = ended
        await stores.sessions.bury(deleted, 1)
        await stores.append(deleted, draft("session_end"), closes=True)
        locker = await asyncpg.connect(database)
        transaction = locker.transaction()
        await transaction.start()
        await locker.execute("SELECT FROM events WHERE session_id = $1 FOR UPDATE", blocking)
        retire = asyncio.create_task(stores.turns.retire(now_ms() + 1))
        await wait_for(database, WAIT_FOR_LOCKS, answers=1)
        purge = asyncio.create_task(stores.sessions.purge(2))
        await wait_for(database, WAIT_FOR_LOCKS, answers=2)
        await transaction.rollback()
        await locker.close()
        assert [await retire, await purge] == [2, 1]
        assert await stores.all(deleted) == []
        assert "assistant_message_delta" not in await stores.types(blocking)
