"""Group commit: durable first, then visible; nothing lost, nothing twice, nobody held up by a neighbour."""

import asyncio
import logging
from collections.abc import Sequence
from types import SimpleNamespace

import pytest

from app.events.ending import Ending
from app.events.envelope import Placed
from app.log import group_commit
from app.log.group_commit import GroupCommit
from app.log.logs import Logs
from app.log.store import Dropped, Fence, Strand
from app.log.writers import TurnWriter, append_event
from tests.log.conftest import Rig
from tests.log.storing import LaggingStore, Reader, delta, draft, keyed, settle


async def test_a_reader_sees_nothing_until_the_write_returns(rig: Rig) -> None:
    reader = Reader(rig.logs, "s", 0)
    await reader.has_joined.wait()
    rig.store.may_answer.clear()
    writing = asyncio.create_task(append_event(rig.commit, "s", draft("a")))
    await rig.store.write_done.wait()
    await settle()
    assert reader.places == []
    assert not writing.done()
    rig.store.may_answer.set()
    assert await reader.until(1) == [1]
    assert await writing == Placed(0, 0, 0, 1)
    await reader.leave()


async def test_what_arrives_during_a_write_forms_the_next_one(rig: Rig) -> None:
    rig.store.may_write.clear()
    first = asyncio.create_task(append_event(rig.commit, "s", draft("a")))
    await rig.store.write_began.wait()
    rest = [asyncio.create_task(append_event(rig.commit, s, draft("b"))) for s in ("s", "s2", "s")]
    await settle()
    assert rig.commit.waiting_drafts == 3
    rig.store.may_write.set()
    await asyncio.gather(first, *rest)
    assert [len(batch) for batch in rig.store.batches] == [1, 3]
    assert (rig.commit.events, rig.commit.writes, rig.commit.waiting_drafts) == (4, 2, 0)
    assert rig.commit.waited > 0


