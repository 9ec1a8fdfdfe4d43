"""The log's storage: one suite over memory and over each PostgreSQL, by both ways to write."""

from dataclasses import replace

import pytest

from app.events.ending import Ending
from app.events.envelope import Draft, Placed
from app.log.store import Head, Slice
from app.postgres import copying
from tests.log.storing import ALL, Stores, delta, draft, keyed, of_turn


async def test_places_are_gapless_and_in_order(stores: Stores) -> None:
    session = await stores.new_session()
    assert await stores.append(session, draft("a"), draft("b")) == Placed(1, 1, 0, 3)
    assert await stores.append(session, draft("c")) == Placed(3, 3, 0, 4)
    events = await stores.all(session)
    assert [(event.place, event.type) for event in events] == [
        (1, "session_start"),
        (2, "a"),
        (3, "b"),
        (4, "c"),
    ]


async def test_only_lasting_events_have_ordinals(stores: Stores) -> None:
    session = await stores.new_session()
    turn = await stores.new_turn(session)
    drafts = [delta("a"), draft("m"), delta("b"), delta("c"), draft("n")]
    assert await stores.events.write([of_turn(session, turn, 3, drafts)]) == [Placed(3, 3, 0, 8)]
    ordinals = [event.ordinal for event in await stores.all(session)]
    assert ordinals == [1, 2, 3, None, 4, None, None, 5]
    assert await stores.events.head(session) == Head(8, 5, turn, is_closed=False)


async def test_several_strands_of_a_session_in_one_write_follow_each_other(stores: Stores) -> None:
    session, other = await stores.new_session(), await stores.new_session()
    turn = await stores.new_turn(session)
    places = await stores.events.write(
        [
            of_turn(session, turn, 3, [delta("a"), draft("b")]),
            keyed(other, draft("elsewhere")),
            keyed(session, draft("c"), draft("d")),
            of_turn(session, turn, 5, [draft("e")], ending=Ending.completed()),
        ]
    )
    assert places == [Placed(3, 3, 0, 5), Placed(1, 1, 0, 2), Placed(5, 4, 0, 7), Placed(7, 6, 0, 8)]
    assert (await stores.types(session))[3:] == ["assistant_message_delta", "b", "c", "d", "e"]
    turns = [event.turn_id for event in await stores.all(session)]
    assert turns[3:] == [turn, turn, None, None, turn]
    row = await stores.turns.get(turn)
    assert row is not None
    assert (row.stored, row.first_place, row.last_place, row.status) == (5, 2, 8, "completed")


async def test_a_turns_strand_that_is_written_again_stores_nothing_and_says_where_it_was(
    stores: Stores,
) -> None:
    session = await stores.new_session()
    turn = await stores.new_turn(session)
    strand = of_turn(session, turn, 3, [draft("a"), delta("b")])
    await stores.events.write([strand])
    await stores.append(session, draft("between"))
    [again] = await stores.events.write([strand])
    assert again is not None
    assert (again.skipped, again.last) == (2, 5)
    assert await stores.types(session) == [
        "session_start", "user_message", "agent_run_start", "a", "assistant_message_delta", "between",
    ]  # fmt: skip


async def test_an_ending_that_is_written_again_is_the_same_ending(stores: Stores) -> None:
    session = await stores.new_session()
    turn = await stores.new_turn(session)
    last = of_turn(session, turn, 3, [draft("agent_run_end")], ending=Ending.completed())
    [first] = await stores.events.write([last])
    [again] = await stores.events.write([last])
    assert first is not None
    assert again is not None
    assert (again.skipped, again.last) == (1, first.last)


async def test_a_keyed_draft_that_is_written_again_stores_nothing_and_says_where_it_was(
    stores: Stores,
) -> None:
    session = await stores.new_session()
    strand = keyed(session, draft("a"))
    await stores.events.write([strand])
    await stores.append(session, draft("b"))
    [again, new] = await stores.events.write([strand, keyed(session, draft("c"))])
    assert again is not None
    assert (again.skipped, again.last) == (1, 2)
    assert new == Placed(3, 3, 0, 4)
    assert await stores.types(session) == ["session_start", "a", "b", "c"]


async def test_the_last_event_of_a_session_that_is_written_again_is_known(stores: Stores) -> None:
    session = await stores.new_session()
    end = keyed(session, draft("session_end"), closes=True)
    await stores.events.write([end])
    [again] = await stores.events.write([end])
    assert again is not None
    assert (again.skipped, again.last) == (1, 2)


