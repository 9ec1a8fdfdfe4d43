"""The sessions' storage: one suite over memory and over each PostgreSQL."""

import asyncio
from dataclasses import replace

import pytest

from app.errors import TooLarge
from app.events.ending import Ending
from app.events.ids import new_session_id
from app.sessions.session import Change, Session, Standing
from app.sessions.store import ListPlace
from tests.log.storing import Stores, draft, keyed, of_turn


async def test_a_session_is_created_together_with_its_first_event(stores: Stores) -> None:
    session = Session(
        id=new_session_id(),
        principal="alice",
        agent="demo",
        created_at=1000,
        updated_at=1000,
        name="Größe 😀",
        tags=["a", "b"],
        attributes={"n": None, "deep": {"x": ["\x00\ud800", 10**30]}},
    )
    placed = await stores.sessions.create(session, draft("session_start", {"sessionId": session.id}))
    assert (placed.after, placed.last) == (0, 1)
    assert await stores.sessions.get(session.id) == Standing(session, 1, 1, None)
    [event] = await stores.all(session.id)
    assert (event.type, event.place, event.ordinal, event.turn_id) == ("session_start", 1, 1, None)


async def test_a_session_that_never_was_is_none(stores: Stores) -> None:
    assert await stores.sessions.get("sess_none") is None
    assert await stores.sessions.message_count("sess_none") == 0
    assert not await stores.sessions.bury("sess_none", 1)
    await stores.sessions.update("sess_none", Change(name="x"), 1)
    assert await stores.sessions.get("sess_none") is None


async def test_a_session_tells_where_its_log_and_its_turns_stand(stores: Stores) -> None:
    session = await stores.new_session()
    turn = await stores.new_turn(session)
    standing = await stores.sessions.get(session)
    assert standing is not None
    assert (standing.last_place, standing.lasting, standing.running_turn) == (3, 3, turn)
    await stores.events.write([of_turn(session, turn, 3, [draft("end")], ending=Ending.completed())])
    standing = await stores.sessions.get(session)
    assert standing is not None
    assert (standing.last_place, standing.running_turn, standing.last_ending) == (4, None, "completed")


async def test_a_session_tells_how_its_last_turn_ended(stores: Stores) -> None:
    session = await stores.new_session()
    for ending in (Ending.completed(), Ending.aborted()):
        turn = await stores.new_turn(session)
        await stores.events.write([of_turn(session, turn, 3, [draft("end")], ending=ending)])
    running = await stores.new_turn(session)
    standing = await stores.sessions.get(session)
    [listed] = await stores.sessions.list("alice", limit=1)
    assert standing is not None
    assert (standing.running_turn, standing.last_ending) == (running, "aborted")
    assert listed.last_ending == "aborted"


async def test_the_list_is_newest_first_and_goes_on_after_a_place(stores: Stores) -> None:
    made = [await stores.new_session(created_at=1000 + n // 2) for n in range(7)]
    await stores.new_session("bob")
    found: list[Session] = []
    after = None
    while page := await stores.sessions.list("alice", limit=3, after=after):
        found += [standing.session for standing in page]
        after = ListPlace(found[-1].created_at, found[-1].id)
    assert {session.id for session in found} == set(made)
    assert found == sorted(found, key=lambda session: (session.created_at, session.id), reverse=True)


async def test_the_list_leaves_out_tombstones(stores: Stores) -> None:
    kept, buried = await stores.new_session(), await stores.new_session()
    await stores.sessions.bury(buried, 5000)
    assert [standing.session.id for standing in await stores.sessions.list("alice", limit=9)] == [kept]


async def test_an_update_changes_what_it_names_and_leaves_the_rest(stores: Stores) -> None:
    session = await stores.new_session()
    await stores.sessions.update(session, Change("name", ["a"], {"x": 1, "y": 2}), 2000)
    await stores.sessions.update(session, Change(attributes={"y": 3}), 3000)
    standing = await stores.sessions.get(session)
    assert standing is not None
    assert standing.session == replace(
        standing.session, name="name", tags=["a"], attributes={"x": 1, "y": 3}, updated_at=3000
    )


async def test_updates_of_many_callers_are_merged(stores: Stores) -> None:
    session = await stores.new_session()
    updates = [Change(attributes={f"k{n}": n}) for n in range(20)]
    await asyncio.gather(*(stores.sessions.update(session, change, 2000) for change in updates))
    standing = await stores.sessions.get(session)
    assert standing is not None
    assert standing.session.attributes == {f"k{n}": n for n in range(20)}


async def test_a_session_is_buried_once(stores: Stores) -> None:
    session = await stores.new_session()
    buried = await asyncio.gather(*(stores.sessions.bury(session, 5000 + n) for n in range(5)))
    assert sorted(buried) == [False] * 4 + [True]
    standing = await stores.sessions.get(session)
    assert standing is not None
    assert standing.session.deleted_at is not None
    head = await stores.events.head(session)
    assert head is not None
    assert (head.is_closing, head.is_closed) == (True, False)


async def test_messages_are_those_of_user_and_assistant(stores: Stores) -> None:
    session = await stores.new_session()
    await stores.append(session, draft("user_message"), draft("tool_call"), draft("assistant_message"))
    assert await stores.sessions.message_count(session) == 2


async def test_a_purge_removes_everything_of_old_tombstones_but_the_tombstones(stores: Stores) -> None:
    old, young, living = [await stores.new_session() for _ in range(3)]
    turn, other = await stores.new_turn(old), await stores.new_turn(living)
    await stores.sessions.bury(old, 5000)
    await stores.sessions.bury(young, 9000)
    assert await stores.sessions.purge(9000) == 0
    assert [each.id for each in await stores.sessions.unfinished(9000)] == [old]
    await stores.events.write([keyed(old, draft("session_end"), closes=True)])
    assert await stores.sessions.unfinished(9000) == []
    assert await stores.sessions.purge(9000) == 1
    assert await stores.sessions.purge(9000) == 0
    assert await stores.all(old) == []
    assert await stores.events.head(old) is None
    assert await stores.turns.get(turn) is None
    assert await stores.append(old, draft("late")) is None
    assert not await stores.sessions.bury(old, 9999)
    standing = await stores.sessions.get(old)
    assert standing is not None
    assert (standing.session.deleted_at, standing.last_place) == (5000, 0)
    assert await stores.turns.get(other) is not None
    assert await stores.types(young) == ["session_start"]
    assert await stores.types(living) == ["session_start", "user_message", "agent_run_start"]


async def test_attributes_are_bounded_and_a_change_beyond_it_changes_nothing(stores: Stores) -> None:
    session = await stores.new_session()
    await stores.sessions.update(session, Change(attributes={"a": "x" * 30_000}), 1)
    with pytest.raises(TooLarge) as refused:
        await stores.sessions.update(session, Change(name="n", attributes={"b": "x" * 40_000}), 2)
    assert refused.value.code == "attributes_too_large"
    standing = await stores.sessions.get(session)
    assert standing is not None
    assert (standing.session.name, list(standing.session.attributes)) == (None, ["a"])
