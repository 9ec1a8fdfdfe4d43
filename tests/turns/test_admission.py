"""What may start a turn in a busy session, what waits, what a repeated key is, and what stops a turn by itself."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import Any

import pytest

from app.agents.contract import AgentEvent, Prompt, Scope
from app.agents.driver import Bounds
from app.errors import BadRequest, NotFound, SessionBusy, SessionDeleted, StorageUnavailable
from app.events.canonical import decode
from app.events.envelope import Placed
from app.log.store import MemoryEventStore, Strand
from app.sessions.session import Session
from app.sessions.store import MemorySessionStore
from app.turns.admission import (
    Admitted,
    Answering,
    Key,
    KeyReused,
    NothingAsked,
    OnBusy,
    Query,
    QueueFull,
    TurnRemoved,
)
from app.turns.deletion import delete_session
from app.turns.queue_store import MemoryQueueStore
from app.turns.turn_store import MemoryTurnStore
from tests.log.storing import LaggingStore, Stores, memory_stores, no_complaints, settle, until
from tests.turns.running import COMPLETED, HI, PATIENCE, Moments, Process, kill, process, text

Events = AsyncIterator[AgentEvent]


def removal(admitted: Admitted) -> "asyncio.Future[bool]":
    """What will tell whether the turn left the queue because it was removed."""
    assert admitted.removed is not None
    return admitted.removed


@pytest.fixture
async def one(some_stores: Stores) -> AsyncIterator[Process]:
    """A process over memory and over a database."""
    async with process(some_stores) as started:
        yield started


@pytest.fixture
async def memory() -> AsyncIterator[Process]:
    """A process over memory."""
    async with process(memory_stores()) as started:
        yield started


class Script:
    """An agent that waits, in the turns that it is told of, until it may go on; and remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.holds: dict[str, Moments] = {}

    def hold(self, prompt: str) -> Moments:
        """The moments of the turn with this prompt, which waits."""
        return self.holds.setdefault(prompt, Moments())

    async def __call__(self, _scope: Scope, prompt: Prompt) -> Events:
        self.asked.append(prompt["text"])
        yield text(prompt["text"])
        held = self.holds.get(prompt["text"])
        if held is not None:
            held.has_begun.set()
            await held.may_go_on.wait()
        yield COMPLETED


def asking(words: str, **more: Any) -> Query:
    return Query(words, {"text": words}, **more)


async def admit(
    one: Process, session: Session, words: str, on_busy: OnBusy = "queue", key: Key | None = None
) -> Admitted:
    return await one.supervisor.admit(session, asking(words), on_busy=on_busy, key=key)


async def busy(one: Process) -> tuple[Session, Script, Moments, str]:
    """A session in which a turn runs: the session, its script, the turn's moments and its id."""
    script = Script()
    held = script.hold("held")
    session = await one.new_session(script)
    turn = await one.start(session, asking("held"))
    await soon(held.has_begun)
    return session, script, held, turn


async def soon(moment: asyncio.Event) -> None:
    async with asyncio.timeout(PATIENCE):
        await moment.wait()


def stores_over(events: MemoryEventStore) -> Stores:
    """The stores in memory, with this one for events."""
    sessions, turns = MemorySessionStore(events), MemoryTurnStore(events)
    return Stores(events, sessions, turns, MemoryQueueStore(events, turns, sessions))


async def status(one: Process, session: Session, turn_id: str) -> Any:
    """How a turn ended."""
    return (await one.ending(session, turn_id))[-1][1]["status"]


async def order(one: Process, session: Session) -> list[tuple[str, str | None]]:
    """The beginnings and endings in the log, in order."""
    marks = {"user_message": "begins", "agent_run_end": "ends"}
    return [(marks[e.type], e.turn_id) for e in await one.stores.all(session.id) if e.type in marks]


async def line(one: Process, session: Session) -> list[str]:
    return [turn.turn_id for turn in await one.supervisor.queue.waiting(session.id)]


# ── reject ───────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_rejected_query_writes_nothing(one: Process) -> None:
    session, _, _, turn = await busy(one)
    await one.until(session, "assistant_message_delta")
    before = await one.stores.all(session.id)
    with pytest.raises(SessionBusy) as refused:
        await admit(one, session, "x", "reject", Key("k", "h"))
    assert refused.value.details == {"turnId": turn}
    assert await one.stores.all(session.id) == before
    assert await one.stores.queue.turn_of_key(session.id, Key("k", "h")) is None


async def test_a_query_is_rejected_while_others_wait(memory: Process) -> None:
    session, script, held, _ = await busy(memory)
    second = script.hold("second")
    await admit(memory, session, "second")
    third = await admit(memory, session, "third")
    held.may_go_on.set()
    await soon(second.has_begun)
    with pytest.raises(SessionBusy):
        await admit(memory, session, "x", "reject")
    second.may_go_on.set()
    await memory.ending(session, third.turn_id)


async def test_each_way_starts_at_once_when_nothing_runs(one: Process) -> None:
    modes: list[OnBusy] = ["reject", "queue", "interrupt"]
    session = await one.new_session(Script())
    for mode in modes:
        admitted = await admit(one, session, mode, mode)
        assert not admitted.is_waiting
        assert await status(one, session, admitted.turn_id) == "completed"


