"""The directory: each principal finds its own sessions, and only those."""

import pytest

from app.errors import SessionDeleted, SessionNotFound
from app.events.canonical import decode
from app.events.ids import is_session_id, new_session_id
from app.sessions.directory import Directory
from app.sessions.session import Change
from tests.log.storing import Stores, keyed, memory_stores


@pytest.fixture
def memory() -> Stores:
    return memory_stores()


@pytest.fixture
def directory(memory: Stores) -> Directory:
    return Directory(memory.sessions, clock=lambda: 1234)


async def test_a_new_session_begins_with_its_start(directory: Directory, memory: Stores) -> None:
    session = await directory.create("alice", "demo", name="n", tags=("a",), attributes={"x": 1})
    assert is_session_id(session.id)
    assert (session.name, session.tags, session.attributes) == ("n", ["a"], {"x": 1})
    [start] = await memory.all(session.id)
    assert start.type == "session_start"
    assert decode(start.data) == {"sessionId": session.id, "agentName": "demo", "timestamp": 1234}


async def test_a_foreign_session_is_not_found_in_the_same_words_as_none(directory: Directory) -> None:
    session = await directory.create("alice", "demo")
    told = []
    for session_id in (session.id, new_session_id()):
        with pytest.raises(SessionNotFound) as refused:
            await directory.find(session_id, "bob")
        told.append((str(refused.value).replace(session_id, "…"), refused.value.code))
    assert told[0] == told[1]
    assert (await directory.find(session.id, "alice")).session == session


@pytest.mark.parametrize("session_id", ["", "sess_x", "' OR 1=1", "sess_\x00", "x" * 10_000])
async def test_what_is_no_session_id_is_not_found(directory: Directory, session_id: str) -> None:
    with pytest.raises(SessionNotFound) as refused:
        await directory.find(session_id, "alice")
    assert len(str(refused.value)) < 400


async def test_a_buried_session_is_gone_for_its_principal_and_unknown_to_others(directory: Directory) -> None:
    session = await directory.create("alice", "demo")
    with pytest.raises(SessionNotFound):
        await directory.bury(session.id, "bob")
    assert await directory.bury(session.id, "alice") == session
    for act in (directory.find, directory.bury):
        with pytest.raises(SessionDeleted):
            await act(session.id, "alice")
    with pytest.raises(SessionNotFound):
        await directory.find(session.id, "bob")
    with pytest.raises(SessionDeleted):
        await directory.update(session.id, "alice", Change(name="x"))


async def test_a_session_that_somebody_else_buries_at_the_same_time_is_deleted(memory: Stores) -> None:
    class LateStore(type(memory.sessions)):  # type: ignore[misc]
        async def bury(self, session_id: str, now: int) -> bool:
            await super().bury(session_id, now)
            return bool(await super().bury(session_id, now))

    directory = Directory(LateStore(memory.events))
    session = await directory.create("alice", "demo")
    with pytest.raises(SessionDeleted):
        await directory.bury(session.id, "alice")


async def test_an_update_tells_what_the_session_is_now(directory: Directory) -> None:
    session = await directory.create("alice", "demo")
    changed = await directory.update(session.id, "alice", Change(name="new", attributes={"a": 1}))
    assert (changed.session.name, changed.session.attributes) == ("new", {"a": 1})
    with pytest.raises(SessionNotFound):
        await directory.update(session.id, "bob", Change(name="mine"))


async def test_the_list_is_the_principals_own(directory: Directory) -> None:
    mine = await directory.create("alice", "demo")
    await directory.create("bob", "demo")
    assert [standing.session.id for standing in await directory.list("alice", limit=5)] == [mine.id]


async def test_a_purge_counts_from_now(memory: Stores) -> None:
    times = iter([1000, 1000, 50_000, 50_000, 50_000])
    directory = Directory(memory.sessions, clock=lambda: next(times))
    session = await directory.create("alice", "demo")
    assert await directory.message_count(session.id) == 0
    await directory.bury(session.id, "alice")
    assert await directory.purge(48.9) == 0
    assert [each.id for each in await directory.unfinished(48.9)] == [session.id]
    await memory.events.write([keyed(session.id, closes=True)])
    assert await directory.purge(48.9) == 1
