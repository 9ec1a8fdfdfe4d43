"""The queue's storage: one suite over memory and over each PostgreSQL."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from app.errors import SessionBusy, SessionDeleted
from app.events.ending import Ending
from app.events.envelope import Placed, now_ms
from app.events.ids import new_turn_id
from app.turns.admission import Key, KeyReused, Query, QueuedTurn, QueueFull
from tests.log.storing import Stores, draft, keyed, of_turn

BEGIN = [draft("user_message"), draft("agent_run_start")]
END = [draft("agent_run_end")]
FUTURE = 2**52

pytestmark = pytest.mark.parametrize("stores", ["memory", "embedded", "debian"], indirect=True)


def asking(text: str) -> Query:
    return Query(text, {"text": text})


async def enqueue(
    stores: Stores, session: str, *, first: bool = False, limit: int = 16, key: Key | None = None
) -> str:
    """Put a turn into the queue; returns its id."""
    turn = new_turn_id()
    await stores.queue.enqueue(turn, session, asking(turn), first=first, limit=limit, key=key)
    return turn


async def line(stores: Stores, session: str) -> list[str]:
    """The turns that wait, next one first."""
    return [turn.turn_id for turn in await stores.queue.waiting(session)]


async def queued_turn(stores: Stores, session: str) -> QueuedTurn:
    """The turn that is next."""
    following = await stores.queue.next(session)
    assert following is not None
    return following.turn


async def end(stores: Stores, session: str, turn: str) -> None:
    await stores.events.write([of_turn(session, turn, 3, END, ending=Ending.completed())])


def sorts(outcomes: Sequence[object]) -> list[str]:
    return sorted(type(outcome).__name__ for outcome in outcomes)


# ── order and bound ──────────────────────────────────────────────────────────────────────────────────────────────────


async def test_turns_wait_in_the_order_in_which_they_came(stores: Stores) -> None:
    session = await stores.new_session()
    turns = [await enqueue(stores, session) for _ in range(4)]
    assert await line(stores, session) == turns
    assert (await queued_turn(stores, session)).turn_id == turns[0]


async def test_who_comes_first_goes_before_those_that_wait_and_behind_those_that_came_so(
    stores: Stores,
) -> None:
    session = await stores.new_session()
    last = [await enqueue(stores, session) for _ in range(2)]
    front = [await enqueue(stores, session, first=True) for _ in range(3)]
    later = await enqueue(stores, session)
    assert await line(stores, session) == [*front, *last, later]


async def test_a_turn_is_told_its_position_and_the_logs_last_place(stores: Stores) -> None:
    session = await stores.new_session()
    await stores.append(session, draft(), draft())
    told = [
        await stores.queue.enqueue(new_turn_id(), session, asking("x"), first=first, limit=9, key=None)
        for first in (False, False, True, False, True)
    ]
    assert told == [(1, 3), (2, 3), (1, 3), (4, 3), (2, 3)]


async def test_of_turns_that_come_at_once_each_has_its_own_position(stores: Stores) -> None:
    session = await stores.new_session()
    turns = [new_turn_id() for _ in range(8)]
    told = await asyncio.gather(
        *(stores.queue.enqueue(t, session, asking("x"), first=False, limit=99, key=None) for t in turns)
    )
    in_line = await line(stores, session)
    assert [position for position, _ in told] == [in_line.index(turn) + 1 for turn in turns]


async def test_a_queue_is_bounded(stores: Stores) -> None:
    session, other = await stores.new_session(), await stores.new_session()
    turns = [await enqueue(stores, session, limit=2) for _ in range(2)]
    for first in (False, True):
        with pytest.raises(QueueFull):
            await enqueue(stores, session, first=first, limit=2)
    assert await line(stores, session) == turns
    await enqueue(stores, other, limit=2)
    await stores.queue.remove(session, turns[0])
    later = await enqueue(stores, session, limit=2)
    assert await line(stores, session) == [turns[1], later]


async def test_the_bound_holds_for_those_that_come_at_once(stores: Stores) -> None:
    session = await stores.new_session()
    outcomes = await asyncio.gather(
        *(enqueue(stores, session, limit=3) for _ in range(8)), return_exceptions=True
    )
    assert sorts(outcomes) == ["QueueFull"] * 5 + ["str"] * 3
    assert len(await line(stores, session)) == 3


async def test_what_was_asked_comes_back_as_it_was(stores: Stores) -> None:
    session = await stores.new_session()
    content: Any = [{"type": "text", "text": "hé\x00 \u2028"}, {"type": "text", "text": ""}]
    query = Query(content, {"text": "hé\x00 \u2028"}, "f" * 32, 1.5, None)
    turn = new_turn_id()
    await stores.queue.enqueue(turn, session, query, first=False, limit=1, key=None)
    following = await stores.queue.next(session)
    assert following is not None
    kept = following.turn.query
    assert (kept.content, kept.trace_id, kept.deadline, kept.silence) == (content, "f" * 32, 1.5, None)
    assert (following.turn.turn_id, following.turn.session_id) == (turn, session)
    assert following.turn.accepted_at > 1_600_000_000_000
    assert following.session == (await standing(stores, session)).session


async def standing(stores: Stores, session: str) -> Any:
    found = await stores.sessions.get(session)
    assert found is not None
    return found


# ── sessions that end ────────────────────────────────────────────────────────────────────────────────────────────────


async def test_no_turn_waits_in_a_deleted_session_or_in_none(stores: Stores) -> None:
    closing, closed = await stores.new_session(), await stores.new_session()
    await stores.sessions.bury(closing, 5000)
    await stores.events.write([keyed(closed, draft("session_end"), closes=True)])
    for session in (closing, closed, "sess_none"):
        with pytest.raises(SessionDeleted):
            await enqueue(stores, session)
        assert await line(stores, session) == []
        assert await stores.queue.next(session) is None


async def test_a_deletion_drops_the_queue(stores: Stores) -> None:
    session, other = await stores.new_session(), await stores.new_session()
    turns = [await enqueue(stores, each) for each in (session, session, other)]
    first = await queued_turn(stores, session)
    await stores.sessions.bury(session, 5000)
    assert await line(stores, session) == []
    assert await stores.queue.still_waiting(turns) == {turns[2]}
    assert await stores.queue.stranded() == [other]
    assert await stores.queue.start(first, BEGIN, owner="me") is None
    assert not await stores.queue.remove(session, turns[0])
    assert await stores.types(session) == ["session_start"]


async def test_no_turn_survives_a_deletion_that_comes_at_the_same_time(stores: Stores) -> None:
    for _ in range(10):
        session = await stores.new_session()
        await asyncio.gather(
            *(enqueue(stores, session) for _ in range(4)),
            stores.sessions.bury(session, 5000),
            *(enqueue(stores, session, first=True) for _ in range(4)),
            return_exceptions=True,
        )
        assert await line(stores, session) == []
    assert await stores.queue.stranded() == []


async def test_keys_die_with_what_is_purged(stores: Stores) -> None:
    session, other = await stores.new_session(), await stores.new_session()
    key = Key("k", "hash")
    for each in (session, other):
        await enqueue(stores, each, key=key)
    await stores.sessions.bury(session, 5000)
    await stores.events.write([keyed(session, closes=True)])
    assert await stores.queue.turn_of_key(session, key) is not None
    await stores.sessions.purge(FUTURE)
    assert await stores.queue.turn_of_key(session, key) is None
    assert await stores.queue.turn_of_key(other, key) is not None


# ── keys ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_key_stands_for_one_turn_in_its_session(stores: Stores) -> None:
    session, other = await stores.new_session(), await stores.new_session()
    key = Key("k", "hash")
    assert await stores.queue.turn_of_key(session, key) is None
    turn = await enqueue(stores, session, key=key)
    assert await stores.queue.turn_of_key(session, key) == turn
    for again in (key, Key("k", "another")):
        with pytest.raises(KeyReused):
            await enqueue(stores, session, key=again)
    assert await line(stores, session) == [turn]
    await enqueue(stores, other, key=key)
    await enqueue(stores, session, key=Key("K", "hash"))


async def test_a_key_that_came_with_another_request_is_told_apart(stores: Stores) -> None:
    session = await stores.new_session()
    await enqueue(stores, session, key=Key("k", "hash"))
    with pytest.raises(KeyReused):
        await stores.queue.turn_of_key(session, Key("k", "another"))


async def test_a_key_of_a_turn_that_was_started_is_taken_for_the_queue_too(stores: Stores) -> None:
    session, turn = await stores.new_session(), new_turn_id()
    key = Key("k", "hash")
    await stores.turns.start(turn, session, BEGIN, owner="me", trace_id=None, key=key)
    with pytest.raises(KeyReused):
        await enqueue(stores, session, key=key)
    await end(stores, session, turn)
    with pytest.raises(KeyReused):
        await stores.turns.start(new_turn_id(), session, BEGIN, owner="me", trace_id=None, key=key)
    assert await stores.queue.turn_of_key(session, key) == turn
    assert await stores.types(session) == [
        "session_start",
        "user_message",
        "agent_run_start",
        "agent_run_end",
    ]


async def test_of_many_with_one_key_one_waits(stores: Stores) -> None:
    session = await stores.new_session()
    key = Key("k", "hash")
    outcomes = await asyncio.gather(
        *(enqueue(stores, session, key=key) for _ in range(6)), return_exceptions=True
    )
    assert sorts(outcomes) == ["KeyReused"] * 5 + ["str"]
    assert len(await line(stores, session)) == 1


async def test_a_key_outlives_the_wait_and_the_removal(stores: Stores) -> None:
    session = await stores.new_session()
    removed = await enqueue(stores, session, key=Key("a", "h"))
    started = await enqueue(stores, session, key=Key("b", "h"))
    await stores.queue.remove(session, removed)
    await stores.queue.start(await queued_turn(stores, session), BEGIN, owner="me")
    assert await stores.queue.turn_of_key(session, Key("a", "h")) == removed
    assert await stores.queue.turn_of_key(session, Key("b", "h")) == started


# ── starting ─────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_waiting_turn_starts_together_with_its_first_events(stores: Stores) -> None:
    session = await stores.new_session()
    query = Query("x", {"text": "x"}, "a" * 32)
    turn = new_turn_id()
    await stores.queue.enqueue(turn, session, query, first=False, limit=1, key=None)
    await stores.append(session, draft("note"))
    placed = await stores.queue.start(await queued_turn(stores, session), BEGIN, owner="me")
    assert placed == Placed(2, 2, 0, 4)
    assert await line(stores, session) == []
    assert [(event.place, event.ordinal, event.turn_id) for event in (await stores.all(session))[2:]] == [
        (3, 3, turn),
        (4, 4, turn),
    ]
    row = await stores.turns.get(turn)
    assert row is not None
    assert (row.epoch, row.stored, row.first_place, row.last_place) == (1, 2, 3, 4)
    assert (row.trace_id, row.status) == ("a" * 32, None)
    assert (await standing(stores, session)).running_turn == turn
    await end(stores, session, turn)
    await stores.new_turn(session)


async def test_a_waiting_turn_does_not_start_while_another_runs(stores: Stores) -> None:
    session = await stores.new_session()
    running = await stores.new_turn(session)
    turn = await enqueue(stores, session)
    waiting = await queued_turn(stores, session)
    assert await stores.queue.start(waiting, BEGIN, owner="me") is None
    assert await line(stores, session) == [turn]
    await end(stores, session, running)
    assert await stores.queue.start(waiting, BEGIN, owner="me") is not None


async def test_a_turn_that_was_removed_or_was_started_does_not_start(stores: Stores) -> None:
    session = await stores.new_session()
    await enqueue(stores, session)
    removed = await queued_turn(stores, session)
    await stores.queue.remove(session, removed.turn_id)
    assert await stores.queue.start(removed, BEGIN, owner="me") is None
    assert await stores.turns.get(removed.turn_id) is None
    await enqueue(stores, session)
    twice = await queued_turn(stores, session)
    assert await stores.queue.start(twice, BEGIN, owner="me") is not None
    assert await stores.queue.start(twice, BEGIN, owner="other") is None
    await end(stores, session, twice.turn_id)
    assert await stores.queue.start(twice, BEGIN, owner="other") is None
    assert await stores.types(session) == [
        "session_start",
        "user_message",
        "agent_run_start",
        "agent_run_end",
    ]


async def test_of_many_that_start_a_waiting_turn_one_does(stores: Stores) -> None:
    session = await stores.new_session()
    await enqueue(stores, session)
    turn = await queued_turn(stores, session)
    placed = await asyncio.gather(*(stores.queue.start(turn, BEGIN, owner=f"replica {n}") for n in range(6)))
    assert [each for each in placed if each is not None] == [Placed(1, 1, 0, 3)]


async def test_of_a_start_and_a_removal_at_once_one_wins(stores: Stores) -> None:
    for _ in range(10):
        session = await stores.new_session()
        await enqueue(stores, session)
        turn = await queued_turn(stores, session)
        placed, is_removed = await asyncio.gather(
            stores.queue.start(turn, BEGIN, owner="me"), stores.queue.remove(session, turn.turn_id)
        )
        assert (placed is None) == is_removed
        assert len(await stores.all(session)) == (1 if is_removed else 3)
        assert await line(stores, session) == []


async def test_no_turn_starts_past_those_that_wait(stores: Stores) -> None:
    session = await stores.new_session()
    turn = await enqueue(stores, session)
    with pytest.raises(SessionBusy):
        await stores.new_turn(session)
    await stores.queue.remove(session, turn)
    await stores.new_turn(session)


async def test_no_turn_starts_past_one_that_comes_to_wait_at_the_same_time(stores: Stores) -> None:
    """Whichever the store takes first: who starts came before whoever waits."""
    for _ in range(10):
        session = await stores.new_session()
        outcomes = await asyncio.gather(
            enqueue(stores, session),
            *(stores.new_turn(session) for _ in range(3)),
            enqueue(stores, session),
            return_exceptions=True,
        )
        first, *_, last = outcomes
        assert await line(stores, session) in ([first, last], [last, first])
        started = [outcome for outcome in outcomes[1:-1] if isinstance(outcome, str)]
        assert sorts(outcomes[1:-1]) == ["SessionBusy"] * (3 - len(started)) + ["str"] * len(started)
        if started:
            [user_message, *_] = (await stores.all(session))[1:]
            assert user_message.turn_id == started[0]


# ── looking and removing ─────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_turn_is_removed_once_and_from_its_own_session_only(stores: Stores) -> None:
    session, other = await stores.new_session(), await stores.new_session()
    turns = [await enqueue(stores, session) for _ in range(3)]
    assert not await stores.queue.remove(other, turns[1])
    removed = await asyncio.gather(*(stores.queue.remove(session, turns[1]) for _ in range(3)))
    assert sorted(removed) == [False, False, True]
    assert not await stores.queue.remove(session, "turn_none")
    assert await line(stores, session) == [turns[0], turns[2]]
    assert await stores.types(session) == ["session_start"]


async def test_those_that_still_wait_are_told(stores: Stores) -> None:
    sessions = [await stores.new_session() for _ in range(2)]
    one, two, three = [await enqueue(stores, session) for session in (*sessions, sessions[0])]
    await stores.queue.start(await queued_turn(stores, sessions[0]), BEGIN, owner="me")
    await stores.queue.remove(sessions[1], two)
    assert await stores.queue.still_waiting([one, two, three, "turn_none"]) == {three}
    assert await stores.queue.still_waiting([]) == set()


async def test_sessions_in_which_turns_wait_and_none_runs_are_stranded(stores: Stores) -> None:
    idle, busy, stranded = [await stores.new_session() for _ in range(3)]
    turn = await stores.new_turn(busy)
    for session in (busy, stranded, stranded):
        await enqueue(stores, session)
    assert await stores.queue.stranded() == [stranded]
    await end(stores, busy, turn)
    assert sorted(await stores.queue.stranded()) == sorted([busy, stranded])
    assert await stores.queue.next(idle) is None


async def test_a_session_tells_how_many_wait(stores: Stores) -> None:
    session = await stores.new_session()
    turn = await stores.new_turn(session)
    waiting = [await enqueue(stores, session) for _ in range(3)]
    assert (await standing(stores, session)).queued == 3
    await stores.queue.remove(session, waiting[0])
    await end(stores, session, turn)
    await stores.queue.start(await queued_turn(stores, session), BEGIN, owner="me")
    found = await standing(stores, session)
    assert (found.queued, found.running_turn) == (1, waiting[1])


# ── asking to stop ───────────────────────────────────────────────────────────────────────────────────────────────────


async def test_the_owner_of_the_running_turn_is_asked_to_stop_it(stores: Stores) -> None:
    session, other = await stores.new_session(), await stores.new_session()
    turn, running_on = await stores.new_turn(session), await stores.new_turn(other)
    mine = [turn, running_on]
    assert await stores.turns.asked_to_stop("me", mine) == []
    assert await stores.turns.ask_to_stop(session, None) == (turn, True)
    assert await stores.turns.ask_to_stop(session, turn) == (turn, False)
    assert await stores.turns.asked_to_stop("me", mine) == [turn]
    assert await stores.turns.asked_to_stop("me", []) == []


async def test_an_owner_is_told_of_turns_that_it_has_lost(stores: Stores) -> None:
    session, other = await stores.new_session(), await stores.new_session()
    lost, ended = await stores.new_turn(session), await stores.new_turn(other)
    row = await stores.turns.get(lost)
    assert row is not None
    await stores.turns.take_over(row, "another")
    await end(stores, other, ended)
    assert sorted(await stores.turns.asked_to_stop("me", [lost, ended])) == sorted([lost, ended])
    assert await stores.turns.asked_to_stop("another", [lost]) == []


async def test_nobody_is_asked_to_stop_what_does_not_run(stores: Stores) -> None:
    session = await stores.new_session()
    assert await stores.turns.ask_to_stop(session, None) is None
    assert await stores.turns.ask_to_stop("sess_none", None) is None
    ended = await stores.new_turn(session)
    await end(stores, session, ended)
    waiting = await enqueue(stores, session)
    await stores.queue.start(await queued_turn(stores, session), BEGIN, owner="me")
    later = await enqueue(stores, session)
    for name in (ended, later, "turn_none"):
        assert await stores.turns.ask_to_stop(session, name) is None
    assert await stores.turns.ask_to_stop(session, waiting) == (waiting, True)


async def test_a_key_is_forgotten_when_it_is_old(stores: Stores) -> None:
    session = await stores.new_session()
    key = Key("k", "hash")
    await stores.turns.start("turn_" + "a" * 26, session, [draft()], owner="me", trace_id=None, key=key)
    assert await stores.turns.forget_keys(now_ms() - 60_000) == 0
    assert await stores.queue.turn_of_key(session, key) == "turn_" + "a" * 26
    assert await stores.turns.forget_keys(now_ms() + 60_000) == 1
    assert await stores.queue.turn_of_key(session, key) is None