# ── queue ────────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_turns_that_wait_run_one_by_one_in_their_order(one: Process) -> None:
    session, script, held, first = await busy(one)
    waiting = [await admit(one, session, f"{n}") for n in range(3)]
    assert [(each.is_waiting, each.position) for each in waiting] == [(True, 1), (True, 2), (True, 3)]
    assert await line(one, session) == [each.turn_id for each in waiting]
    held.may_go_on.set()
    for each in waiting:
        assert await status(one, session, each.turn_id) == "completed"
    turns = [first, *(each.turn_id for each in waiting)]
    assert await order(one, session) == [(mark, turn) for turn in turns for mark in ("begins", "ends")]
    assert script.asked == ["held", "0", "1", "2"]
    assert await line(one, session) == []


async def test_a_turn_that_waits_has_no_events(one: Process) -> None:
    session, _, held, _ = await busy(one)
    admitted = await admit(one, session, "x")
    assert admitted.turn_id not in {event.turn_id for event in await one.stores.all(session.id)}
    held.may_go_on.set()
    events = await one.ending(session, admitted.turn_id)
    assert events[0][1]["content"] == "x"
    row = await one.stores.turns.get(admitted.turn_id)
    assert row is not None
    assert admitted.after < row.first_place


async def test_a_waiting_turns_query_is_kept_whole(one: Process) -> None:
    session, _, held, _ = await busy(one)
    content = [{"type": "text", "text": "hé\x00"}, {"type": "text", "text": "there"}]
    query = Query(content, {"text": "hé\x00\nthere"}, "a" * 32)
    admitted = await one.supervisor.admit(session, query, on_busy="queue")
    held.may_go_on.set()
    events = await one.ending(session, admitted.turn_id)
    assert events[0][1]["content"] == content
    log = await one.stores.all(session.id)
    assert all(b'"traceId":"aaaa' in event.metadata for event in log if event.turn_id == admitted.turn_id)


async def test_a_full_queue_takes_no_more(some_stores: Stores) -> None:
    async with process(some_stores, queue=2) as one:
        session, _, held, _ = await busy(one)
        waiting = [await admit(one, session, f"{n}") for n in range(2)]
        modes: list[OnBusy] = ["queue", "interrupt"]
        for mode in modes:
            with pytest.raises(QueueFull) as refused:
                await admit(one, session, "x", mode)
            assert (refused.value.status, refused.value.code) == (429, "queue_full")
        held.may_go_on.set()
        await one.ending(session, waiting[1].turn_id)


async def test_a_query_that_cannot_be_kept_does_not_wait(memory: Process) -> None:
    session, _, _, _ = await busy(memory)
    with pytest.raises(BadRequest):
        await memory.supervisor.admit(
            session, Query([{"type": "text", "more": float("nan")}], {"text": "x"}), on_busy="queue"
        )
    assert await line(memory, session) == []


async def test_a_removed_turn_is_told_and_leaves_no_event(one: Process) -> None:
    session, script, held, first = await busy(one)
    removed, kept = [await admit(one, session, words) for words in ("removed", "kept")]
    told = removal(removed)
    receipt = await one.supervisor.stops.abort(session.id, removed.turn_id)
    assert receipt is not None
    assert (receipt.status, receipt.is_new, receipt.last_place) == ("removed", True, 0)
    assert told.result()
    with pytest.raises(NotFound):
        await one.supervisor.stops.abort(session.id, removed.turn_id)
    held.may_go_on.set()
    await one.ending(session, kept.turn_id)
    assert {turn for _, turn in await order(one, session)} == {first, kept.turn_id}
    assert script.asked == ["held", "kept"]
    assert removal(kept).result() is False


async def test_a_turn_that_another_process_removed_is_told(one: Process) -> None:
    session, _, _, _ = await busy(one)
    admitted = await admit(one, session, "x")
    told = removal(admitted)
    await one.supervisor.queue.dispatch_stranded()
    assert not told.done()
    await one.stores.queue.remove(session.id, admitted.turn_id)
    await one.supervisor.queue.dispatch_stranded()
    assert told.result()


async def test_a_turn_that_starts_was_not_removed(memory: Process) -> None:
    session, _, held, _ = await busy(memory)
    admitted = await admit(memory, session, "x")
    told = removal(admitted)
    held.may_go_on.set()
    await memory.ending(session, admitted.turn_id)
    assert not await told


async def test_an_abort_without_a_name_leaves_those_that_wait(one: Process) -> None:
    session, _, _, first = await busy(one)
    admitted = await admit(one, session, "x")
    receipt = await one.supervisor.stops.abort(session.id)
    assert receipt is not None
    assert (receipt.turn_id, receipt.status) == (first, "aborted")
    assert await status(one, session, admitted.turn_id) == "completed"


