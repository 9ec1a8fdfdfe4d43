"""The turns' storage: one suite over memory and over each PostgreSQL."""

import asyncio

import pytest

from app.errors import SessionBusy, SessionDeleted
from app.events.ending import Ending
from app.events.envelope import Placed
from app.events.ids import new_turn_id
from app.turns.admission import Answering, NothingAsked
from tests.log.storing import Stores, delta, draft, keyed, of_turn

BEGIN = [draft("user_message"), draft("agent_run_start")]
END = [draft("agent_run_end")]
FUTURE = 2**52


async def test_a_turn_starts_together_with_its_first_events(stores: Stores) -> None:
    session, turn = await stores.new_session(), new_turn_id()
    drafts = [draft("user_message", {"content": "hé\x00"}), draft("agent_run_start")]
    placed = await stores.turns.start(turn, session, drafts, owner="me", trace_id="f" * 32)
    assert placed == Placed(1, 1, 0, 3)
    events = (await stores.all(session))[1:]
    assert [(event.place, event.ordinal, event.turn_id) for event in events] == [(2, 2, turn), (3, 3, turn)]
    assert [event.data for event in events] == [each.data for each in drafts]
    row = await stores.turns.get(turn)
    assert row is not None
    assert (row.session_id, row.epoch, row.stored, row.first_place, row.last_place) == (session, 1, 2, 2, 3)
    assert (row.trace_id, row.status, row.code) == ("f" * 32, None, None)


async def test_a_session_has_one_running_turn(stores: Stores) -> None:
    session = await stores.new_session()
    turn = await stores.new_turn(session)
    with pytest.raises(SessionBusy) as busy:
        await stores.new_turn(session)
    assert busy.value.details == {"turnId": turn}
    assert len(await stores.all(session)) == 3
    await stores.events.write([of_turn(session, turn, 3, END, ending=Ending.completed())])
    await stores.new_turn(session)


async def test_of_many_that_start_at_once_one_does(stores: Stores) -> None:
    session = await stores.new_session()
    outcomes = await asyncio.gather(*(stores.new_turn(session) for _ in range(6)), return_exceptions=True)
    assert sorted(type(outcome).__name__ for outcome in outcomes) == ["SessionBusy"] * 5 + ["str"]
    assert await stores.types(session) == ["session_start", "user_message", "agent_run_start"]


async def test_no_turn_starts_in_a_deleted_session_or_in_none(stores: Stores) -> None:
    closing, closed = await stores.new_session(), await stores.new_session()
    await stores.sessions.bury(closing, 5000)
    await stores.events.write([keyed(closed, draft("session_end"), closes=True)])
    for session in (closing, closed, "sess_none"):
        with pytest.raises(SessionDeleted):
            await stores.new_turn(session)


async def test_a_turn_that_never_was_is_none(stores: Stores) -> None:
    assert await stores.turns.get("turn_none") is None
    assert await stores.turns.tool_ids("sess_none") == []


async def test_ones_own_turns_that_one_does_not_run_are_orphans(stores: Stores) -> None:
    sessions = [await stores.new_session() for _ in range(3)]
    mine, lost = [await stores.new_turn(session) for session in sessions[:2]]
    ended = await stores.new_turn(sessions[2])
    await stores.events.write([of_turn(sessions[2], ended, 3, END, ending=Ending.completed())])
    orphans = await stores.turns.orphans("me", {mine}, is_alone=False)
    assert [orphan.id for orphan in orphans] == [lost]


async def test_who_is_alone_finds_the_turns_of_all_others(stores: Stores) -> None:
    session, other = await stores.new_session(), await stores.new_session()
    mine = await stores.new_turn(session)
    theirs = await stores.new_turn(other, owner="gone")
    orphans = await stores.turns.orphans("me", {mine, theirs}, is_alone=True)
    assert [orphan.id for orphan in orphans] == [theirs]


async def test_a_turn_is_taken_over_by_one_only(stores: Stores) -> None:
    session = await stores.new_session()
    turn = await stores.new_turn(session)
    row = await stores.turns.get(turn)
    assert row is not None
    taken = await asyncio.gather(*(stores.turns.take_over(row, f"replica {n}") for n in range(5)))
    [winner] = [each for each in taken if each is not None]
    assert winner.epoch == 2
    assert await stores.turns.get(turn) == winner


