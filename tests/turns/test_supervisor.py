"""Turns: one a session, each to exactly one ending, whatever its agent, its callers or its process do."""

import asyncio
import logging
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import aclosing, suppress
from functools import partial
from typing import Any

import pytest

from app.agents.contract import AgentEvent, Prompt, Scope
from app.agents.driver import Bounds, abandoned_pumps
from app.agents.options import Options
from app.errors import (
    BadRequest,
    NotFound,
    SessionBusy,
    SessionDeleted,
    SessionNotFound,
    ShuttingDown,
    StorageUnavailable,
)
from app.events.envelope import Draft, Placed
from app.sessions.session import Change
from app.turns.admission import Key, Query
from app.turns.deletion import delete_session, finish_deletions
from app.turns.queue_store import MemoryQueueStore
from app.turns.turn_store import MemoryTurnStore, TurnRow
from tests.log.storing import Stores, draft, memory_stores, of_turn, settle, until
from tests.turns.running import COMPLETED, HI, Moments, Process, kill, process, text

Events = AsyncIterator[AgentEvent]
IN_TIME = 20.0  # seconds, of a machine that has much else to do


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


@pytest.fixture
def moments() -> Moments:
    return Moments()


async def says_hello(_scope: Scope, _prompt: Prompt) -> Events:
    yield text("Hel")
    yield text("lo")
    yield COMPLETED


def waits(moments: Moments) -> Any:
    """An agent that says something and waits until it may go on."""

    async def run(_scope: Scope, _prompt: Prompt) -> Events:
        try:
            yield text("part")
            moments.has_begun.set()
            await moments.may_go_on.wait()
            yield COMPLETED
        finally:
            moments.has_cleaned_up.set()

    return run


def is_stubborn(moments: Moments) -> Any:
    """An agent that swallows every cancel until it may go on."""

    async def run(_scope: Scope, _prompt: Prompt) -> Events:
        yield text("part")
        moments.has_begun.set()
        while not moments.may_go_on.is_set():
            try:
                await moments.may_go_on.wait()
            except asyncio.CancelledError:
                continue
        yield text("late")

    return run


async def running(one: Process) -> int:
    return one.supervisor.running


def kinds(events: list[tuple[str, dict[str, Any]]]) -> list[str]:
    return [kind for kind, _ in events]


# ── endings ──────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_turn_completes(one: Process) -> None:
    session = await one.new_session(says_hello)
    started = await one.supervisor.admit(session, HI)
    assert started.after == 1
    events = await one.ending(session, started.turn_id)
    assert kinds(events) == [
        "user_message", "agent_run_start", "assistant_message_start", "assistant_message_delta",
        "assistant_message_delta", "assistant_message", "agent_run_end",
    ]  # fmt: skip
    assert events[0][1]["content"] == "hi"
    assert events[5][1]["content"] == "Hello"
    row = await one.stores.turns.get(started.turn_id)
    assert row is not None
    assert (row.status, row.stored) == ("completed", 7)
    await settle()
    assert one.supervisor.running == 0
    assert one.supervisor.ended == {"completed": 1}


async def test_a_result_is_kept(memory: Process) -> None:
    async def run(_scope: Scope, _prompt: Prompt) -> Events:
        yield {"type": "completed", "data": {"a": [None]}}

    session = await memory.new_session(run)
    assert (await memory.ending(session, await memory.start(session)))[-1][1]["data"] == {"a": [None]}


async def test_a_result_that_cannot_be_kept_fails_the_turn(memory: Process) -> None:
    deep: Any = None
    for _ in range(200):
        deep = [deep]

    async def run(_scope: Scope, prompt: Prompt) -> Events:
        yield {"type": "completed", "data": deep if prompt["text"] == "hi" else {1: 2}}

    session = await memory.new_session(run)
    for query in (HI, Query("x", {"text": "x"})):
        events = dict(await memory.ending(session, await memory.start(session, query)))
        assert events["error"]["code"] == "bad_event"
        assert events["agent_run_end"]["status"] == "failed"


@pytest.mark.parametrize(
    ("code", "stored"),
    [("luck", "luck"), (None, "agent_failed"), ("", "agent_failed"), ("a\nb", "agent_failed")],
)
async def test_a_turn_fails_as_its_agent_says(memory: Process, code: str | None, stored: str) -> None:
    async def run(_scope: Scope, _prompt: Prompt) -> Events:
        yield text("part")
        yield {"type": "failed", "details": "no luck", "retryable": True, "code": code}

    session = await memory.new_session(run)
    turn = await memory.start(session)
    events = dict(await memory.ending(session, turn))
    assert events["error"] == {"error": "no luck", "code": stored, "recoverable": True}
    assert (events["assistant_message"]["content"], events["assistant_message"]["finishReason"]) == (
        "part",
        "error",
    )
    assert events["agent_run_end"]["status"] == "failed"