async def test_a_deletion_drops_the_queue_and_tells_those_that_wait(one: Process) -> None:
    session, script, _, first = await busy(one)
    admitted = await admit(one, session, "x")
    told = removal(admitted)
    await delete_session(
        session.id, "alice", directory=one.directory, supervisor=one.supervisor, commit=one.commit
    )
    await one.supervisor.queue.dispatch_stranded()
    assert told.result()
    assert await order(one, session) == [("begins", first), ("ends", first)]
    assert (await one.stores.types(session.id))[-1] == "session_end"
    assert script.asked == ["held"]
    modes: list[OnBusy] = ["queue", "interrupt"]
    for mode in modes:
        with pytest.raises(SessionDeleted):
            await admit(one, session, "x", mode)


# ── interrupt ────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_an_interrupt_aborts_waits_for_the_ending_and_starts(one: Process) -> None:
    session, _, _, first = await busy(one)
    admitted = await admit(one, session, "x", "interrupt")
    assert (admitted.is_waiting, admitted.position) == (True, 1)
    assert await status(one, session, admitted.turn_id) == "completed"
    assert await status(one, session, first) == "aborted"
    assert await order(one, session) == [
        ("begins", first), ("ends", first), ("begins", admitted.turn_id), ("ends", admitted.turn_id),
    ]  # fmt: skip


async def test_an_interrupt_goes_before_those_that_wait_and_behind_earlier_interrupts(one: Process) -> None:
    session, script, _, first = await busy(one)
    waits = await admit(one, session, "waits")
    one_, two = [await admit(one, session, words, "interrupt") for words in ("one", "two")]
    for each in (one_, two, waits):
        assert await status(one, session, each.turn_id) == "completed"
    begun = [turn for mark, turn in await order(one, session) if mark == "begins"]
    assert begun == [first, one_.turn_id, two.turn_id, waits.turn_id]
    assert script.asked == ["held", "one", "two", "waits"]


async def test_an_interrupt_waits_until_the_agent_before_has_cleaned_up(memory: Process) -> None:
    told: list[str] = []
    begun, may_clean_up = asyncio.Event(), asyncio.Event()

    async def run(_scope: Scope, prompt: Prompt) -> Events:
        told.append(f"{prompt['text']} begins")
        begun.set()
        try:
            if prompt["text"] == "hi":
                await asyncio.Event().wait()
            yield COMPLETED
        finally:
            if prompt["text"] == "hi":
                await may_clean_up.wait()
            told.append(f"{prompt['text']} is over")

    session = await memory.new_session(run)
    await memory.start(session)
    await soon(begun)
    admitted = await admit(memory, session, "x", "interrupt")
    may_clean_up.set()
    await memory.ending(session, admitted.turn_id)
    assert told[:3] == ["hi begins", "hi is over", "x begins"]


async def test_two_turns_agents_never_run_at_once_though_the_one_between_never_began(memory: Process) -> None:
    """The second is aborted while it waits for the first's clean-up; the third waits for that, too."""
    told: list[str] = []
    may_clean_up = asyncio.Event()

    async def run(_scope: Scope, prompt: Prompt) -> Events:
        told.append(prompt["text"])
        try:
            yield COMPLETED
        finally:
            if prompt["text"] == "hi":
                await may_clean_up.wait()
            told.append(f"{prompt['text']} is over")

    patient = replace(memory.supervisor._limits.bounds, tail=PATIENCE, close=PATIENCE)
    async with process(memory_stores(), bounds=patient) as one:
        session = await one.new_session(run)
        await one.ending(session, await one.start(session))
        await one.start(session, asking("second"))
        await one.supervisor.stops.abort(session.id)
        third = await one.start(session, asking("third"))
        await settle()
        assert told == ["hi"]
        may_clean_up.set()
        await one.ending(session, third)
    assert told[:3] == ["hi", "hi is over", "third"]


async def test_an_interrupt_never_hits_its_own_turn_or_one_that_began_after_it(memory: Process) -> None:
    session, script, held, first = await busy(memory)
    second = script.hold("second")
    third = script.hold("third")
    queued = await admit(memory, session, "third")
    interrupting = await admit(memory, session, "second", "interrupt")
    await soon(second.has_begun)
    await memory.supervisor.stops._abort_what_ran(session.id, interrupting.after)
    assert memory.supervisor.running == 1
    second.may_go_on.set()
    await soon(third.has_begun)
    await memory.supervisor.stops._abort_what_ran(session.id, interrupting.after)
    third.may_go_on.set()
    assert await status(memory, session, first) == "aborted"
    assert await status(memory, session, interrupting.turn_id) == "completed"
    assert await status(memory, session, queued.turn_id) == "completed"
    assert not held.may_go_on.is_set()


async def test_an_interrupt_aborts_a_turn_that_came_from_the_queue_in_the_meantime(memory: Process) -> None:
    """What it saw running has ended by itself, and the next one has begun before the interrupt was stored."""
    session, script, held, _ = await busy(memory)
    second = script.hold("second")
    queued = await admit(memory, session, "second")
    asked, may_ask = asyncio.Event(), asyncio.Event()
    store: Any = memory.stores.queue
    enqueue = store.enqueue

    async def late(*args: Any, **kwargs: Any) -> tuple[int, int]:
        asked.set()
        await may_ask.wait()
        told: tuple[int, int] = await enqueue(*args, **kwargs)
        return told

    store.enqueue = late
    interrupting = asyncio.create_task(admit(memory, session, "x", "interrupt"))
    await soon(asked)
    held.may_go_on.set()
    await soon(second.has_begun)
    may_ask.set()
    admitted = await interrupting
    assert await status(memory, session, admitted.turn_id) == "completed"
    assert await status(memory, session, queued.turn_id) == "aborted"


