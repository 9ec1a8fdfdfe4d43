"""A session's log as readers see it: every place once and in order, whoever wrote it and whenever they came."""

import asyncio
from collections.abc import Sequence
from contextlib import aclosing

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from app.errors import SessionNotFound
from app.events.envelope import Envelope, Placed
from app.log import group_commit, session_log
from app.log.group_commit import GroupCommit
from app.log.logs import Logs
from app.log.session_log import Page, SessionLog
from app.log.store import Head, MemoryEventStore, Slice, Strand
from app.log.writers import append_event
from tests.log.conftest import Rig
from tests.log.storing import LaggingStore, Reader, delta, draft, keyed, no_complaints, settle


def event(place: int, data: bytes = b"{}", turn_id: str | None = None, event_type: str = "note") -> Envelope:
    return Envelope("s", place, place, turn_id, event_type, 1000, data, b"{}")


def page(after: int, upto: int) -> Page:
    return Page(after, upto, [event(place) for place in range(after + 1, upto + 1)])


async def foreign(rig: Rig, count: int = 1) -> None:
    """Another process writes: nobody here is told."""
    await MemoryEventStore.write(rig.store, [keyed("s", *[draft("foreign")] * count)])


async def test_a_gap_by_another_writer_is_read_before_more_is_shown(rig: Rig) -> None:
    reader = Reader(rig.logs, "s", 0)
    await append_event(rig.commit, "s", draft("mine"))
    await reader.until(1)
    await foreign(rig, 2)
    rig.store.may_read.clear()
    rig.store.read_began.clear()
    await append_event(rig.commit, "s", draft("mine"))
    await rig.store.read_began.wait()
    await append_event(rig.commit, "s", draft("mine"))
    await settle()
    assert reader.places == [1]
    rig.store.may_read.set()
    assert await reader.until(5) == [1, 2, 3, 4, 5]
    await reader.leave()


async def test_a_gap_is_read_again_while_the_database_is_away(rig: Rig) -> None:
    reader = Reader(rig.logs, "s", 0)
    await reader.has_joined.wait()
    await foreign(rig)
    rig.store.read_faults = 2
    await append_event(rig.commit, "s", draft("mine"))
    assert await reader.until(2) == [1, 2]
    await reader.leave()


async def test_a_gap_whose_events_were_removed_is_passed(rig: Rig) -> None:
    log = SessionLog("s", rig.store, 0)
    log.catch_up(7)
    await settle()
    assert log.head == 7
    assert log.recent(0) is not None


async def test_a_page_from_before_the_head_is_known_already(rig: Rig) -> None:
    log = SessionLog("s", rig.store, 5)
    log.show(page(3, 5))
    assert log.head == 5
    log.show(page(5, 6))
    assert log.head == 6


async def test_an_opening_misses_nothing_that_becomes_durable_meanwhile(rig: Rig) -> None:
    rig.store.may_read.clear()
    reader = Reader(rig.logs, "s", 0)
    await rig.store.read_began.wait()
    await append_event(rig.commit, "s", draft("while the head is on its way"))
    rig.store.may_read.set()
    assert await reader.until(1) == [1]
    await reader.leave()


async def test_two_openings_at_once_share_one_log(rig: Rig) -> None:
    rig.store.may_read.clear()
    one, two = Reader(rig.logs, "s", 0), Reader(rig.logs, "s", 0)
    await settle()
    rig.store.may_read.set()
    await asyncio.gather(one.has_joined.wait(), two.has_joined.wait())
    [log] = rig.logs
    assert log.readers == 2
    await one.leave()
    assert log.readers == 1
    await two.leave()
    assert list(rig.logs) == []


async def test_a_session_that_is_not_there_cannot_be_opened(rig: Rig) -> None:
    with pytest.raises(SessionNotFound):
        async with rig.logs.open("none"):
            pass
    assert list(rig.logs) == []


async def test_what_happens_in_a_session_without_readers_is_shown_to_nobody(rig: Rig) -> None:
    await append_event(rig.commit, "s", draft("a"))
    assert list(rig.logs) == []


async def test_the_last_lease_lets_go_of_a_log_that_catches_up(rig: Rig) -> None:
    await foreign(rig)
    log = rig.logs.lease("s", 0)
    rig.store.may_read.clear()
    log.catch_up(1)
    await settle()
    rig.logs.release("s")
    await settle()
    assert log.head == 0
    assert log._catching_up is None