async def test_a_turn_whose_agent_raises_fails(one: Process) -> None:
    async def run(_scope: Scope, _prompt: Prompt) -> Events:
        yield text("part")
        raise RuntimeError("broken")

    session = await one.new_session(run)
    events = dict(await one.ending(session, await one.start(session)))
    assert events["error"]["code"] == "agent_exception"
    assert events["assistant_message"]["content"] == "part"


async def test_a_bad_event_fails_the_turn_and_keeps_the_text(memory: Process) -> None:
    async def run(_scope: Scope, _prompt: Prompt) -> Events:
        yield text("part")
        yield {"type": "plan", "x": float("nan")}
        yield text("never")

    session = await memory.new_session(run)
    events = dict(await memory.ending(session, await memory.start(session)))
    assert events["error"]["code"] == "bad_event"
    assert events["assistant_message"]["content"] == "part"


async def test_an_agent_is_told_its_session_its_turn_and_what_was_said_before(memory: Process) -> None:
    scopes: list[Scope] = []
    told: list[Any] = []

    async def run(scope: Scope, prompt: Prompt) -> Events:
        scopes.append(scope)
        told.append(await scope["transcript"].messages())
        yield text(f"re {prompt['text']}")
        yield COMPLETED

    session = await memory.new_session(run)
    first = await memory.start(session)
    await memory.ending(session, first)
    second = await memory.start(session, Query("two", {"text": "two"}, trace_id="ab" * 16))
    await memory.ending(session, second)
    assert [(scope["session"], scope["turn"], scope["principal"]) for scope in scopes] == [
        (session.id, first, "alice"),
        (session.id, second, "alice"),
    ]
    assert [scope.get("trace") for scope in scopes] == [None, "ab" * 16]
    assert told == [[], [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "re hi"}]]


async def test_a_tool_id_of_an_earlier_turn_is_made_unique(memory: Process) -> None:
    async def run(_scope: Scope, _prompt: Prompt) -> Events:
        yield {"type": "tool_started", "id": "a", "name": "n", "args": {}}
        yield {"type": "tool_ended", "id": "a", "content": "x"}
        yield COMPLETED

    session = await memory.new_session(run)
    ids = [
        dict(await memory.ending(session, await memory.start(session)))["tool_call"]["id"] for _ in range(3)
    ]
    assert ids == ["a", "a~2", "a~3"]