# ── keys ─────────────────────────────────────────────────────────────────────────────────────────────────────────────

KEY = Key("k", "hash")


@pytest.mark.parametrize("mode", ["reject", "queue", "interrupt"])
async def test_of_many_with_one_key_at_once_one_turn_is_made(one: Process, mode: OnBusy) -> None:
    session = await one.new_session(Script())
    admitted = await asyncio.gather(*(admit(one, session, "x", mode, KEY) for _ in range(50)))
    [turn] = {each.turn_id for each in admitted}
    assert [each.is_repeat for each in admitted].count(False) == 1
    assert await status(one, session, turn) == "completed"
    assert await order(one, session) == [("begins", turn), ("ends", turn)]


@pytest.mark.parametrize("limit", [1, 16])
async def test_of_many_with_one_key_in_a_busy_session_one_waits(some_stores: Stores, limit: int) -> None:
    """Also when that one fills the queue."""
    async with process(some_stores, queue=limit) as one:
        session, script, held, _ = await busy(one)
        admitted = await asyncio.gather(*(admit(one, session, "x", "queue", KEY) for _ in range(50)))
        [turn] = {each.turn_id for each in admitted}
        assert [each.is_repeat for each in admitted].count(False) == 1
        assert {(each.is_waiting, each.position) for each in admitted} == {(True, 1)}
        held.may_go_on.set()
        assert await status(one, session, turn) == "completed"
        assert script.asked == ["held", "x"]


async def test_a_repeat_joins_the_turn_while_it_waits_runs_and_when_it_has_ended(one: Process) -> None:
    session, script, held, _ = await busy(one)
    mine = script.hold("x")
    admitted = await admit(one, session, "x", "queue", KEY)
    waiting = await admit(one, session, "x", "reject", KEY)
    assert (waiting.turn_id, waiting.is_waiting, waiting.is_repeat) == (admitted.turn_id, True, True)
    held.may_go_on.set()
    await soon(mine.has_begun)
    running = await admit(one, session, "x", "interrupt", KEY)
    mine.may_go_on.set()
    assert await status(one, session, admitted.turn_id) == "completed"
    ended = await admit(one, session, "x", "queue", KEY)
    row = await one.stores.turns.get(admitted.turn_id)
    assert row is not None
    for each in (running, ended):
        assert (each.turn_id, each.is_waiting, each.is_repeat) == (admitted.turn_id, False, True)
        assert each.after == row.first_place - 1
    assert script.asked == ["held", "x"]


async def test_a_repeat_of_a_removed_turn_is_told_so(one: Process) -> None:
    session, script, held, _ = await busy(one)
    admitted = await admit(one, session, "x", "queue", KEY)
    await one.supervisor.stops.abort(session.id, admitted.turn_id)
    with pytest.raises(TurnRemoved) as refused:
        await admit(one, session, "x", "queue", KEY)
    assert (refused.value.status, refused.value.code) == (409, "turn_removed")
    held.may_go_on.set()
    await settle()
    with pytest.raises((TurnRemoved, SessionBusy)):
        await admit(one, session, "x", "reject", KEY)
    assert script.asked == ["held"]


async def test_a_repeat_that_joins_before_the_first_is_answered_learns_of_the_removal_too(
    memory: Process,
) -> None:
    session, _, _, _ = await busy(memory)
    queue: Any = memory.stores.queue
    enqueue, is_stored, may_answer = queue.enqueue, asyncio.Event(), asyncio.Event()

    async def answers_late(*args: Any, **options: Any) -> Any:
        answer = await enqueue(*args, **options)
        is_stored.set()
        await may_answer.wait()
        return answer

    queue.enqueue = answers_late
    first = asyncio.create_task(admit(memory, session, "x", "queue", KEY))
    await soon(is_stored)
    repeated = await admit(memory, session, "x", "queue", KEY)
    may_answer.set()
    admitted = await first
    assert (repeated.turn_id, repeated.is_repeat) == (admitted.turn_id, True)
    await memory.supervisor.stops.abort(session.id, admitted.turn_id)
    for each in (admitted, repeated):
        assert removal(each).done()
        assert removal(each).result() is True


async def test_a_refusal_that_nobody_waits_for_any_more_is_no_fault(one: Process) -> None:
    session, _, held, _ = await busy(one)
    with no_complaints():
        asking = asyncio.create_task(admit(one, session, "x", "reject"))
        await asyncio.sleep(0)
        asking.cancel()
        await asyncio.wait({asking})
        assert asking.cancelled()
        if one.supervisor._admitting:
            await asyncio.wait({*one.supervisor._admitting})
        await settle()
    held.may_go_on.set()