async def test_an_ended_or_purged_turn_is_not_taken_over(stores: Stores) -> None:
    session = await stores.new_session()
    turn = await stores.new_turn(session)
    row = await stores.turns.get(turn)
    assert row is not None
    await stores.events.write([of_turn(session, turn, 3, END, ending=Ending.completed())])
    assert await stores.turns.take_over(row, "late") is None
    await stores.sessions.bury(session, 5000)
    await stores.sessions.purge(FUTURE)
    assert await stores.turns.take_over(row, "later") is None


async def test_tool_ids_are_those_of_the_sessions_calls(stores: Stores) -> None:
    session = await stores.new_session()
    await stores.append(
        session, draft("tool_call", {"id": "a"}), draft("tool_result", {"toolCallId": "x"}), draft("tool_call", {"id": "b\x00"})
    )  # fmt: skip
    assert await stores.turns.tool_ids(session) == ["a", "b\x00"]


async def test_retiring_removes_the_passing_events_of_ended_turns_only(stores: Stores) -> None:
    session, other = await stores.new_session(), await stores.new_session()
    ended = await stores.new_turn(session)
    last = of_turn(session, ended, 3, [delta("a"), delta("b"), draft("m"), *END], ending=Ending.completed())
    await stores.events.write([last, keyed(session, delta("a client's"))])
    running = await stores.new_turn(other)
    await stores.events.write([of_turn(other, running, 3, [delta("c")])])

    assert await stores.turns.retire(0) == 0
    assert await stores.turns.retire(FUTURE) == 1
    assert await stores.turns.retire(FUTURE) == 0
    assert [event.place for event in await stores.all(session)] == [1, 2, 3, 6, 7, 8]
    assert [event.place for event in await stores.all(other)] == [1, 2, 3, 4]


async def start_answer(stores: Stores, session: str, asking: str, first: str | None = None) -> str:
    turn = new_turn_id()
    await stores.turns.start(
        turn, session, BEGIN, owner="me", trace_id=None, answering=Answering(asking, first or asking)
    )
    return turn


async def ask(stores: Stores, session: str, turn: str) -> None:
    ending = Ending.completed(question="Which city?")
    await stores.events.write([of_turn(session, turn, 3, END, ending=ending)])


async def test_an_answer_continues_the_turn_that_asks(stores: Stores) -> None:
    session = await stores.new_session()
    asking = await stores.new_turn(session)
    await ask(stores, session, asking)
    row = await stores.turns.get(asking)
    assert row is not None
    assert (row.status, row.code, row.continues) == ("completed", "input_required", None)

    answer = await start_answer(stores, session, asking)

    row = await stores.turns.get(answer)
    assert row is not None
    assert row.continues == asking
    orphans = await stores.turns.orphans("me", set(), is_alone=False)
    assert [orphan.continues for orphan in orphans] == [asking]
    taken = await stores.turns.take_over(row, "other")
    assert taken is not None
    assert taken.continues == asking


async def test_only_the_sessions_last_turn_can_be_answered_and_only_if_it_asks(stores: Stores) -> None:
    session = await stores.new_session()
    asking = await stores.new_turn(session)
    with pytest.raises(SessionBusy):
        await start_answer(stores, session, asking)
    await ask(stores, session, asking)
    later = await stores.new_turn(session)
    await stores.events.write([of_turn(session, later, 3, END, ending=Ending.completed())])
    for turn in (asking, later, "turn_none"):
        with pytest.raises(NothingAsked):
            await start_answer(stores, session, turn)
    with pytest.raises(NothingAsked):
        await start_answer(stores, await stores.new_session(), asking)


async def test_of_many_answers_at_once_one_is_taken(stores: Stores) -> None:
    session = await stores.new_session()
    asking = await stores.new_turn(session)
    await ask(stores, session, asking)

    async def answer() -> None:
        turn = await start_answer(stores, session, asking)
        await stores.events.write([of_turn(session, turn, 3, END, ending=Ending.completed())])

    outcomes = await asyncio.gather(*(answer() for _ in range(6)), return_exceptions=True)

    assert outcomes.count(None) == 1
    assert {type(outcome) for outcome in outcomes if outcome} <= {SessionBusy, NothingAsked}