async def test_many_events_pass_the_bound_of_what_waits(
    memory: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.log.writers.MAX_WAITING_DRAFTS", 4)

    async def run(_scope: Scope, _prompt: Prompt) -> Events:
        for n in range(100):
            yield text(f"{n} ")
            yield {"type": "tool_started", "id": f"{n}", "name": "n", "args": None}
            yield {"type": "tool_ended", "id": f"{n}", "content": ""}
        yield COMPLETED

    session = await memory.new_session(run)
    events = await memory.ending(session, await memory.start(session))
    said = "".join(data["content"] for kind, data in events if kind == "assistant_message")
    assert said == "".join(f"{n} " for n in range(100))


# ── starting ─────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_busy_session_takes_no_turn(one: Process, moments: Moments) -> None:
    session = await one.new_session(waits(moments))
    turn = await one.start(session)
    with pytest.raises(SessionBusy) as busy:
        await one.start(session)
    assert busy.value.details == {"turnId": turn}
    moments.may_go_on.set()
    await one.ending(session, turn)
    await one.ending(session, await one.start(session))


async def test_of_many_starts_at_once_one_wins_and_all_ends_well(one: Process) -> None:
    session = await one.new_session(says_hello)
    outcomes = await asyncio.gather(*(one.start(session) for _ in range(5)), return_exceptions=True)
    started = [outcome for outcome in outcomes if isinstance(outcome, str)]
    assert {type(outcome) for outcome in outcomes} <= {str, SessionBusy}
    for turn in started:
        await one.ending(session, turn)
    await settle()
    assert one.supervisor.running == 0


async def test_a_reader_of_the_last_event_can_start_the_next_turn_at_once(memory: Process) -> None:
    session = await memory.new_session(says_hello)
    for _ in range(50):
        turn = await memory.start(session)
        await memory.until(session, "agent_run_end", turn)
    assert (await memory.told(session, turn))[-1][1]["status"] == "completed"


async def test_the_next_turn_waits_until_the_agent_before_has_cleaned_up(memory: Process) -> None:
    order: list[str] = []
    may_clean_up = asyncio.Event()

    async def run(_scope: Scope, prompt: Prompt) -> Events:
        order.append(f"{prompt['text']} begins")
        try:
            yield COMPLETED
        finally:
            await may_clean_up.wait()
            order.append(f"{prompt['text']} is over")

    session = await memory.new_session(run)
    await memory.ending(session, await memory.start(session, Query("one", {"text": "one"})))
    turn = await memory.start(session, Query("two", {"text": "two"}))
    await settle()
    assert order == ["one begins"]
    may_clean_up.set()
    await memory.ending(session, turn)
    assert order[:3] == ["one begins", "one is over", "two begins"]


async def test_a_turn_that_waits_for_the_agent_before_can_be_aborted(memory: Process) -> None:
    moments = Moments()
    begun: list[str] = []

    async def run(_scope: Scope, prompt: Prompt) -> Events:
        begun.append(prompt["text"])
        try:
            yield COMPLETED
        finally:
            await moments.may_go_on.wait()

    session = await memory.new_session(run)
    await memory.ending(session, await memory.start(session))
    turn = await memory.start(session, Query("two", {"text": "two"}))
    receipt = await memory.supervisor.stops.abort(session.id)
    assert receipt is not None
    assert (receipt.status, receipt.is_new) == ("aborted", True)
    moments.may_go_on.set()
    assert (await memory.told(session, turn))[-1][1]["status"] == "aborted"
    await settle()
    assert begun == ["hi"]


async def test_a_caller_that_goes_away_while_it_starts_leaves_the_turn_to_run(one: Process) -> None:
    session = await one.new_session(says_hello)
    start = asyncio.create_task(one.start(session))
    await asyncio.sleep(0)
    start.cancel()
    await asyncio.wait([start])
    log = await one.until(session, "agent_run_end")
    assert [event.type for event in log][-1] == "agent_run_end"
    await one.ending(session, await one.start(session))


async def test_a_session_whose_agent_is_not_served_is_told_so_and_not_stuck(memory: Process) -> None:
    session = await memory.directory.create("alice", "gone")
    for _ in range(2):
        with pytest.raises(NotFound) as refused:
            await memory.start(session)
        assert refused.value.code == "agent_not_found"
    assert await memory.stores.types(session.id) == ["session_start"]


async def test_a_query_that_cannot_be_kept_is_refused(memory: Process) -> None:
    session = await memory.new_session(says_hello)
    with pytest.raises(BadRequest) as refused:
        await memory.start(
            session, Query([{"type": "text", "text": "x", "more": float("nan")}], {"text": "x"})
        )
    assert refused.value.code == "bad_query"
    await memory.ending(session, await memory.start(session))


# ── aborts ───────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_an_abort_in_the_middle_of_text_keeps_the_text_and_returns_when_it_is_durable(
    one: Process, moments: Moments
) -> None:
    session = await one.new_session(waits(moments))
    turn = await one.start(session)
    await moments.has_begun.wait()
    receipt = await one.supervisor.stops.abort(session.id)
    events = await one.told(session, turn)
    assert receipt is not None
    assert (receipt.turn_id, receipt.status, receipt.is_new) == (turn, "aborted", True)
    assert receipt.last_place == len(await one.stores.all(session.id))
    data = dict(events)
    assert (data["assistant_message"]["content"], data["assistant_message"]["finishReason"]) == (
        "part",
        "abort",
    )
    assert data["error"] == {"error": "The turn was aborted.", "code": "aborted", "recoverable": True}
    assert moments.has_cleaned_up.is_set()


async def test_an_abort_before_the_first_event_ends_the_turn(memory: Process) -> None:
    async def run(_scope: Scope, _prompt: Prompt) -> Events:
        await asyncio.Event().wait()
        yield COMPLETED

    session = await memory.new_session(run)
    turn = await memory.start(session)
    await memory.supervisor.stops.abort(session.id)
    assert kinds(await memory.told(session, turn))[2:] == [
        "assistant_message_start", "assistant_message", "error", "agent_run_end"
    ]  # fmt: skip


