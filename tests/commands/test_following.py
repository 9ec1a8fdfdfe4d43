from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest
from httpx_sse import ServerSentEvent
from hypothesis import given, settings
from hypothesis import strategies as st

from app.commands.failures import ConnectionLost, NoServer, Refused
from app.commands.following import LONGEST_PAUSE, Comeback, Follower, Frames, Position, delay
from app.commands.received import Received
from tests.commands.scripted_server import event


@dataclass
class BreakingLog:
    """A log of some events, each of whose connections breaks after so many frames."""

    length: int
    breaks: list[int] = field(default_factory=list)

    @contextmanager
    def connect(self, position: Position) -> Iterator[Iterator[ServerSentEvent]]:
        yield self._frames(position, self.breaks.pop(0) if self.breaks else None)

    def _frames(self, position: Position, left: int | None) -> Iterator[ServerSentEvent]:
        begin = int(position.last_id or 0)
        frames = [ServerSentEvent(id=str(begin), retry=10)]
        for place in range(begin + 1, self.length + 1):
            kind = "session_end" if place == self.length else "user_feedback"
            frames.append(ServerSentEvent(id=str(place), data=event(place, kind).decode()))
        yield from frames[:left]
        if left is not None and left % 2:
            raise ConnectionLost("broken")


def follow(connect: Callable[[Position], Frames], comeback: Comeback) -> list[int]:
    follower = Follower(connect, lambda each: each.type == "session_end", comeback)
    return [int(each.id.rpartition("_")[2]) for each in follower.events()]


@settings(deadline=None)
@given(st.integers(1, 8), st.lists(st.integers(0, 9), max_size=8))
def test_every_event_is_read_once_wherever_connections_break(length: int, breaks: list[int]) -> None:
    log = BreakingLog(length, [min(each, length) for each in breaks])
    assert follow(log.connect, Comeback(pause=lambda seconds: None)) == [*range(1, length + 1)]


def test_the_server_says_how_long_to_wait_and_failures_double_it() -> None:
    waits: list[float] = []
    losses = iter([NoServer("gone"), NoServer("gone")])

    @contextmanager
    def connect(position: Position) -> Iterator[Iterator[ServerSentEvent]]:
        if position.last_id is None:
            yield iter([ServerSentEvent(id="1", retry=500)])
        else:
            if (loss := next(losses, None)) is not None:
                raise loss
            yield iter([ServerSentEvent(data=event(2, "session_end").decode())])

    assert follow(connect, Comeback(pause=waits.append, jitter=lambda: 1.0)) == [2]
    assert waits == [0.5, 1.0, 2.0]


@settings(deadline=None)
@given(st.floats(0, 100), st.integers(0, 10_000), st.floats(0, 1), st.none() | st.floats(0, 100))
def test_a_pause_is_bounded_and_never_shorter_than_asked(
    base: float, failures: int, jitter: float, retry_after: float | None
) -> None:
    seconds = delay(base, failures, jitter, retry_after)
    least = retry_after or 0
    assert least <= seconds <= least + LONGEST_PAUSE


def test_a_pause_is_spread_by_jitter() -> None:
    assert delay(1, 0, 0.0) == 0.5
    assert delay(1, 0, 1.0) == 1.0
    assert delay(1, 3, 1.0, 7.0) == 15.0


def refused(status: int, retry_after: float | None = None) -> Refused:
    return Refused("No.", code="c", http_status=status, retry_after=retry_after)


def test_a_temporary_refusal_is_waited_out_as_long_as_it_asks() -> None:
    waits: list[float] = []
    told: list[str] = []
    comeback = Comeback(notice=told.append, pause=waits.append, jitter=lambda: 0.0)
    comeback.wait(refused(503, 4.0))
    assert waits == [4.5]
    assert told == ["No. Coming back in 4.5 s."]


@pytest.mark.parametrize("loss", [refused(404), refused(400), NoServer("nobody")])
def test_what_will_not_change_is_raised_at_once(loss: ConnectionLost | Refused) -> None:
    with pytest.raises(type(loss)):
        Comeback(pause=lambda seconds: pytest.fail("waited")).wait(loss)


def test_patience_ends_after_so_many_failures_in_a_row() -> None:
    comeback = Comeback(tries=2, pause=lambda seconds: None)
    for _ in range(2):
        comeback.wait(ConnectionLost("a"))
        comeback.wait(ConnectionLost("b"))
        with pytest.raises(ConnectionLost):
            comeback.wait(ConnectionLost("c"))
        comeback.began()


def test_an_event_in_hand_when_the_reader_stops_counts_as_unseen() -> None:
    follower = Follower(BreakingLog(3).connect, lambda each: False, Comeback())
    events = follower.events()
    assert isinstance(next(events), Received)
    events.close()
    assert follower.position.headers == {"Last-Event-ID": "0"}
