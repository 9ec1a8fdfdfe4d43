"""Recovery and the queue: what waited behind a turn that lost its process is started by whoever ends that turn."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from app.agents.contract import AgentEvent, Prompt, Scope
from app.errors import SessionBusy, StorageUnavailable
from app.turns.admission import Query
from tests.log.storing import Stores, memory_stores, settle
from tests.turns.running import COMPLETED, HI, Process, kill, process, text

Events = AsyncIterator[AgentEvent]


async def hangs_at_first(_scope: Scope, prompt: Prompt) -> Events:
    """An agent that never ends when it is asked `hi`."""
    yield text(prompt["text"])
    if prompt["text"] == "hi":
        await asyncio.Event().wait()
    yield COMPLETED


def asking(words: str) -> Query:
    return Query(words, {"text": words})


async def ends(stores: Stores, session_id: str) -> list[str | None]:
    return [event.turn_id for event in await stores.all(session_id) if event.type == "agent_run_end"]


async def die(one: Process) -> None:
    """As if the process had been killed."""
    await kill(one)
    one.supervisor.is_draining = True


async def test_what_waited_behind_an_orphan_runs_in_its_order(some_stores: Stores) -> None:
    async with process(some_stores, replica_id="old") as old:
        session = await old.new_session(hangs_at_first)
        turns = [await old.start(session)]
        turns += [
            (await old.supervisor.admit(session, asking(f"{n}"), on_busy="queue")).turn_id for n in range(3)
        ]
        await old.until(session, "assistant_message_delta")
        await die(old)
        async with process(some_stores, replica_id="new", agents=old.agents) as new:
            assert await new.supervisor.recover(is_alone=True) == 1
            for turn in turns[1:]:
                await new.supervisor.queue.dispatch_stranded()
                assert (await new.ending(session, turn))[-1][1]["status"] == "completed"
            assert await ends(some_stores, session.id) == turns
            assert (await new.told(session, turns[0]))[-1][1]["status"] == "interrupted"


async def test_a_turn_that_just_left_the_queue_is_not_taken_for_an_orphan() -> None:
    stores = memory_stores()
    async with process(stores) as one:
        session = await one.new_session(hangs_at_first)
        queue: Any = stores.queue
        start = queue.start
        is_stored, may_answer = asyncio.Event(), asyncio.Event()

        async def late(*args: Any, **kwargs: Any) -> Any:
            placed = await start(*args, **kwargs)
            is_stored.set()
            await may_answer.wait()
            return placed

        queue.start = late
        turn = "turn_" + "a" * 26
        await stores.queue.enqueue(turn, session.id, asking("x"), first=False, limit=1, key=None)
        dispatch = asyncio.create_task(one.supervisor.queue.dispatch(session.id))
        await is_stored.wait()
        assert await one.supervisor.recover(is_alone=True) == 0
        may_answer.set()
        await dispatch
        assert (await one.ending(session, turn))[-1][1]["status"] == "completed"


@pytest.mark.parametrize("is_stored", [True, False])
async def test_a_turn_whose_dispatch_got_no_answer_is_ended_once_or_started_later(is_stored: bool) -> None:
    stores = memory_stores()
    async with process(stores) as one:
        session = await one.new_session(hangs_at_first)
        first = await one.start(session)
        waiting = await one.supervisor.admit(session, asking("x"), on_busy="queue")
        told = waiting.removed
        assert told is not None
        queue: Any = stores.queue
        start = queue.start

        async def fails(*args: Any, **kwargs: Any) -> Any:
            if is_stored:
                await start(*args, **kwargs)
            queue.start = start
            raise StorageUnavailable("the answer is lost")

        queue.start = fails
        await one.supervisor.stops.abort(session.id, first)
        await settle()
        assert await one.supervisor.recover(is_alone=False) == int(is_stored)
        await one.supervisor.queue.dispatch_stranded()
        status = (await one.ending(session, waiting.turn_id))[-1][1]["status"]
        assert status == ("interrupted" if is_stored else "completed")
        assert not told.result()
        await one.ending(session, (await one.supervisor.admit(session, asking("y"))).turn_id)


async def test_a_turn_without_a_process_keeps_its_session_busy_until_it_is_ended(some_stores: Stores) -> None:
    async with process(some_stores, replica_id="old") as old:
        session = await old.new_session(hangs_at_first)
        await old.start(session)
        await die(old)
        async with process(some_stores, replica_id="new", agents=old.agents) as new:
            with pytest.raises(SessionBusy):
                await new.start(session, asking("x"))
            waiting = await new.supervisor.admit(session, asking("x"), on_busy="queue")
            await new.supervisor.recover(is_alone=True)
            assert (await new.ending(session, waiting.turn_id))[-1][1]["status"] == "completed"


async def test_an_interrupt_of_a_turn_without_a_process_starts_when_that_is_ended(
    some_stores: Stores,
) -> None:
    async with process(some_stores, replica_id="old") as old:
        session = await old.new_session(hangs_at_first)
        first = await old.start(session, HI)
        await die(old)
        async with process(some_stores, replica_id="new", agents=old.agents) as new:
            waiting = await new.supervisor.admit(session, asking("x"), on_busy="interrupt")
            await new.supervisor.recover(is_alone=True)
            assert (await new.ending(session, waiting.turn_id))[-1][1]["status"] == "completed"
            assert await ends(some_stores, session.id) == [first, waiting.turn_id]


async def test_a_turn_that_was_taken_over_holds_no_later_one_of_its_process_up(some_stores: Stores) -> None:
    async with process(some_stores, replica_id="paused") as paused:
        session = await paused.new_session(hangs_at_first)
        first = await paused.start(session)
        await paused.until(session, "assistant_message_delta")
        async with process(some_stores, replica_id="new", agents=paused.agents) as new:
            assert await new.supervisor.recover(is_alone=True) == 1
        # Before it has looked for what was asked of it, and while its agent says nothing.
        second = await paused.start(session, asking("x"))
        assert (await paused.ending(session, second))[-1][1]["status"] == "completed"
        assert await ends(some_stores, session.id) == [first, second]


async def test_an_orphan_that_cannot_be_ended_holds_no_other_up() -> None:
    stores = memory_stores()
    sessions = []
    async with process(stores, replica_id="dead") as dead:
        for _ in range(2):
            session = await dead.new_session(hangs_at_first)
            sessions.append((session, await dead.start(session)))
        await kill(dead)
        async with process(stores) as one:
            events: Any = stores.events
            read = events.read

            async def fails_for_the_first(session_id: str, which: Any) -> Any:
                if session_id == sessions[0][0].id:
                    raise ValueError("a broken row")
                return await read(session_id, which)

            events.read = fails_for_the_first
            assert await one.supervisor.recover(is_alone=True) == 1
            events.read = read
            session, turn = sessions[1]
            assert (await one.ending(session, turn))[-1][1]["status"] == "interrupted"
            # The first one is this process's own now, and the next round finds it.
            assert await one.supervisor.recover(is_alone=True) == 1


async def test_a_recovery_that_meets_an_outage_is_tried_again() -> None:
    stores = memory_stores()
    async with process(stores, replica_id="dead") as dead:
        session = await dead.new_session(hangs_at_first)
        turn = await dead.start(session)
        await kill(dead)
        async with process(stores) as one:
            turns: Any = stores.turns
            take_over = turns.take_over

            async def away(*_: Any) -> Any:
                turns.take_over = take_over
                raise StorageUnavailable("away")

            turns.take_over = away
            with pytest.raises(StorageUnavailable):
                await one.supervisor.recover(is_alone=True)
            assert await one.supervisor.recover(is_alone=True) == 1
            assert (await one.ending(session, turn))[-1][1]["status"] == "interrupted"