async def test_an_abort_in_a_tool_stops_the_tool_and_closes_its_call(one: Process) -> None:
    moments = Moments()

    async def run(_scope: Scope, _prompt: Prompt) -> Events:
        yield {"type": "tool_started", "id": "a", "name": "n", "args": {}}
        moments.has_begun.set()
        try:
            await moments.may_go_on.wait()
        finally:
            moments.has_cleaned_up.set()
        yield {"type": "tool_ended", "id": "a", "content": "late"}

    session = await one.new_session(run)
    turn = await one.start(session)
    await moments.has_begun.wait()
    await one.supervisor.stops.abort(session.id)
    assert moments.has_cleaned_up.is_set()
    result = dict(await one.told(session, turn))["tool_result"]
    assert (result["error"], result["success"]) == ("aborted", False)


async def test_two_aborts_at_once_are_one_ending_that_one_of_them_made(
    memory: Process, moments: Moments
) -> None:
    session = await memory.new_session(waits(moments))
    turn = await memory.start(session)
    await moments.has_begun.wait()
    receipts = await asyncio.gather(*(memory.supervisor.stops.abort(session.id) for _ in range(3)))
    assert [receipt.is_new for receipt in receipts if receipt] == [True, False, False]
    assert {receipt.last_place for receipt in receipts if receipt} == {
        len(await memory.stores.all(session.id))
    }
    assert dict(await memory.told(session, turn))["agent_run_end"]["status"] == "aborted"


async def test_a_late_abort_is_harmless_and_tells_how_the_turn_ended(one: Process) -> None:
    session = await one.new_session(says_hello)
    turn = await one.start(session)
    await one.ending(session, turn)
    await settle()
    assert await one.supervisor.stops.abort(session.id) is None
    receipt = await one.supervisor.stops.abort(session.id, turn)
    assert receipt is not None
    assert (receipt.status, receipt.is_new) == ("completed", False)
    assert receipt.last_place == len(await one.stores.all(session.id))


async def test_an_abort_by_name_hits_its_turn_only(one: Process, moments: Moments) -> None:
    session = await one.new_session(waits(moments))
    moments.may_go_on.set()
    stale = await one.start(session)
    await one.ending(session, stale)
    moments.may_go_on.clear()
    moments.has_begun.clear()
    turn = await one.start(session)
    await moments.has_begun.wait()
    late = await one.supervisor.stops.abort(session.id, stale)
    assert late is not None
    assert (late.turn_id, late.is_new) == (stale, False)
    assert one.supervisor.running == 1
    receipt = await one.supervisor.stops.abort(session.id, turn)
    assert receipt is not None
    assert (receipt.turn_id, receipt.is_new) == (turn, True)


async def test_a_turn_that_the_session_never_had_is_not_found(memory: Process, moments: Moments) -> None:
    other = await memory.new_session(waits(moments))
    turn = await memory.start(other)
    session = await memory.new_session(says_hello)
    for turn_id in ("turn_none", turn):
        with pytest.raises(NotFound) as refused:
            await memory.supervisor.stops.abort(session.id, turn_id)
        assert refused.value.code == "turn_not_found"


async def test_an_agent_that_ignores_every_cancel_is_given_up_and_stays_silent(memory: Process) -> None:
    moments = Moments()
    session = await memory.new_session(is_stubborn(moments))
    turn = await memory.start(session)
    await moments.has_begun.wait()
    receipt = await memory.supervisor.stops.abort(session.id)
    assert receipt is not None
    assert receipt.status == "aborted"
    assert abandoned_pumps() == 1
    moments.may_go_on.set()
    await settle()
    assert abandoned_pumps() == 0
    assert dict(await memory.told(session, turn))["assistant_message"]["content"] == "part"
    await memory.start(session)
    await memory.supervisor.stops.abort(session.id)


async def test_an_abort_whose_caller_goes_away_goes_on(memory: Process, moments: Moments) -> None:
    session = await memory.new_session(waits(moments))
    turn = await memory.start(session)
    await moments.has_begun.wait()
    abort = asyncio.create_task(memory.supervisor.stops.abort(session.id))
    await asyncio.sleep(0)
    abort.cancel()
    await asyncio.wait([abort])
    assert (await memory.ending(session, turn))[-1][1]["status"] == "aborted"