async def test_a_fenced_strand_is_dropped_without_failing_its_neighbours(stores: Stores) -> None:
    session, other = await stores.new_session(), await stores.new_session()
    turn = await stores.new_turn(session)
    row = await stores.turns.get(turn)
    assert row is not None
    assert await stores.turns.take_over(row, "another") == replace(row, epoch=2)
    places = await stores.events.write(
        [
            of_turn(session, turn, 3, [draft("late")]),
            keyed(session, draft("client")),
            keyed(other, draft("elsewhere")),
            of_turn(session, turn, 3, [draft("taken over")], epoch=2),
        ]
    )
    assert places == [None, Placed(3, 3, 0, 4), Placed(1, 1, 0, 2), Placed(4, 4, 0, 5)]
    assert (await stores.types(session))[3:] == ["client", "taken over"]


async def test_nothing_is_written_to_a_turn_that_has_ended_or_never_was(stores: Stores) -> None:
    session = await stores.new_session()
    turn = await stores.new_turn(session)
    await stores.events.write([of_turn(session, turn, 3, [draft("end")], ending=Ending.aborted())])
    assert await stores.events.write([of_turn(session, turn, 4, [draft("late")])]) == [None]
    assert await stores.events.write([of_turn(session, "turn_unknown", 1, [draft("never")])]) == [None]
    assert (await stores.types(session))[-1] == "end"


async def test_an_ending_settles_its_turns_row(stores: Stores) -> None:
    session = await stores.new_session()
    turn = await stores.new_turn(session, trace_id="a" * 32)
    ending = Ending.failed("no luck", code="luck", is_recoverable=True)
    await stores.events.write([of_turn(session, turn, 3, [delta(), draft("end")], ending=ending)])
    row = await stores.turns.get(turn)
    assert row is not None
    assert (row.status, row.code, row.stored, row.last_place) == ("failed", "luck", 4, 5)
    assert row.trace_id == "a" * 32
    head = await stores.events.head(session)
    assert head is not None
    assert head.running_turn is None


async def test_a_closed_session_takes_nothing(stores: Stores) -> None:
    session = await stores.new_session()
    turn = await stores.new_turn(session)
    assert await stores.append(session, draft("session_end"), closes=True) == Placed(3, 3, 0, 4)
    late = [keyed(session), of_turn(session, turn, 3, [draft()]), keyed(session, closes=True)]
    assert await stores.events.write(late) == [None, None, None]
    assert await stores.events.head(session) == Head(4, 4, turn, is_closed=True, is_closing=True)


async def test_nothing_follows_the_end_of_a_session_in_the_same_write(stores: Stores) -> None:
    session, other = await stores.new_session(), await stores.new_session()
    turn = await stores.new_turn(session)
    batch = [
        keyed(session, draft("session_end"), closes=True),
        keyed(other, draft("elsewhere")),
        keyed(session, draft("session_end"), closes=True),
        of_turn(session, turn, 3, [draft("late")]),
    ]
    assert await stores.events.write(batch) == [Placed(3, 3, 0, 4), Placed(1, 1, 0, 2), None, None]
    first, elsewhere, *late = await stores.events.write(batch)
    assert first is not None
    assert elsewhere is not None
    assert (first.skipped, elsewhere.skipped, late) == (1, 1, [None, None])
    assert (await stores.types(session))[3:] == ["session_end"]
    assert await stores.events.head(session) == Head(4, 4, turn, is_closed=True, is_closing=True)


async def test_a_closing_session_takes_only_its_turn_and_its_end(stores: Stores) -> None:
    session = await stores.new_session()
    turn = await stores.new_turn(session)
    assert await stores.sessions.bury(session, 5000)
    places = await stores.events.write(
        [
            keyed(session, draft("client")),
            of_turn(session, turn, 3, [draft("end")], ending=Ending.aborted()),
            keyed(session, draft("session_end"), closes=True),
        ]
    )
    assert places == [None, Placed(3, 3, 0, 4), Placed(4, 4, 0, 5)]
    assert (await stores.types(session))[3:] == ["end", "session_end"]


async def test_a_session_that_is_not_there_has_no_log(stores: Stores) -> None:
    assert await stores.events.write([keyed("sess_none")]) == [None]
    assert await stores.events.head("sess_none") is None
    assert await stores.events.read("sess_none", ALL) == []


