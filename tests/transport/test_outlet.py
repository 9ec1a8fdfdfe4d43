"""An outlet and its cursor: in order, once each, whatever the connection does; and nobody is held up."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.errors import StorageUnavailable
from app.events.envelope import Envelope
from app.log import session_log
from app.log.logs import Logs
from app.log.session_log import Page, SessionLog
from app.log.store import Slice
from app.transport import outlet as outlets
from app.transport.cursor import Cursor, Start
from app.transport.outlet import Message, Outlet, ReaderTooSlow
from app.transport.readers import Readers, Registration, ServerStops
from app.transport.sse import ClientGone, cursor_frame, named_frame, opening_frame
from app.transport.websocket import INTERNAL_ERROR, SERVER_STOPS, TOO_SLOW, JoinedSessions, text
from tests.log.storing import Stores, draft, memory_stores
from tests.server import soon, until

BEGINNING = Start(0)


class Connection:
    """Takes messages, or refuses them while it is shut."""

    def __init__(self) -> None:
        self.taken: list[Any] = []
        self.is_open = asyncio.Event()
        self.is_open.set()
        self.error: Exception | None = None

    async def send(self, message: Message) -> None:
        if not self.is_open.is_set():
            await self.is_open.wait()
        if self.error is not None:
            raise self.error
        self.taken.append(message["said"])


def said(word: Any) -> Message:
    return {"said": word}


def places(pages: list[Page]) -> list[Message]:
    return [said(event.place) for page in pages for event in page.events]


class Session:
    """A session's log over the memory store."""

    def __init__(self, stores: Stores, session_id: str) -> None:
        self.stores = stores
        self.id = session_id
        self.log = SessionLog(session_id, stores.events, 1)

    @classmethod
    async def begun(cls) -> "Session":
        stores = memory_stores()
        return cls(stores, await stores.new_session())

    async def append(self, count: int, *, closes: bool = False) -> None:
        """Store events and show them."""
        drafts = [draft("session_end" if closes else "note") for _ in range(count)]
        placed = await self.stores.append(self.id, *drafts, closes=closes)
        assert placed is not None
        events = await self.stores.events.read(self.id, Slice(placed.after))
        self.log.show(Page(placed.after, placed.last, events))

    def outlet(self, connection: Connection, start: Start = BEGINNING, *, timeout: float = 5) -> Outlet:
        return Outlet(self.log, Cursor(self.log, start), connection.send, places, send_timeout=timeout)


async def test_what_becomes_visible_is_sent_in_the_same_breath() -> None:
    session, connection = await Session.begun(), Connection()
    outlet = session.outlet(connection, Start(1))
    outlet.open(lambda place: said(f"from {place}"))

    session.log.show(Page(1, 2, [Envelope(session.id, 2, 2, None, "note", 0, b"{}", b"{}")]))

    assert connection.taken == ["from 1", 2]
    assert outlet.sent == 2
    outlet.close()


async def test_a_connection_that_refuses_the_first_word_gets_all_in_order_later() -> None:
    session, connection = await Session.begun(), Connection()
    connection.is_open.clear()
    outlet = session.outlet(connection)

    outlet.open(lambda place: said(f"from {place}"))
    outlet.say(lambda place: said(f"at {place}"))
    await session.append(3)
    outlet.ping(said("left out"))
    assert outlet.sent == 0
    connection.is_open.set()
    await until(lambda: len(connection.taken) == 6)
    outlet.say(lambda place: said(f"at {place}"))

    assert connection.taken == ["from 0", 1, "at 1", 2, 3, 4, "at 4"]
    assert outlet.sent == 4
    outlet.close()


async def test_an_answer_that_is_refused_is_sent_later_and_the_end_is_found() -> None:
    session, connection = await Session.begun(), Connection()
    outlet = session.outlet(connection)
    outlet.open()
    await until(lambda: connection.taken == [1])

    connection.is_open.clear()
    outlet.say(lambda place: said(f"at {place}"))
    await session.append(1, closes=True)
    connection.is_open.set()

    assert await soon(outlet.closed) is None
    assert connection.taken == [1, "at 1", 2]


async def test_a_connection_that_breaks_closes_its_outlet_and_no_other() -> None:
    session, broken, whole = await Session.begun(), Connection(), Connection()
    pair = [session.outlet(connection, Start(1)) for connection in (broken, whole)]
    for outlet in pair:
        outlet.open()

    broken.error = OSError("gone")
    await session.append(2)

    assert await soon(pair[0].closed) is broken.error
    assert whole.taken == [2, 3]
    pair[1].close()
    assert session.log.readers == 0