async def test_a_start_and_an_abort_in_the_same_tick_leave_no_session_stuck(memory: Process) -> None:
    async def run(_scope: Scope, _prompt: Prompt) -> Events:
        yield text("a")
        await asyncio.Event().wait()

    session = await memory.new_session(run)
    for n in range(200):
        start = asyncio.create_task(memory.start(session))
        await settle(n % 4)
        receipt = await memory.supervisor.stops.abort(session.id)
        turn = await start
        if receipt is None:
            receipt = await memory.supervisor.stops.abort(session.id)
        assert receipt is not None
        assert (receipt.turn_id, receipt.status) == (turn, "aborted")
        standing = await memory.directory.find(session.id, "alice")
        assert standing.running_turn is None
    await settle()
    assert memory.supervisor.running == 0
    log = await memory.stores.all(session.id)
    assert sum(event.type == "agent_run_end" for event in log) == 200


async def test_an_abort_right_after_a_start_waits_for_it(one: Process) -> None:
    async def run(_scope: Scope, _prompt: Prompt) -> Events:
        yield text("a")
        await asyncio.Event().wait()

    session = await one.new_session(run)
    start = asyncio.create_task(one.start(session))
    await asyncio.sleep(0)
    receipt = await one.supervisor.stops.abort(session.id)
    assert receipt is not None
    assert receipt.turn_id == await start
    assert receipt.status == "aborted"


# ── fences and recovery ──────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_turn_that_was_taken_over_stops_its_agent_and_says_no_more(one: Process) -> None:
    moments = Moments()

    async def run(_scope: Scope, _prompt: Prompt) -> Events:
        try:
            yield text("part")
            moments.has_begun.set()
            await moments.may_go_on.wait()
            yield text("late")
            await asyncio.Event().wait()
        finally:
            moments.has_cleaned_up.set()

    session = await one.new_session(run)
    turn = await one.start(session)
    await one.until(session, "assistant_message_delta")
    row = await one.stores.turns.get(turn)
    assert row is not None
    assert await one.stores.turns.take_over(row, "another") is not None
    moments.may_go_on.set()
    await moments.has_cleaned_up.wait()
    await until(partial(running, one), lambda count: count == 0)
    assert (await one.stores.types(session.id))[-1] == "assistant_message_delta"
    assert one.supervisor.ended == {}


async def test_a_turn_whose_process_is_gone_is_interrupted_with_what_it_had_said(
    some_stores: Stores, caplog: pytest.LogCaptureFixture
) -> None:
    async def run(_scope: Scope, _prompt: Prompt) -> Events:
        yield text("a")
        yield {"type": "tool_started", "id": "t", "name": "n", "args": {}}
        yield {"type": "thinking", "delta": "hm"}
        yield text("part")
        await asyncio.Event().wait()

    async with process(some_stores, replica_id="old") as old:
        session = await old.new_session(run)
        turn = await old.start(session, Query("q", {"text": "q"}, trace_id="ab" * 16))
        await until(
            partial(old.stores.types, session.id), lambda types: types.count("assistant_message_delta") == 2
        )
        await kill(old)
        async with process(some_stores, replica_id="new", agents=old.agents) as new:
            with caplog.at_level(logging.WARNING):
                assert await new.supervisor.recover(is_alone=True) == 1
            assert turn in caplog.text
            events = await new.told(session, turn)
            assert kinds(events)[-4:] == ["assistant_message", "tool_result", "error", "agent_run_end"]
            data = dict(events)
            assert data["assistant_message"]["content"] == "part"
            assert data["tool_result"]["error"] == "interrupted"
            assert (data["error"]["code"], data["error"]["recoverable"]) == ("server_restarted", True)
            assert data["agent_run_end"]["status"] == "interrupted"
            log = await some_stores.all(session.id)
            assert all(b'"traceId":"abab' in event.metadata for event in log if event.turn_id == turn)
            assert await new.supervisor.recover(is_alone=True) == 0
            receipt = await new.supervisor.stops.abort(session.id, turn)
            assert receipt is not None
            assert (receipt.status, receipt.is_new) == ("interrupted", False)
            assert new.supervisor.ended == {"interrupted": 1}


async def test_recovery_leaves_the_turns_that_run_alone(memory: Process, moments: Moments) -> None:
    session = await memory.new_session(waits(moments))
    turn = await memory.start(session)
    assert await memory.supervisor.recover(is_alone=True) == 0
    moments.may_go_on.set()
    assert (await memory.ending(session, turn))[-1][1]["status"] == "completed"


