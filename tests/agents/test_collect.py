"""The buffered reading of the specification."""

from collections.abc import AsyncIterator

import pytest

from app.agents.collect import AgentFailure, Collected, MissingTerminal, collect
from app.agents.contract import AgentEvent
from tests.agents.driving import COMPLETED, text


class Stream:
    """Yields what it is given, and knows whether it was closed."""

    def __init__(self, *events: AgentEvent) -> None:
        self._events = events
        self.is_closed = False

    async def read(self) -> AsyncIterator[AgentEvent]:
        try:
            for event in self._events:
                yield event
        finally:
            self.is_closed = True


class Unclosable:
    def __init__(self, *events: AgentEvent) -> None:
        self._events = iter(events)

    def __aiter__(self) -> "Unclosable":
        return self

    async def __anext__(self) -> AgentEvent:
        return next(self._events)


async def test_the_answer_is_all_text_joined_without_thinking_and_unknown_events() -> None:
    stream = Stream(
        text("a"), {"type": "thinking", "delta": "no"}, {"type": "unheard_of"}, text("b"), COMPLETED
    )
    assert await collect(stream.read()) == Collected("ab", None)
    assert stream.is_closed


async def test_structured_data_rides_on_completed() -> None:
    assert (await collect(Stream({"type": "completed", "data": {"x": 1}}).read())).data == {"x": 1}


async def test_failed_is_raised_with_its_fields() -> None:
    failed = {"type": "failed", "details": "no luck", "retryable": True, "code": "luck"}
    stream = Stream(text("a"), failed, text("b"))
    with pytest.raises(AgentFailure, match="no luck") as caught:
        await collect(stream.read())
    assert (caught.value.details, caught.value.retryable, caught.value.code) == ("no luck", True, "luck")
    assert stream.is_closed


async def test_a_failed_without_code_has_none() -> None:
    with pytest.raises(AgentFailure) as caught:
        await collect(Stream({"type": "failed", "details": "d", "retryable": False}).read())
    assert caught.value.code is None


async def test_a_missing_terminal_is_an_error() -> None:
    with pytest.raises(MissingTerminal, match="without a terminal event"):
        await collect(Stream(text("a")).read())


async def test_an_iterator_that_can_not_be_closed_is_read_all_the_same() -> None:
    assert await collect(Unclosable(text("a"), COMPLETED)) == Collected("a")