async def test_a_write_that_failed_is_sent_again_unchanged(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    rig.store.faults = ["before", "before"]
    reader = Reader(rig.logs, "s", 0)
    with caplog.at_level(logging.WARNING):
        await append_event(rig.commit, "s", draft("a"))
    assert await reader.until(1) == [1]
    assert rig.store.batches[0] == rig.store.batches[2]
    assert rig.commit.failures == 2
    assert rig.commit.is_storing
    assert "wait for the database" in caplog.text
    await reader.leave()


async def test_the_writer_outlives_an_error_that_nobody_has_foreseen(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    write, errors = rig.store.write, [RuntimeError("the handler is closed")]

    async def breaks_once(strands: Sequence[Strand]) -> list[Placed | None]:
        if errors:
            raise errors.pop()
        return await write(strands)

    monkeypatch.setattr(rig.store, "write", breaks_once)
    async with asyncio.timeout(60):
        assert (await append_event(rig.commit, "s", draft("a"))).last == 1
    assert rig.commit.failures == 1
    assert "RuntimeError: the handler is closed" in caplog.text


async def test_an_outage_begins_with_the_write_that_hangs_not_with_its_failure(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    monkeypatch.setattr(group_commit, "time", SimpleNamespace(monotonic=lambda: now))
    rig.store.faults = ["before"]
    rig.store.may_write.clear()
    writing = asyncio.create_task(append_event(rig.commit, "s", draft("a")))
    await rig.store.write_began.wait()
    now += 30
    rig.store.may_write.set()
    rig.store.may_write.clear()
    await settle()
    assert (rig.commit.failures, rig.commit.failing_for) == (1, 30.0)
    rig.store.may_write.set()
    assert (await writing).last == 1
    assert rig.commit.failing_for == 0


async def test_a_write_whose_answer_was_lost_is_shown_once(rig: Rig) -> None:
    rig.store.faults = ["after", "after"]
    reader = Reader(rig.logs, "s", 0)
    writer = TurnWriter(rig.commit, "s", Fence("t", 1), written=0)
    writer.append([delta("a"), draft("b")])
    placed = await append_event(rig.commit, "s", draft("c"))
    assert placed.last == 3
    assert await reader.until(3) == [1, 2, 3]
    assert (await writer.end([draft("end")], Ending.completed())).last == 4
    assert await reader.until(4) == [1, 2, 3, 4]
    assert [event.type for event in rig.store.events["s"]] == ["assistant_message_delta", "b", "c", "end"]
    await reader.leave()


async def test_the_last_event_of_a_session_is_known_although_its_answer_was_lost(rig: Rig) -> None:
    rig.store.faults = ["after"]
    reader = Reader(rig.logs, "s", 0)
    placed = await append_event(rig.commit, "s", draft("session_end"), closes_session=True)
    assert placed.last == 1
    await reader.task
    assert reader.places == [1]


async def test_a_rejected_strand_does_not_hold_up_the_others(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    rig.store.may_write.clear()
    first = asyncio.create_task(append_event(rig.commit, "s", draft("first")))
    await rig.store.write_began.wait()
    good, bad, other = (
        asyncio.create_task(append_event(rig.commit, session, draft(name)))
        for session, name in (("s", "good"), ("s", "bad"), ("s2", "other"))
    )
    await settle()
    rig.store.faults = ["reject", None, "reject"]  # the batch as a whole, then its second strand
    rig.store.may_write.set()
    assert (await first).last == 1
    assert (await good).last == 2
    assert (await other).last == 1
    with pytest.raises(Dropped, match="not this"):
        await bad
    assert "can't be stored" in caplog.text
    assert [event.type for event in rig.store.events["s"]] == ["first", "good"]


async def test_a_dropped_strand_is_told_so(rig: Rig) -> None:
    await append_event(rig.commit, "s", draft("session_end"), closes_session=True)
    with pytest.raises(Dropped):
        await append_event(rig.commit, "s", draft("late"))


async def test_a_strand_that_nobody_waits_for_is_written(rig: Rig) -> None:
    rig.commit.open(keyed("s"))
    await append_event(rig.commit, "s", draft("after"))
    assert len(rig.store.events["s"]) == 2


async def test_a_caller_that_went_away_does_not_disturb(rig: Rig) -> None:
    rig.store.may_write.clear()
    gone = [asyncio.create_task(append_event(rig.commit, session, draft())) for session in ("s", "none")]
    await rig.store.write_began.wait()
    for task in gone:
        task.cancel()
    await settle()
    rig.store.may_write.set()
    assert (await append_event(rig.commit, "s", draft())).last == 2


async def test_a_batch_is_bounded_but_takes_one_strand_at_least(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_commit, "MAX_BATCH_DRAFTS", 3)
    monkeypatch.setattr(group_commit, "MAX_BATCH_BYTES", 1000)
    for count, size in ((5, 0), (1, 0), (2, 0), (1, 999), (1, 999), (1, 5000), (1, 0)):
        strand = keyed("s", *[draft()] * count)
        strand.size = size
        rig.commit.open(strand)
    await append_event(rig.commit, "s2", draft())
    sizes = [[len(strand.drafts) for strand in batch] for batch in rig.store.batches]
    assert sizes == [[5], [1, 2], [1, 1], [1], [1, 1]]


async def test_stopping_tells_everyone_who_waits(rig: Rig) -> None:
    rig.store.may_write.clear()
    under_way = asyncio.create_task(append_event(rig.commit, "s", draft("a")))
    await rig.store.write_began.wait()
    queued = asyncio.create_task(append_event(rig.commit, "s", draft("b")))
    await settle()
    await rig.commit.stop()
    for task in (under_way, queued):
        with pytest.raises(Dropped, match="stopped"):
            await task
    assert rig.commit.waiting_drafts == 0


async def test_one_that_never_started_stops_too() -> None:
    store = LaggingStore()
    commit = GroupCommit(store, Logs(store))
    waiting = asyncio.create_task(append_event(commit, "s", draft()))
    await settle()
    await commit.stop()
    with pytest.raises(Dropped):
        await waiting