class LateTurnStore(MemoryTurnStore):
    """Answers and starts when it is told to, and may fail a start after it was stored."""

    may_answer: asyncio.Event
    loses_the_start = False

    async def orphans(self, owner: str, running: Collection[str], *, is_alone: bool) -> Sequence[TurnRow]:
        known = set(running)
        await self.may_answer.wait()
        return await super().orphans(owner, known, is_alone=is_alone)

    async def start(
        self,
        turn_id: str,
        session_id: str,
        drafts: Any,
        *,
        owner: str,
        trace_id: str | None,
        key: Key | None = None,
        answering: Any = None,
    ) -> Placed:
        placed = await super().start(
            turn_id, session_id, drafts, owner=owner, trace_id=trace_id, key=key, answering=answering
        )
        if self.loses_the_start:
            raise StorageUnavailable("the answer is lost")
        return placed


def late_stores() -> tuple[Stores, LateTurnStore]:
    stores = memory_stores()
    turns = LateTurnStore(stores.events)  # type: ignore[arg-type]
    turns.may_answer = asyncio.Event()
    queue = MemoryQueueStore(stores.events, turns, stores.sessions)  # type: ignore[arg-type]
    return Stores(stores.events, stores.sessions, turns, queue), turns


async def test_a_turn_that_starts_while_recovery_asks_is_not_taken_for_an_orphan(moments: Moments) -> None:
    stores, turns = late_stores()
    async with process(stores) as one:
        session = await one.new_session(waits(moments))
        recovery = asyncio.create_task(one.supervisor.recover(is_alone=True))
        await settle()
        turn = await one.start(session)
        turns.may_answer.set()
        assert await recovery == 0
        moments.may_go_on.set()
        assert (await one.ending(session, turn))[-1][1]["status"] == "completed"


async def test_a_turn_whose_start_got_no_answer_is_ended_by_recovery() -> None:
    stores, turns = late_stores()
    turns.may_answer.set()
    async with process(stores) as one:
        session = await one.new_session(says_hello)
        turns.loses_the_start = True
        with pytest.raises(StorageUnavailable):
            await one.start(session)
        turns.loses_the_start = False
        with pytest.raises(SessionBusy):
            await one.start(session)
        assert await one.supervisor.recover(is_alone=False) == 1
        turn = await one.start(session)
        assert (await one.ending(session, turn))[-1][1]["status"] == "completed"
        log = await stores.all(session.id)
        assert [event.type for event in log].count("agent_run_end") == 2


async def test_who_comes_second_to_an_orphan_leaves_it(memory: Process) -> None:
    class Second(MemoryTurnStore):
        async def take_over(self, turn: TurnRow, owner: str) -> TurnRow | None:
            assert await super().take_over(turn, "first") is not None
            return await super().take_over(turn, owner)

    stores = memory_stores()
    others = Second(stores.events)  # type: ignore[arg-type]
    queue = MemoryQueueStore(stores.events, others, stores.sessions)  # type: ignore[arg-type]
    second = Stores(stores.events, stores.sessions, others, queue)
    session = await second.new_session()
    await second.new_turn(session, owner="gone")
    async with process(second) as one:
        assert await one.supervisor.recover(is_alone=True) == 0
    assert await stores.types(session) == ["session_start", "user_message", "agent_run_start"]


async def test_an_orphan_in_a_closed_session_is_not_counted() -> None:
    stores = memory_stores()
    session = await stores.new_session()
    await stores.new_turn(session, owner="gone")
    await stores.append(session, draft("session_end"), closes=True)
    async with process(stores) as one:
        assert await one.supervisor.recover(is_alone=True) == 0
    assert (await stores.types(session))[-1] == "session_end"


async def test_an_orphan_whose_events_are_many_is_read_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    stores = memory_stores()
    session = await stores.new_session()
    turn = await stores.new_turn(session, owner="gone")
    say = [
        draft("assistant_message_start", {"messageId": "msg_x_1", "role": "assistant"}),
        *(draft("assistant_message_delta", {"delta": f"{n} ", "messageId": "msg_x_1"}, is_lasting=False) for n in range(2500)),
    ]  # fmt: skip
    await stores.events.write([of_turn(session, turn, 3, say)])
    async with process(stores) as one:
        assert await one.supervisor.recover(is_alone=True) == 1
        [message] = [e for e in await stores.all(session) if e.type == "assistant_message"]
        assert b"2499 " in message.data