async def test_what_is_read_is_what_was_written_byte_for_byte(stores: Stores) -> None:
    session = await stores.new_session()
    odd = [
        "\x00", "\ud800", "\udfff text", "\u2028\u2029\x85", 10**40, -(2**64), 1e308, 5e-324, -0.0, "é😀", "",
        {"b": 1, "a": {"": None}}, [[]], {"\x00": "\ud800"}, "\\u0000", '"', "x" * 3000,
    ]  # fmt: skip
    for _ in range(190):
        odd = [odd]
    drafts = [draft("odd", odd), draft("ödd 😀 type", {"plain": True}), draft("huge", {"x": "é" * 5 * 2**20})]
    await stores.append(session, *drafts)
    events = (await stores.all(session))[1:]
    for event, written in zip(events, drafts, strict=True):
        assert event.type == written.type
        assert event.timestamp == written.timestamp
        assert event.data == written.data
        assert event.metadata == written.metadata


async def test_a_read_begins_after_a_place_and_ends_at_one(stores: Stores) -> None:
    session = await stores.new_session()
    await stores.append(session, *(draft(f"e{n}") for n in range(2, 8)))
    events = await stores.events.read(session, Slice(3, 6))
    assert [event.place for event in events] == [4, 5, 6]
    events = await stores.events.read(session, Slice(3, limit=2))
    assert [event.place for event in events] == [4, 5]


async def test_a_read_ends_with_its_budget_but_has_one_event_at_least(stores: Stores) -> None:
    session = await stores.new_session()
    await stores.append(session, *(draft("big", "x" * 5000) for _ in range(4)))
    events = await stores.events.read(session, Slice(1, budget=12_000))
    assert [event.place for event in events] == [2, 3, 4]
    events = await stores.events.read(session, Slice(1, budget=1))
    assert [event.place for event in events] == [2]


async def test_a_read_that_stays_under_its_budget_is_whole(stores: Stores) -> None:
    session = await stores.new_session()
    await stores.append(session, *(draft("note", "x" * 198) for _ in range(90)))
    events = await stores.events.read(session, Slice(1, budget=90 * 200 + 1))
    assert len(events) == 90


async def test_a_read_may_leave_out_passing_events_but_those_of_one_turn(stores: Stores) -> None:
    session = await stores.new_session()
    first = await stores.new_turn(session)
    await stores.events.write(
        [of_turn(session, first, 3, [delta("1"), draft("end")], ending=Ending.completed())]
    )
    second = await stores.new_turn(session)
    await stores.events.write([of_turn(session, second, 3, [delta("2"), draft("m")])])
    places = {
        turn: [event.place for event in await stores.events.read(session, Slice(0, whole_turn=turn))]
        for turn in (None, "", first, second)
    }
    assert places == {
        None: [1, 2, 3, 4, 5, 6, 7, 8, 9],
        "": [1, 2, 3, 5, 6, 7, 9],
        first: [1, 2, 3, 4, 5, 6, 7, 9],
        second: [1, 2, 3, 5, 6, 7, 8, 9],
    }


async def test_a_large_write_is_stored_in_order(stores: Stores) -> None:
    session = await stores.new_session()
    turn = await stores.new_turn(session)
    drafts = [delta(str(n)) if n % 3 else draft(f"e{n}") for n in range(500)]
    assert await stores.events.write([of_turn(session, turn, 3, drafts)]) == [Placed(3, 3, 0, 503)]
    events = (await stores.all(session))[3:]
    assert [event.data for event in events] == [each.data for each in drafts]
    assert [event.place for event in events] == list(range(4, 504))
    assert [event.ordinal for event in events if event.ordinal] == list(range(4, 171))


async def test_an_event_of_any_size_comes_back_byte_for_byte(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A COPY is sent in pieces, whose ends fall anywhere."""
    monkeypatch.setattr(copying, "PIECE", 100)
    session = await stores.new_session()
    values = [b'"' + "é".encode() * half + b'"' for half in (0, 48, 49, 50, 99, 100, 5_000)]
    drafts = [
        Draft("note", 1, data, metadata, n % 2 == 0) for n, data in enumerate(values) for metadata in values
    ]
    await stores.append(session, *drafts)
    found = (await stores.all(session))[1:]
    assert [(event.data, event.metadata) for event in found] == [
        (each.data, each.metadata) for each in drafts
    ]