async def test_a_key_of_another_request_is_refused(one: Process) -> None:
    session, script, held, _ = await busy(one)
    admitted = await admit(one, session, "x", "queue", KEY)
    other = Key("k", "another")
    modes: list[OnBusy] = ["reject", "queue", "interrupt"]
    for mode in modes:
        with pytest.raises(KeyReused) as refused:
            await admit(one, session, "y", mode, other)
        assert (refused.value.status, refused.value.code) == (422, "idempotency_key_reused")
    held.may_go_on.set()
    await one.ending(session, admitted.turn_id)
    with pytest.raises(KeyReused):
        await admit(one, session, "y", "queue", other)
    assert script.asked == ["held", "x"]


async def test_a_key_of_a_rejected_query_is_free(memory: Process) -> None:
    session, _, held, turn = await busy(memory)
    with pytest.raises(SessionBusy):
        await admit(memory, session, "x", "reject", KEY)
    held.may_go_on.set()
    await memory.ending(session, turn)
    admitted = await admit(memory, session, "x", "reject", KEY)
    assert not admitted.is_repeat


async def test_a_key_is_its_sessions_own(memory: Process) -> None:
    sessions = [await memory.new_session(Script()) for _ in range(2)]
    turns = {(await admit(memory, session, "x", "reject", KEY)).turn_id for session in sessions}
    assert len(turns) == 2


# ── what stops a turn by itself ──────────────────────────────────────────────────────────────────────────────────────


async def chatters(_scope: Scope, _prompt: Prompt) -> Events:
    while True:
        yield text("x")
        await asyncio.sleep(0.01)


async def says_nothing(_scope: Scope, _prompt: Prompt) -> Events:
    yield text("part")
    await asyncio.Event().wait()


async def error(one: Process, session: Session, turn_id: str) -> tuple[Any, Any, Any]:
    events = dict(await one.ending(session, turn_id))
    return events["agent_run_end"]["status"], events["error"]["code"], events["error"]["recoverable"]


async def test_a_turn_that_takes_too_long_fails(some_stores: Stores) -> None:
    async with process(some_stores, deadline=0.1) as one:
        session = await one.new_session(chatters)
        turn = await one.start(session)
        assert await error(one, session, turn) == ("failed", "deadline_exceeded", True)


async def test_a_turn_whose_agent_says_nothing_for_too_long_fails(some_stores: Stores) -> None:
    async with process(some_stores, silence=0.1) as one:
        session = await one.new_session(says_nothing)
        turn = await one.start(session)
        assert await error(one, session, turn) == ("failed", "agent_silent", True)
        events = dict(await one.told(session, turn))
        assert events["assistant_message"]["content"] == "part"


LONG = 1000.0