async def test_an_orphan_whose_events_are_gone_is_ended_all_the_same() -> None:
    stores = memory_stores()
    session = await stores.new_session()
    turn = await stores.new_turn(session, owner="gone")
    stores.events.events[session] = []  # type: ignore[attr-defined]
    async with process(stores) as one:
        assert await one.supervisor.recover(is_alone=True) == 1
        row = await stores.turns.get(turn)
        assert row is not None
        assert row.status == "interrupted"


async def test_retiring_counts_from_now(memory: Process) -> None:
    session = await memory.new_session(says_hello)
    await memory.ending(session, await memory.start(session))
    assert await memory.supervisor.retire(60) == 0
    assert await memory.supervisor.retire(-1) == 1
    assert "assistant_message_delta" not in await memory.stores.types(session.id)


# ── drain ────────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_drain_lets_turns_end_by_themselves_and_admits_no_more(
    memory: Process, moments: Moments
) -> None:
    session = await memory.new_session(waits(moments))
    turn = await memory.start(session)
    drain = asyncio.create_task(memory.supervisor.drain(30))
    await settle()
    assert memory.supervisor.is_draining
    with pytest.raises(ShuttingDown):
        await memory.start(session)
    moments.may_go_on.set()
    await drain
    assert (await memory.told(session, turn))[-1][1]["status"] == "completed"


