"""Pages of a session's past: the database's choice against one made by hand from the whole log."""

import itertools
from collections.abc import AsyncIterator

import pytest

from app.errors import StorageUnavailable
from app.events.ending import Ending
from app.events.envelope import Envelope
from app.log.history import HistoryQuery
from app.postgres.event_store import PostgresEventStore
from app.sessions.session import Session
from tests.conftest import open_stores
from tests.log.storing import Stores, delta, draft, keyed, of_turn


@pytest.fixture
async def stores_of(database: str) -> AsyncIterator[Stores]:
    async with open_stores(database) as stores:
        yield stores


def chosen(log: list[Envelope], query: HistoryQuery) -> tuple[list[int], bool]:
    """The places that a page must have, and whether there are more."""
    fitting = [
        event
        for event in log
        if event.place > query.after
        and (query.before is None or event.place < query.before)
        and (query.with_passing or event.ordinal is not None)
        and (query.types is None or event.type in query.types)
        and (query.since is None or event.timestamp >= query.since)
        and (query.until is None or event.timestamp < query.until)
        and query.turn_id in (None, event.turn_id)
    ]
    if query.is_descending:
        fitting.reverse()
    return [event.place for event in fitting[: query.limit]], len(fitting) > query.limit


async def test_a_page_has_what_was_asked_for_and_tells_whether_there_is_more(stores_of: Stores) -> None:
    events = stores_of.events
    assert isinstance(events, PostgresEventStore)
    session = await stores_of.new_session()
    await stores_of.events.write([keyed(await stores_of.new_session(), draft("foreign"))])
    turns = []
    for n in range(3):
        turn = await stores_of.new_turn(session)
        turns.append(turn)
        said = [draft("a")._replace(timestamp=1000 + n), delta(), draft("b")._replace(timestamp=2000 + n)]
        await stores_of.events.write([of_turn(session, turn, 3, said, ending=Ending.completed())])
    log = await stores_of.all(session)
    for after, before, down, types, since, passing, turn_id, limit in itertools.product(
        (0, 5),
        (None, 12),
        (False, True),
        (None, ("a", "b")),
        (None, 1001),
        (False, True),
        (None, turns[1]),
        (1, 3, 50),
    ):
        until = None if since is None else 2001
        query = HistoryQuery(after, before, down, types, since, until, turn_id, passing, limit)
        page = await events.history(session, query)
        assert ([event.place for event in page.events], page.has_more) == chosen(log, query), query
        assert list(page.events) == [log[event.place - 1] for event in page.events]


async def test_a_page_ends_with_its_budget_but_has_one_event_at_least(stores_of: Stores) -> None:
    events = stores_of.events
    assert isinstance(events, PostgresEventStore)
    session = await stores_of.new_session()
    await stores_of.append(session, *(draft("big", "x" * 5000) for _ in range(4)))
    for down, first in ((False, 2), (True, 5)):
        page = await events.history(session, HistoryQuery(after=1, is_descending=down, budget=1))
        assert ([event.place for event in page.events], page.has_more) == ([first], True)
    page = await events.history(session, HistoryQuery(after=1, budget=10**6))
    assert (len(page.events), page.has_more) == (4, False)
    page = await events.history(session, HistoryQuery(after=5))
    assert (list(page.events), page.has_more) == ([], False)


async def test_lasting_events_are_read_by_their_ordinals(stores_of: Stores) -> None:
    events = stores_of.events
    assert isinstance(events, PostgresEventStore)
    session = await stores_of.new_session()
    turn = await stores_of.new_turn(session)
    said = [delta(), draft("a", "x" * 5000), delta(), draft("b", "x" * 5000), draft("c")]
    await stores_of.events.write([of_turn(session, turn, 3, said)])
    assert [event.type for event in await events.lasting(session, 3, 5, 10**6)] == ["a", "b"]
    assert [event.type for event in await events.lasting(session, 3, 9, 1)] == ["a"]
    assert await events.lasting(session, 6, 9, 10**6) == []


async def test_an_id_is_used_once(stores_of: Stores) -> None:
    session = Session(id="sess_x", principal="a", agent="demo", created_at=1, updated_at=1)
    await stores_of.sessions.create(session, draft("session_start"))
    with pytest.raises(StorageUnavailable):
        await stores_of.sessions.create(session, draft("session_start"))
    assert await stores_of.types("sess_x") == ["session_start"]