async def test_a_connection_that_breaks_while_it_refuses_closes_its_outlet() -> None:
    session, connection = await Session.begun(), Connection()
    connection.is_open.clear()
    outlet = session.outlet(connection)
    outlet.open(lambda _: said("first"))

    connection.error = OSError("gone")
    connection.is_open.set()

    assert await soon(outlet.closed) is connection.error


async def test_a_connection_that_is_lost_before_the_first_word_closes_its_outlet_alone() -> None:
    session, connection = await Session.begun(), Connection()
    connection.error = OSError("gone")
    outlet = session.outlet(connection)
    outlet.open(lambda place: said(f"from {place}"))
    assert await soon(outlet.closed) is connection.error
    await session.append(1)
    assert connection.taken == []


async def test_a_connection_that_refuses_for_too_long_is_too_slow() -> None:
    session, connection = await Session.begun(), Connection()
    connection.is_open.clear()
    outlet = session.outlet(connection, timeout=0.05)

    outlet.open(lambda _: said("first"))

    assert isinstance(await soon(outlet.closed), ReaderTooSlow)
    assert connection.taken == []


async def test_a_closed_outlet_sends_nothing_more() -> None:
    session, connection = await Session.begun(), Connection()
    outlet = session.outlet(connection, Start(1))
    outlet.open()

    outlet.close(ServerStops())
    outlet.close()
    await session.append(1)
    outlet.say(lambda _: said("x"))

    assert isinstance(outlet.closed.result(), ServerStops)
    assert connection.taken == []


async def test_a_send_that_is_no_coroutine_is_awaited_too() -> None:
    session, taken = await Session.begun(), []
    waiting: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def send(message: Message) -> Awaitable[None]:
        taken.append(message["said"])
        return waiting

    outlet = Outlet(session.log, Cursor(session.log, Start(1)), send, places, send_timeout=5)
    outlet.open()
    await session.append(1)
    outlet.moved()
    waiting.set_result(None)
    await until(lambda: outlet.sent == 2)

    assert taken == [2]
    outlet.close()


async def test_a_reader_of_the_past_waits_for_the_database(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outlets, "STORE_PAUSE", 0.001)
    session, connection = await Session.begun(), Connection()
    read, failures = session.stores.events.read, iter(range(3))

    async def away_at_first(session_id: str, which: Slice) -> Sequence[Envelope]:
        if next(failures, None) is not None:
            raise StorageUnavailable("away")
        return await read(session_id, which)

    monkeypatch.setattr(session.stores.events, "read", away_at_first)
    outlet = session.outlet(connection)
    outlet.open()

    await until(lambda: connection.taken == [1])
    assert list(failures) == []
    outlet.close()


async def test_a_cursor_ends_with_its_turn_in_the_middle_of_a_page() -> None:
    session = await Session.begun()
    ends = ["note", "agent_run_end", "note"]
    events = [
        Envelope(session.id, 2 + n, 2 + n, "turn_x", kind, 0, b"{}", b"{}") for n, kind in enumerate(ends)
    ]
    cursor = Cursor(session.log, Start(1), "turn_x")
    session.log.show(Page(1, 4, events))

    pages = cursor.ready()

    assert pages is not None
    assert [event.place for page in pages for event in page.events] == [2, 3]
    assert cursor.place == 3
    assert cursor.is_over
    assert cursor.ready() == []