async def test_a_drain_lets_a_turn_end_by_itself_that_is_just_being_started(
    memory: Process, moments: Moments, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = await memory.new_session(waits(moments))
    start, may_start = memory.stores.turns.start, asyncio.Event()

    async def late(*given: Any, **named: Any) -> Placed:
        await may_start.wait()
        return await start(*given, **named)

    monkeypatch.setattr(memory.stores.turns, "start", late)
    starting = asyncio.create_task(memory.start(session))
    await settle()
    drain = asyncio.create_task(memory.supervisor.drain(30))
    await settle()
    may_start.set()
    turn = await starting
    await moments.has_begun.wait()
    await settle()
    moments.may_go_on.set()
    await drain
    assert (await memory.told(session, turn))[-1][1]["status"] == "completed"


async def test_a_drain_aborts_what_does_not_end(one: Process, moments: Moments) -> None:
    session = await one.new_session(waits(moments))
    turn = await one.start(session)
    await moments.has_begun.wait()
    await one.supervisor.drain(1.2)
    events = dict(await one.ending(session, turn))
    assert events["error"]["code"] == "server_shutdown"
    assert events["agent_run_end"]["status"] == "aborted"
    assert events["assistant_message"]["content"] == "part"
    assert moments.has_cleaned_up.is_set()


@pytest.mark.parametrize("grace", [0.0, 1.3])
async def test_a_drain_is_over_in_time_although_an_agent_ignores_it(grace: float) -> None:
    stubborn, chatty = Moments(), Moments()

    async def never_stops_talking(_scope: Scope, _prompt: Prompt) -> Events:
        while not chatty.may_go_on.is_set():
            yield text("x")
            yield {"type": "tool_started", "id": "a", "name": "n", "args": None}
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(0)

    patient = Bounds(grace=60, recancel=60, recancels=2, close=60, tail=60)
    async with process(memory_stores(), bounds=patient) as one:
        sessions = [await one.new_session(is_stubborn(stubborn)), await one.new_session(never_stops_talking)]
        turns = [await one.start(session) for session in sessions]
        await stubborn.has_begun.wait()
        began = asyncio.get_running_loop().time()
        await one.supervisor.drain(grace)
        assert asyncio.get_running_loop().time() - began < grace + IN_TIME
        for session, turn in zip(sessions, turns, strict=True):
            events = dict(await one.ending(session, turn))
            assert events["error"]["code"] == "server_shutdown"
        stubborn.may_go_on.set()
        chatty.may_go_on.set()
        await settle()


async def test_a_drain_without_turns_is_over_at_once(memory: Process) -> None:
    await memory.supervisor.drain(60)


# ── deletion ─────────────────────────────────────────────────────────────────────────────────────────────────────────


async def delete(one: Process, session_id: str, principal: str = "alice") -> None:
    await delete_session(
        session_id, principal, directory=one.directory, supervisor=one.supervisor, commit=one.commit
    )


async def test_deleting_a_session_aborts_its_turn_ends_its_log_and_tells_its_readers(
    one: Process, moments: Moments
) -> None:
    session = await one.new_session(waits(moments))
    turn = await one.start(session)
    await moments.has_begun.wait()
    reader = asyncio.create_task(one.until(session, "nothing that comes"))
    await asyncio.sleep(0)
    await delete(one, session.id)
    seen = await reader
    assert [event.type for event in seen][-2:] == ["agent_run_end", "session_end"]
    assert dict(await one.told(session, turn))["agent_run_end"]["status"] == "aborted"
    assert b'"messageCount":2' in seen[-1].data
    for act in (delete(one, session.id), one.start(session)):
        with pytest.raises(SessionDeleted):
            await act


async def test_a_turn_that_is_just_starting_is_ended_before_its_session_is(memory: Process) -> None:
    async def run(_scope: Scope, _prompt: Prompt) -> Events:
        yield text("a")
        await asyncio.Event().wait()

    for n in range(30):
        session = await memory.new_session(run)
        start = asyncio.create_task(memory.start(session))
        await settle(n % 5)
        await delete(memory, session.id)
        await asyncio.wait([start])
        types = await memory.stores.types(session.id)
        assert types[-1] == "session_end"
        assert types.count("agent_run_end") == types.count("agent_run_start")
        assert start.exception() is None or isinstance(start.exception(), SessionDeleted)


async def test_nobody_deletes_a_foreign_session(memory: Process) -> None:
    session = await memory.new_session(says_hello)
    with pytest.raises(SessionNotFound):
        await delete(memory, session.id, "bob")
    await memory.ending(session, await memory.start(session))


async def test_a_session_that_was_ended_meanwhile_is_deleted(memory: Process) -> None:
    session = await memory.new_session(says_hello)
    end = Draft("session_end", 1, b"{}", b"{}")
    await memory.stores.append(session.id, end, closes=True)
    with pytest.raises(SessionDeleted):
        await delete(memory, session.id)


async def test_a_deletion_that_nobody_finished_is_finished_by_whoever_finds_it(one: Process) -> None:
    session = await one.new_session(says_hello)
    await one.stores.sessions.bury(session.id, 1000)
    async with one.logs.open(session.id) as log, aclosing(log.follow(0)) as pages:
        await finish_deletions(directory=one.directory, supervisor=one.supervisor, commit=one.commit)
        seen = [event.type async for page in pages for event in page.events]
    assert seen == ["session_start", "session_end"]
    await finish_deletions(directory=one.directory, supervisor=one.supervisor, commit=one.commit)
    assert await one.stores.types(session.id) == seen


async def test_a_deletion_that_cannot_be_finished_holds_no_other_up(caplog: pytest.LogCaptureFixture) -> None:
    stores = memory_stores()
    async with process(stores) as one:
        first, second, third = [await one.new_session(says_hello) for _ in range(3)]
        for session in (first, second, third):
            await stores.sessions.bury(session.id, 1000)
        sessions: Any = stores.sessions
        count = sessions.message_count

        async def fails_for_the_first(session_id: str) -> Any:
            if session_id == first.id:
                raise StorageUnavailable("away")
            if session_id == second.id:
                stores.events.forget(second.id)  # type: ignore[attr-defined]  # somebody else was quicker
                return 0
            return await count(session_id)

        sessions.message_count = fails_for_the_first
        await finish_deletions(directory=one.directory, supervisor=one.supervisor, commit=one.commit)
        assert await stores.types(third.id) == ["session_start", "session_end"]
        assert await stores.types(first.id) == ["session_start"]
        assert f"{first.id} is not deleted yet" in caplog.text


async def test_what_was_chosen_for_the_session_reaches_the_agent(one: Process) -> None:
    scopes: list[Scope] = []

    async def run(scope: Scope, _prompt: Prompt) -> Events:
        scopes.append(scope)
        yield COMPLETED

    session = await one.new_session(run)
    assert one.supervisor.options[session.agent] == Options()
    small, large = ({"id": name, "provider": "acme"} for name in ("small", "large"))
    schema = {"properties": {"deep": {"type": "boolean", "default": False}}}
    one.supervisor.options[session.agent] = options = Options((small, large), schema)  # type: ignore[arg-type]
    await one.ending(session, await one.start(session))
    change = Change(
        attributes=options.choosing_model("large", None) | options.choosing_settings({"deep": True})
    )
    changed = await one.directory.update(session.id, session.principal, change)
    await one.ending(session, await one.start(changed.session))

    assert [(scope["model"]["id"], scope["settings"]) for scope in scopes] == [
        ("small", {"deep": False}),
        ("large", {"deep": True}),
    ]