async def test_the_window_keeps_the_newest_and_a_late_reader_reads_the_rest_from_the_store(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_log, "WINDOW_EVENTS", 5)
    first = Reader(rig.logs, "s", 0)
    for n in range(20):
        await append_event(rig.commit, "s", draft(f"e{n}"))
    await first.until(20)
    [log] = rig.logs
    assert log.recent(14) is None
    assert log.recent(15) is not None
    rig.store.read_began.clear()
    late = Reader(rig.logs, "s", 0)
    assert await late.until(20) == list(range(1, 21))
    assert rig.store.read_began.is_set()
    assert first.seen == late.seen
    await first.leave()
    await late.leave()


async def test_what_the_window_has_is_not_read_again(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """The newest page may be a message of many megabytes, which every slow reader passes on its way."""
    monkeypatch.setattr(session_log, "WINDOW_EVENTS", 2)
    for n in range(7):
        await append_event(rig.commit, "s", draft(f"e{n}"))
    log = SessionLog("s", rig.store, 0)
    log.show(Page(0, 6, await rig.store.read("s", Slice(0, 6))))
    log.show(Page(6, 7, await rig.store.read("s", Slice(6, 7))))
    assert log.recent(2) is None
    assert [event.place for event in (await log.read(Slice(2))).events] == [3, 4, 5, 6]
    assert [event.place for event in (await log.read(Slice(6))).events] == [7]


async def test_the_window_is_bounded_by_bytes_but_keeps_one_page(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_log, "WINDOW_BYTES", 100)
    log = SessionLog("s", rig.store, 0)
    log.show(page(0, 1))
    log.show(Page(1, 2, [event(2, b'"' + b"x" * 5000 + b'"')]))
    assert log.recent(0) is None
    assert [each.upto for each in log.recent(1) or ()] == [2]


async def test_a_cursor_in_the_middle_of_a_page_gets_its_rest(rig: Rig) -> None:
    log = SessionLog("s", rig.store, 0)
    log.show(page(0, 2))
    log.show(page(2, 5))
    log.show(page(5, 6))
    assert [(each.after, each.upto, len(each.events)) for each in log.recent(3) or ()] == [
        (3, 5, 2),
        (5, 6, 1),
    ]
    assert log.recent(6) == []
    assert log.recent(99) == []


async def test_a_cursor_beyond_the_head_waits_for_its_place(rig: Rig) -> None:
    reader = Reader(rig.logs, "s", 3)
    await reader.has_joined.wait()
    await settle()
    for _ in range(5):
        await append_event(rig.commit, "s", draft())
    assert await reader.until(5) == [4, 5]
    await reader.leave()


async def test_following_ends_with_the_session(rig: Rig) -> None:
    reader = Reader(rig.logs, "s", 0)
    await append_event(rig.commit, "s", draft("a"))
    await append_event(rig.commit, "s", draft("session_end"), closes_session=True)
    await reader.task
    assert reader.places == [1, 2]
    late = Reader(rig.logs, "s", 1)
    await late.task
    assert late.places == [2]


async def test_a_read_tells_how_far_it_reached(rig: Rig) -> None:
    await foreign(rig, 6)
    async with rig.logs.open("s") as log:
        whole = await log.read(Slice(2))
        assert (whole.after, whole.upto, len(whole.events)) == (2, 6, 4)
        cut = await log.read(Slice(2, limit=2))
        assert (cut.after, cut.upto, len(cut.events)) == (2, 4, 2)
        part = await log.read(Slice(2, 3))
        assert (part.after, part.upto) == (2, 3)
        none = await log.read(Slice(6, 9))
        assert (none.upto, none.events) == (9, [])


async def test_a_page_is_encoded_once_in_each_spelling() -> None:
    calls: list[int] = []

    def joined(events: Sequence[Envelope]) -> bytes:
        calls.append(len(events))
        return b"".join(b"<%d>" % event.place for event in events)

    def each(events: Sequence[Envelope]) -> list[bytes]:
        calls.append(len(events))
        return [b"<%d>" % event.place for event in events]

    whole = page(0, 3)
    assert whole.encoded(joined) == whole.encoded(joined) == b"<1><2><3>"
    assert whole.encoded(each) == whole.encoded(each) == [b"<1>", b"<2>", b"<3>"]
    assert calls == [3, 3]


async def test_a_page_knows_which_turns_end_in_it() -> None:
    ending = Page(0, 2, [event(1, turn_id="t"), event(2, turn_id="t", event_type="agent_run_end")])
    assert ending.end_of("t") == 2
    assert ending.end_of("u") is None
    assert ending.end_of("t") == 2
    assert [each.place for each in ending.until(1).events] == [1]


async def test_a_shared_read_that_fails_when_all_who_asked_have_left_is_no_fault(rig: Rig) -> None:
    await append_event(rig.commit, "s", draft("a"))
    async with rig.logs.open("s") as log:
        rig.store.may_read.clear()
        rig.store.read_began.clear()
        rig.store.read_faults = 1
        asking = asyncio.create_task(log.read(Slice(0)))
        async with asyncio.timeout(60):
            await rig.store.read_began.wait()
        with no_complaints():
            asking.cancel()
            await asyncio.wait({asking})
            rig.store.may_read.set()
            await settle()
        assert rig.store.read_faults == 0


class JitteryStore(LaggingStore):
    """Each call takes some turns of the loop before and after, as many as it is told."""

    def __init__(self, jitter: list[int]) -> None:
        super().__init__()
        self._jitter = jitter
        self._n = 0

    async def _wait(self) -> None:
        self._n += 1
        await settle(self._jitter[self._n % len(self._jitter)])

    async def write(self, strands: Sequence[Strand]) -> list[Placed | None]:
        await self._wait()
        try:
            return await super().write(strands)
        finally:
            await self._wait()

    async def head(self, session_id: str) -> Head | None:
        await self._wait()
        head = await super().head(session_id)
        await self._wait()
        return head

    async def read(self, session_id: str, which: Slice) -> list[Envelope]:
        await self._wait()
        events = await super().read(session_id, which)
        await self._wait()
        return events


STEPS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["own", "foreign", "wait"]), st.integers(1, 6)),
        st.tuples(st.sampled_from(["join", "leave"]), st.integers(0, 12)),
        st.tuples(st.sampled_from(["before", "after", "unreadable"]), st.just(1)),
    ),
    min_size=3,
    max_size=25,
)