@settings(max_examples=60, deadline=None)
@given(
    moves=st.lists(
        st.sampled_from(["append", "append many", "shut", "open", "say", "ping", "yield"]), max_size=40
    ),
    begins=st.integers(0, 1),
)
async def test_every_event_is_sent_once_in_order_and_answers_name_their_true_place(
    moves: list[str], begins: int
) -> None:
    """Whatever the connection and the log do meanwhile, with a window of three events."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(session_log, "WINDOW_EVENTS", 3)
        session, connection = await Session.begun(), Connection()
        outlet = session.outlet(connection, Start(begins))
        outlet.open(lambda place: said(f"at {place}"))
        for move in moves:
            match move:
                case "append" | "append many":
                    await session.append(1 if move == "append" else 5)
                case "shut":
                    connection.is_open.clear()
                case "open":
                    connection.is_open.set()
                case "say":
                    outlet.say(lambda place: said(f"at {place}"))
                case "ping":
                    outlet.ping(said("ping"))
                case _:
                    await asyncio.sleep(0)
            # What the connection was not given yet must not count as sent.
            taken = [word for word in connection.taken if isinstance(word, int)]
            assert outlet.sent <= (taken[-1] if taken else begins)
        connection.is_open.set()
        await until(lambda: outlet._worker is None)
        answers = [word for word in connection.taken if str(word).startswith("at")]
        assert len(answers) == 1 + moves.count("say"), "an answer waits for the next event"
        await session.append(1, closes=True)
        assert await soon(outlet.closed) is None

    events = [word for word in connection.taken if isinstance(word, int)]
    assert events == list(range(begins + 1, session.log.head + 1))
    last = begins
    for word in connection.taken:
        if isinstance(word, int):
            last = word
        elif word != "ping":
            assert word == f"at {last}"


# ── the registry ─────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_drain_closes_readers_but_those_that_end_by_themselves() -> None:
    session, readers, told = await Session.begun(), Readers(ping_interval=1), []
    plain, own = session.outlet(Connection()), session.outlet(Connection())
    readers.add(Registration(plain, None))
    readers.add(Registration(own, None, ends_by_itself=True))
    readers.on_drain(lambda: told.append("before"))

    readers.drain()
    late, late_own = session.outlet(Connection()), session.outlet(Connection())
    readers.add(Registration(late, None))
    readers.add(Registration(late_own, None, ends_by_itself=True))
    readers.on_drain(lambda: told.append("after"))

    assert [outlet.closed.done() for outlet in (plain, own, late, late_own)] == [True, False, True, False]
    assert told == ["before", "after"]
    assert len(readers) == 4
    await readers.stop()
    assert isinstance(own.closed.result(), ServerStops), "at the very end they are closed, too"


async def test_what_is_forgotten_is_not_told() -> None:
    readers, told = Readers(ping_interval=1), []

    def tell() -> None:
        told.append("x")

    readers.on_drain(tell)
    readers.forget(tell)
    readers.start()
    await readers.stop()

    assert told == []


# ── a socket's sessions ──────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("reason", "code"),
    [(ReaderTooSlow(), TOO_SLOW), (ServerStops(), SERVER_STOPS), (OSError("gone"), INTERNAL_ERROR)],
)
async def test_the_first_reason_to_end_is_the_sockets_close_code(reason: Exception, code: int) -> None:
    stores = memory_stores()
    logs, readers = Logs(stores.events), Readers(ping_interval=1)
    closing: list[Callable[[], None]] = []

    async def send(_: Message) -> None:
        raise reason

    joined = JoinedSessions(
        send, logs, readers, spell=lambda events: [event.data for event in events], send_timeout=1
    )
    for _ in range(2):
        session_id = await stores.new_session()
        joined.join(await logs.take(session_id), Start(0))
        assert session_id in joined
    assert await soon(joined.broken) == code
    await until(lambda: len(readers) == 0)

    assert list(logs) == []
    assert closing == []
    joined.leave_all()


async def test_nothing_is_said_of_a_session_that_is_not_joined() -> None:
    stores = memory_stores()
    logs = Logs(stores.events)
    connection = Connection()
    joined = JoinedSessions(
        connection.send,
        logs,
        Readers(ping_interval=1),
        spell=lambda events: [event.data for event in events],
        send_timeout=1,
    )

    assert joined.say("sess_x", lambda _: said("x")) is False
    assert connection.taken == []


# ── frames ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_frames_are_what_the_html_standard_says() -> None:
    assert named_frame(b"1", b"n", b"{}") == b"id: 1\nevent: n\ndata: {}\n\n"
    assert cursor_frame(b"1") == b"id: 1\n\n"
    assert opening_frame(b"1", 2000) == b"retry: 2000\nid: 1\n\n"
    assert text("é".encode()) == {"type": "websocket.send", "text": "é"}
    assert issubclass(ClientGone, Exception)


async def test_silence_is_measured_by_what_was_sent_and_each_reader_has_its_patience() -> None:
    """A page that becomes no message is silence, too; a ping may be made when it is due."""
    session, readers = await Session.begun(), Readers(ping_interval=1000)
    connections = [Connection(), Connection()]
    impatient, patient = (
        Outlet(session.log, Cursor(session.log, Start(1)), each.send, lambda _: [], send_timeout=5)
        for each in connections
    )
    readers.add(Registration(impatient, lambda: said("made"), patience=5))
    readers.add(Registration(patient, said("kept")))
    for outlet in (impatient, patient):
        outlet.open()
        outlet.last_sent -= 10
    heard = impatient.last_sent
    await session.append(2)

    assert (impatient.cursor.place, impatient.last_sent) == (session.log.head, heard)
    readers._ping_the_silent()

    assert [connection.taken for connection in connections] == [["made"], []]
    assert impatient.last_sent > heard
    impatient.close()
    patient.close()
