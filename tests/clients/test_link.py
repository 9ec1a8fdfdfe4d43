import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tarko_client import Backoff, ClientError, ConnectionLost, ConnectionState, NoServer, NotTarko, Refused
from tarko_client.link import Link, delay
from tarko_client.reading import Frame


def refused(status: int | None, code: str = "c", retry_after: float | None = None) -> Refused:
    return Refused("No.", code=code, http_status=status, retry_after=retry_after)


@settings(deadline=None)
@given(
    st.floats(0, 100),
    st.integers(0, 10_000),
    st.floats(0, 1),
    st.floats(0, 100),
    st.none() | st.floats(0, 100),
)
def test_a_pause_is_bounded_and_never_shorter_than_asked(
    base: float, failures: int, jitter: float, retry: float, retry_after: float | None
) -> None:
    seconds = delay(base, failures, jitter, longest=30, retry=retry, retry_after=retry_after)
    asked = retry_after or 0
    assert max(asked, retry) <= seconds <= max(asked + 30, retry)


def test_a_pause_is_spread_by_jitter_and_grows() -> None:
    assert delay(1, 0, 0.0, longest=30) == 0.5
    assert delay(1, 0, 1.0, longest=30) == 1.0
    assert delay(1, 3, 1.0, longest=30, retry_after=7.0) == 15.0
    assert delay(1, 9, 1.0, longest=30) == 30.0


@pytest.mark.parametrize("asked", [3601.0, 1e300, float("inf")])
def test_nobody_asks_for_more_than_an_hour(asked: float) -> None:
    assert 3600 <= delay(1, 0, 1.0, longest=30, retry_after=asked) <= 3630
    link = Link(Backoff(), jitter=lambda: 1.0)
    link.take(Frame(retry=10**400))
    assert link.lost(NoServer("gone")) == 3600


def test_the_server_says_how_long_to_wait_and_failures_double_it() -> None:
    link = Link(Backoff(), jitter=lambda: 1.0)
    link.take(Frame(retry=500))
    waits = [link.lost(NoServer("gone")) for _ in range(3)]
    link.take(Frame(retry=250))  # says when, but is no sign of life
    waits.append(link.lost(NoServer("gone")))
    link.take(Frame(cursor="e_1"))
    waits.append(link.lost(NoServer("gone")))
    assert waits == [0.5, 1.0, 2.0, 2.0, 0.25]


@pytest.mark.parametrize(
    "loss",
    [
        ConnectionLost("a"),
        NoServer("a"),
        refused(503),
        refused(None, "storage_unavailable"),
        refused(None, "server_shutdown"),
        refused(502, "bad_gateway"),
        refused(429, "bad_gateway"),
    ],
)
def test_what_may_pass_is_waited_out(loss: ClientError) -> None:
    assert Link(Backoff(base=2), jitter=lambda: 0.0).lost(loss) == 1.0


@pytest.mark.parametrize(
    "loss",
    [
        refused(404),
        refused(400, "cursor_ahead"),
        refused(409, "session_busy"),
        refused(429, "queue_full"),
        refused(502, "agent_failed"),
        refused(None, "session_deleted"),
        NotTarko("?"),
    ],
)
def test_what_will_not_change_is_raised_at_once(loss: ClientError) -> None:
    with pytest.raises(type(loss)):
        Link(Backoff()).lost(loss)


def test_patience_ends_after_so_many_failures_in_a_row() -> None:
    link = Link(Backoff(tries=2))
    for _ in range(2):
        link.lost(ConnectionLost("a"))
        link.lost(ConnectionLost("b"))
        with pytest.raises(ConnectionLost, match="c"):
            link.lost(ConnectionLost("c"))
        link.heard()


def test_an_onlooker_is_told_each_change_once() -> None:
    told: list[ConnectionState] = []
    link = Link(Backoff(), told.append, jitter=lambda: 0.0)
    loss = refused(503, retry_after=4.0)
    link.connecting()
    link.heard()
    link.heard()
    link.lost(loss)
    link.connecting()
    link.heard()
    link.closed()
    assert told == [
        ConnectionState("connecting"),
        ConnectionState("live"),
        ConnectionState("waiting", loss, 4.5),
        ConnectionState("connecting"),
        ConnectionState("live"),
        ConnectionState("closed"),
    ]
