"""A turn's writer: in order, bounded, silent once it is fenced, and nothing after the ending."""

import asyncio

import pytest

from app.events.ending import Ending
from app.log import writers
from app.log.store import Dropped, Fence
from app.log.writers import TurnWriter
from tests.log.conftest import Rig
from tests.log.storing import delta, draft, settle

FENCE = Fence("t", 1)


async def test_drafts_are_stored_in_the_order_they_were_appended(rig: Rig) -> None:
    writer = TurnWriter(rig.commit, "s", FENCE, written=0)
    for n in range(10):
        assert writer.append([draft(f"e{n}"), delta()]) is None
        await settle(n % 3)
    placed = await writer.end([draft("end")], Ending.completed())
    assert placed.last == 21
    assert [e.type for e in rig.store.events["s"] if e.ordinal] == [*(f"e{n}" for n in range(10)), "end"]
    assert rig.store.turns["t"].stored == 21


async def test_what_waits_is_bounded_by_count(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writers, "MAX_WAITING_DRAFTS", 4)
    rig.store.may_write.clear()
    writer = TurnWriter(rig.commit, "s", FENCE, written=0)
    assert writer.append([draft()] * 3) is None
    room = writer.append([draft()])
    assert room is not None
    again = writer.append([draft()])
    assert again is not None
    await settle()
    waiting = asyncio.ensure_future(room)
    await settle()
    assert not waiting.done()
    rig.store.may_write.set()
    await waiting
    await again
    assert writer.append([draft()]) is None


async def test_what_waits_is_bounded_by_bytes_but_one_draft_is_always_taken(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writers, "MAX_WAITING_BYTES", 1000)
    rig.store.may_write.clear()
    writer = TurnWriter(rig.commit, "s", FENCE, written=0)
    big = [draft("big", "x" * 5000)]
    first = writer.append(big)
    assert first is not None
    await rig.store.write_began.wait()
    second = asyncio.ensure_future(writer.append(big) or settle())
    rig.store.may_answer.clear()
    rig.store.may_write.set()
    await rig.store.write_done.wait()
    rig.store.may_write.clear()
    rig.store.write_began.clear()
    rig.store.may_answer.set()
    await rig.store.write_began.wait()
    await settle()
    assert not second.done(), "the first is stored, but the second alone fills the room"
    rig.store.may_write.set()
    await first
    await second
    assert len(rig.store.events["s"]) == 2


async def test_a_fenced_writer_says_so_once_and_writes_no_more(rig: Rig) -> None:
    calls: list[str] = []
    writer = TurnWriter(rig.commit, "s", FENCE, written=0, fenced=lambda: calls.append("fenced"))
    rig.store.turns["t"].epoch = 2
    rig.store.may_write.clear()
    writer.append([draft("late")])
    await rig.store.write_began.wait()
    writer.append([draft("later")])
    rig.store.may_write.set()
    with pytest.raises(Dropped):
        await writer.end([draft("end")], Ending.completed())
    assert writer.is_fenced
    assert calls == ["fenced"]
    assert writer.append([draft("latest")]) is None
    assert rig.store.events["s"] == []


async def test_a_writer_that_waits_for_room_is_let_go_when_it_is_fenced(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writers, "MAX_WAITING_DRAFTS", 2)
    rig.store.turns["t"].epoch = 2
    writer = TurnWriter(rig.commit, "s", FENCE, written=0)
    rig.store.may_write.clear()
    writer.append([draft()] * 2)
    await rig.store.write_began.wait()
    room = writer.append([draft()] * 5)
    assert room is not None
    rig.store.may_write.set()
    await room
    assert writer.is_fenced


async def test_nothing_follows_the_ending(rig: Rig) -> None:
    writer = TurnWriter(rig.commit, "s", FENCE, written=0)
    ended = writer.end([draft("end")], Ending.completed())
    assert writer.append([draft("late")]) is None
    await ended
    assert writer.append([draft("later")]) is None
    await settle()
    assert [event.type for event in rig.store.events["s"]] == ["end"]