class Clock:
    """The loop's own, put forward so far that a slow machine's seconds do not count."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._ahead = 0.0
        loop = asyncio.get_running_loop()
        time = loop.time
        monkeypatch.setattr(loop, "time", lambda: time() + self._ahead)

    async def put_forward(self, seconds: float) -> None:
        """Let so much time pass, and everything happen that was due in it."""
        self._ahead += seconds
        await settle()


@pytest.fixture
async def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


async def test_an_agent_that_speaks_is_not_silent(clock: Clock) -> None:
    moments = Moments()

    async def speaks(_scope: Scope, _prompt: Prompt) -> Events:
        while True:
            yield text("x")
            moments.has_begun.set()
            await moments.may_go_on.wait()
            moments.may_go_on.clear()

    async with process(memory_stores(), silence=LONG) as one:
        session = await one.new_session(speaks)
        turn = await one.start(session)
        for _ in range(4):
            await soon(moments.has_begun)
            moments.has_begun.clear()
            await clock.put_forward(LONG * 0.6)
            moments.may_go_on.set()
        await soon(moments.has_begun)
        assert one.supervisor.running == 1
        await clock.put_forward(LONG)
        assert await error(one, session, turn) == ("failed", "agent_silent", True)


async def test_an_agent_that_must_wait_for_the_store_is_not_silent(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.log.writers.MAX_WAITING_DRAFTS", 1)
    events = LaggingStore()
    moments = Moments()

    async def run(_scope: Scope, _prompt: Prompt) -> Events:
        events.write_began.clear()
        events.may_write.clear()
        moments.has_begun.set()
        yield text("a")
        yield text("b")
        yield COMPLETED

    async with process(stores_over(events), silence=LONG) as one:
        session = await one.new_session(run)
        turn = await one.start(session)
        await soon(moments.has_begun)
        await soon(events.write_began)
        await clock.put_forward(LONG)
        events.may_write.set()
        assert await status(one, session, turn) == "completed"


async def test_an_agent_that_has_not_been_started_is_not_silent(clock: Clock) -> None:
    moments = Moments()

    async def cleans_up(_scope: Scope, _prompt: Prompt) -> Events:
        yield COMPLETED
        await moments.may_go_on.wait()

    patient = Bounds(close=2 * LONG, tail=2 * LONG)
    async with process(memory_stores(), bounds=patient, silence=LONG) as one:
        session = await one.new_session(cleans_up)
        await one.ending(session, await one.start(session))
        turn = await one.start(session)
        await clock.put_forward(LONG)
        moments.may_go_on.set()
        assert await status(one, session, turn) == "completed"


async def test_a_query_sets_its_own_bounds(memory: Process) -> None:
    async with process(memory_stores(), deadline=0.05, silence=0.05) as one:
        script = Script()
        held = script.hold("x")
        session = await one.new_session(script)
        long = await one.start(session, asking("x", deadline=PATIENCE, silence=PATIENCE))
        other = await one.new_session(says_nothing)
        short = await one.start(other)
        await one.ending(other, short)
        held.may_go_on.set()
        assert await status(one, session, long) == "completed"
    session = await memory.new_session(says_nothing)
    for query, code in (
        (asking("x", deadline=0.05), "deadline_exceeded"),
        (asking("x", silence=0.05), "agent_silent"),
    ):
        assert (await error(memory, session, await memory.start(session, query)))[1] == code


async def test_a_turn_has_no_bounds_unless_they_are_set(memory: Process) -> None:
    session, _, held, turn = await busy(memory)
    assert memory.supervisor._running[session.id]._timers == []
    held.may_go_on.set()
    assert await status(memory, session, turn) == "completed"


async def test_a_waiting_turns_bounds_count_from_its_start(one: Process) -> None:
    session, script, held, _ = await busy(one)
    script.hold("x")
    admitted = await one.supervisor.admit(session, asking("x", deadline=0.2), on_busy="queue")
    await asyncio.sleep(0.3)  # longer than the deadline: time is what is tested
    assert await line(one, session) == [admitted.turn_id]
    held.may_go_on.set()
    assert await error(one, session, admitted.turn_id) == ("failed", "deadline_exceeded", True)


class AwayStore(MemoryEventStore):
    """Refuses every write while it is away."""

    is_away = False

    async def write(self, strands: Sequence[Strand]) -> list[Placed | None]:
        if self.is_away:
            raise StorageUnavailable("away")
        return await super().write(strands)


def away_stores() -> tuple[Stores, AwayStore]:
    events = AwayStore()
    return stores_over(events), events


async def test_turns_fail_when_the_database_was_away_for_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.log.group_commit.RETRY_PAUSE", 0.001)
    stores, events = away_stores()
    async with process(stores, outage=0.02) as one:
        began = asyncio.Event()

        async def run(_scope: Scope, _prompt: Prompt) -> Events:
            began.set()
            while True:
                yield text("x")
                await asyncio.sleep(0)

        session = await one.new_session(run)
        turn = await one.start(session)
        await soon(began)
        events.is_away = True

        async def ask() -> int:
            one.supervisor.fail_turns_in_an_outage()
            await asyncio.sleep(0.001)
            return len([t for t in one.supervisor._running.values() if t._ending is not None])

        await until(ask)
        assert "agent_run_end" not in await stores.types(session.id)
        for _ in range(100):
            one.supervisor.fail_turns_in_an_outage()
        assert len(one.supervisor._running[session.id]._tasks) <= 1
        events.is_away = False
        assert await error(one, session, turn) == ("failed", "storage_unavailable", True)
        other = await one.new_session(Script())
        assert await status(one, other, await one.start(other)) == "completed"


async def test_a_short_outage_fails_no_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.log.group_commit.RETRY_PAUSE", 0.001)
    stores, events = away_stores()
    async with process(stores) as one:
        session, _, held, turn = await busy(one)
        events.is_away = True
        held.may_go_on.set()
        await until(lambda: asyncio.sleep(0.001, one.commit.failures), lambda failures: failures > 2)
        one.supervisor.fail_turns_in_an_outage()
        events.is_away = False
        assert await status(one, session, turn) == "completed"


async def test_a_turn_that_is_abandoned_in_an_outage_is_removed_after_it(
    memory: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.turns.stops.OUTAGE_PAUSE", 0)
    session, script, held, _ = await busy(memory)
    admitted = await admit(memory, session, "x")
    turns: Any = memory.stores.turns
    ask_to_stop, failures = turns.ask_to_stop, [StorageUnavailable("away")] * 3

    async def away_at_first(session_id: str, turn_id: str | None) -> Any:
        if failures:
            raise failures.pop()
        return await ask_to_stop(session_id, turn_id)

    turns.ask_to_stop = away_at_first
    memory.supervisor.stops.abandon(session.id, admitted.turn_id)
    async with asyncio.timeout(PATIENCE):
        assert await removal(admitted) is True
    held.may_go_on.set()
    await until(lambda: asyncio.sleep(0, memory.supervisor.running), lambda running: not running)
    assert script.asked == ["held"]
    assert failures == []


# ── aborts of turns that move ────────────────────────────────────────────────────────────────────────────────────────


async def test_an_abort_of_a_waiting_turn_that_just_starts_ends_it(memory: Process) -> None:
    """It leaves the queue between two questions of the abort: it is neither missed nor waited for."""
    session, script, held, _ = await busy(memory)
    mine = script.hold("x")
    admitted = await admit(memory, session, "x")
    store: Any = memory.stores.queue
    remove = store.remove

    async def late(session_id: str, turn_id: str) -> bool:
        held.may_go_on.set()
        await soon(mine.has_begun)
        is_removed: bool = await remove(session_id, turn_id)
        return is_removed

    store.remove = late
    receipt = await memory.supervisor.stops.abort(session.id, admitted.turn_id)
    assert receipt is not None
    assert (receipt.turn_id, receipt.status, receipt.is_new) == (admitted.turn_id, "aborted", True)


async def test_a_start_and_an_abort_by_name_of_the_same_waiting_turn_are_one_outcome(one: Process) -> None:
    session = await one.new_session(Script())
    for n in range(20):
        script = Script()
        held = script.hold("held")
        one.agents[session.agent] = type(one.agents[session.agent])(script)  # type: ignore[call-arg]
        first = await one.start(session, asking("held"))
        await soon(held.has_begun)
        admitted = await admit(one, session, "x")
        held.may_go_on.set()
        await settle(n)
        receipt = await one.supervisor.stops.abort(session.id, admitted.turn_id)
        assert receipt is not None
        row = await one.stores.turns.get(admitted.turn_id)
        assert (row is None) == (receipt.status == "removed")
        assert row is None or row.status == receipt.status
        await one.ending(session, first)
        await until(lambda: running(one), lambda count: count == 0)


async def running(one: Process) -> int:
    return one.supervisor.running


async def test_an_abort_of_a_turn_that_another_took_over_waits_for_its_ending(memory: Process) -> None:
    session, _, _, turn = await busy(memory)
    row = await memory.stores.turns.get(turn)
    assert row is not None
    assert await memory.stores.turns.take_over(row, "another") is not None
    abort = asyncio.create_task(memory.supervisor.stops.abort(session.id))
    await until(lambda: running(memory), lambda count: count == 0)
    assert not abort.done()
    async with process(memory.stores, replica_id="another", agents=memory.agents) as other:
        await other.supervisor.recover(is_alone=False)
        receipt = await abort
    assert receipt is not None
    assert (receipt.turn_id, receipt.status, receipt.is_new) == (turn, "interrupted", False)
    assert receipt.last_place == len(await memory.stores.all(session.id))


async def test_a_deletion_waits_for_the_turn_that_another_process_began(memory: Process) -> None:
    """This one has not yet learnt that its own turn has ended."""
    session, script, _, turn = await busy(memory)
    row = await memory.stores.turns.get(turn)
    assert row is not None
    async with process(memory.stores, replica_id="another", agents=memory.agents) as other:
        script.hold("next")
        await memory.stores.turns.take_over(row, "another")
        await other.supervisor.recover(is_alone=False)
        following = await other.start(session, asking("next"))
        deletion = asyncio.create_task(
            delete_session(
                session.id,
                "alice",
                directory=memory.directory,
                supervisor=memory.supervisor,
                commit=memory.commit,
            )
        )
        await until(
            lambda: memory.stores.turns.asked_to_stop("another", [following]), lambda asked: bool(asked)
        )
        await other.supervisor.stops.obey_all()
        await deletion
        assert await order(memory, session) == [
            ("begins", turn), ("ends", turn), ("begins", following), ("ends", following),
        ]  # fmt: skip
        assert (await memory.stores.types(session.id))[-1] == "session_end"


# ── drains and other processes ───────────────────────────────────────────────────────────────────────────────────────


async def test_a_drain_leaves_those_that_wait_to_the_next_process(some_stores: Stores) -> None:
    async with process(some_stores, replica_id="old") as old:
        session, script, _, first = await busy(old)
        waiting = [await admit(old, session, words) for words in ("x", "y")]
        await old.supervisor.drain(1.1)
        assert await status(old, session, first) == "aborted"
        await old.supervisor.queue.dispatch(session.id)
        await old.supervisor.queue.dispatch_stranded()
        assert await line(old, session) == [each.turn_id for each in waiting]
    async with process(some_stores, replica_id="new", agents=old.agents) as new:
        for each in waiting:
            await new.supervisor.queue.dispatch_stranded()
            assert await status(new, session, each.turn_id) == "completed"
        assert script.asked == ["held", "x", "y"]


async def test_a_drain_waits_for_a_turn_that_is_just_leaving_the_queue(memory: Process) -> None:
    session, script, held, _ = await busy(memory)
    script.hold("x")
    admitted = await admit(memory, session, "x")
    began, may_start = asyncio.Event(), asyncio.Event()
    store: Any = memory.stores.queue
    start = store.start

    async def late(*args: Any, **kwargs: Any) -> Any:
        began.set()
        await may_start.wait()
        return await start(*args, **kwargs)

    store.start = late
    held.may_go_on.set()
    await soon(began)
    drain = asyncio.create_task(memory.supervisor.drain(2))
    await settle()
    may_start.set()
    await drain
    assert await status(memory, session, admitted.turn_id) == "aborted"


async def test_a_dispatch_that_is_asked_for_during_another_is_not_forgotten(memory: Process) -> None:
    session = await memory.new_session(Script())
    asked, may_answer = asyncio.Event(), asyncio.Event()
    store: Any = memory.stores.queue
    following = store.next

    async def late(session_id: str) -> Any:
        found = await following(session_id)
        asked.set()
        await may_answer.wait()
        return found

    store.next = late
    first = asyncio.create_task(memory.supervisor.queue.dispatch(session.id))
    await soon(asked)
    turn = "turn_" + "a" * 26
    await memory.stores.queue.enqueue(turn, session.id, HI, first=False, limit=1, key=None)
    await memory.supervisor.queue.dispatch(session.id)
    may_answer.set()
    await first
    assert await status(memory, session, turn) == "completed"


async def test_a_repeat_of_a_turn_that_just_starts_begins_before_its_first_event(memory: Process) -> None:
    session, script, held, _ = await busy(memory)
    mine = script.hold("x")
    admitted = await admit(memory, session, "x", "queue", KEY)
    store: Any = memory.stores.queue
    waiting = store.waiting

    async def late(session_id: str) -> Any:
        found = await waiting(session_id)
        held.may_go_on.set()
        await soon(mine.has_begun)
        return found

    store.waiting = late
    repeat = await admit(memory, session, "x", "queue", KEY)
    row = await memory.stores.turns.get(admitted.turn_id)
    assert row is not None
    assert repeat.after < row.first_place
    mine.may_go_on.set()
    await memory.ending(session, admitted.turn_id)


async def test_what_waited_in_a_killed_process_runs_in_the_next(some_stores: Stores) -> None:
    async with process(some_stores, replica_id="old") as old:
        session, _, _, first = await busy(old)
        waiting = await admit(old, session, "x", "queue", KEY)
        await kill(old)
        old.supervisor.is_draining = True
        async with process(some_stores, replica_id="new", agents=old.agents) as new:
            assert await new.supervisor.recover(is_alone=True) == 1
            assert await status(new, session, first) == "interrupted"
            assert await status(new, session, waiting.turn_id) == "completed"
            assert (await admit(new, session, "x", "queue", KEY)).turn_id == waiting.turn_id


async def test_a_key_that_was_forgotten_while_it_was_refused_has_no_turn(memory: Process) -> None:
    session = await memory.new_session(hangs)
    key = Key("k", "hash")
    queue: Any = memory.stores.queue

    async def forgotten(*_: Any) -> None:
        return None

    queue.turn_of_key = forgotten
    turns: Any = memory.stores.turns

    async def taken(*_: Any, **__: Any) -> Any:
        raise KeyReused("used before")

    turns.start = taken
    with pytest.raises(TurnRemoved):
        await memory.supervisor.admit(session, HI, key=key)


async def test_an_abort_of_another_processs_turn_waits_no_longer_than_it_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stores = memory_stores()
    async with process(stores, replica_id="other") as other, process(stores) as one:
        session = await other.new_session(hangs)
        turn = await other.start(session)
        monkeypatch.setattr("app.turns.stops.LONGEST_STOP", 0.0)
        with pytest.raises(StorageUnavailable):
            await one.supervisor.stops.abort(session.id)
        turns: Any = stores.turns

        async def purged(_: str) -> None:
            return None

        monkeypatch.setattr(turns, "get", purged)
        with pytest.raises(NotFound) as gone:
            await one.supervisor.stops.abort(session.id, turn)
        assert gone.value.code == "session_deleted"


async def hangs(_scope: Scope, _prompt: Prompt) -> AsyncIterator[AgentEvent]:
    yield text("part")
    await asyncio.Event().wait()


async def test_keys_are_forgotten_by_their_age(memory: Process) -> None:
    session = await memory.new_session(hangs)
    await memory.supervisor.admit(session, HI, key=Key("k", "hash"))
    assert await memory.supervisor.forget_keys(60) == 0
    assert await memory.supervisor.forget_keys(-60) == 1


async def test_marks_are_kept_with_what_the_user_said_also_while_it_waits(one: Process) -> None:
    script, marked = Script(), Query("hi", {"text": "hi"}, marks={"from": "afar"})
    moments = script.hold("hi")
    session = await one.new_session(script)
    await one.start(session, marked)
    waiting = await one.supervisor.admit(session, marked, on_busy="queue")
    moments.may_go_on.set()
    await one.ending(session, waiting.turn_id)
    users = [event for event in await one.stores.all(session.id) if event.type == "user_message"]
    assert [decode(event.metadata)["from"] for event in users] == ["afar", "afar"]


async def test_an_answer_never_waits_in_the_queue(one: Process) -> None:
    may_go_on = asyncio.Event()

    async def asks(_: Scope, prompt: Prompt) -> Events:
        if prompt["text"] == "ask":
            yield {"type": "input_required", "text": "Which city?"}
        else:
            await may_go_on.wait()
        yield COMPLETED

    session = await one.new_session(asks)
    asking = await one.start(session, Query("ask", {"text": "ask"}))
    end = (await one.ending(session, asking))[-1][1]
    assert (end["code"], end["question"]) == ("input_required", "Which city?")
    answer = Query("hi", {"text": "hi"}, answering=Answering(asking, asking))
    turn = await one.start(session, answer)
    with pytest.raises(SessionBusy):
        await one.supervisor.admit(session, answer, on_busy="queue")
    may_go_on.set()
    await one.ending(session, turn)
    with pytest.raises(NothingAsked):
        await one.start(session, answer)