async def play(
    steps: list[tuple[str, int]], store: JitteryStore, logs: Logs, commit: GroupCommit
) -> list[Reader]:
    """Take the steps; returns everyone who reads or has read."""
    readers: list[Reader] = []
    for step, count in steps:
        match step:
            case "own":
                commit.open(keyed("s", *[draft("own"), delta()] * count))
            case "foreign":
                await MemoryEventStore.write(store, [keyed("s", *[draft("foreign")] * count)])
            case "wait":
                await settle(count)
            case "join":
                readers.append(Reader(logs, "s", count))
            case "leave" if readers:
                readers[count % len(readers)].task.cancel()
            case "unreadable":
                store.read_faults = count
            case "before" | "after":
                store.faults.append(step)
            case _:
                pass
    return [*readers, Reader(logs, "s", 0)]


@settings(max_examples=150, deadline=None)
@given(steps=STEPS, jitter=st.lists(st.integers(0, 5), min_size=1, max_size=7), window=st.integers(1, 5))
async def test_readers_that_join_at_any_time_see_the_same_sequence(
    steps: list[tuple[str, int]], jitter: list[int], window: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(group_commit, "RETRY_PAUSE", 0)
        patch.setattr(group_commit, "PACE", 0)
        patch.setattr(session_log, "CATCH_UP_PAUSE", 0)
        patch.setattr(session_log, "WINDOW_EVENTS", window)
        store = JitteryStore(jitter)
        store.open_session("s")
        logs = Logs(store)
        commit = GroupCommit(store, logs)
        commit.start()
        readers = await play(steps, store, logs, commit)
        async with asyncio.timeout(60):
            await append_event(commit, "s", draft("session_end"), closes_session=True)
            await asyncio.wait([reader.task for reader in readers])
        await commit.stop()
        log = store.events["s"]
        assert [event.place for event in log] == list(range(1, len(log) + 1))
        for reader in readers:
            seen = len(reader.seen) if reader.task.cancelled() else len(log)
            assert reader.seen == log[reader.after :][:seen]
        assert list(logs) == []


async def test_a_page_that_a_reader_holds_is_not_changed_by_what_follows(rig: Rig) -> None:
    async with rig.logs.open("s") as log, aclosing(log.follow(0)) as pages:
        await append_event(rig.commit, "s", draft("a"))
        first = await anext(pages)
        await append_event(rig.commit, "s", draft("b"))
        assert [each.type for each in first.events] == ["a"]
        assert [each.type for each in (await anext(pages)).events] == ["b"]
