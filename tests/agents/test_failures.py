"""What an exception becomes: by class and status along its causes, without keys, and not retryable once shown."""

import asyncio
from collections.abc import AsyncGenerator

import pytest

from app.agents.adapters.failures import AgentFailure, failure, guarded, of_status
from app.agents.contract import AgentEvent
from app.errors import StorageUnavailable
from tests.agents.driving import text


class OfStatus(Exception):
    def __init__(self, status: object) -> None:
        self.status_code = status


class OfCode(Exception):
    def __init__(self, code: object) -> None:
        self.code = code


class APIConnectionError(Exception):
    pass


class ConnectTimeout(TimeoutError):
    pass


def caused(cause: Exception) -> Exception:
    error = ValueError("outer")
    error.__cause__ = cause
    return error


def in_a_circle() -> Exception:
    one, two = ValueError(), KeyError()
    one.__cause__, two.__cause__ = two, one
    return one


@pytest.mark.parametrize(
    ("error", "code", "retryable"),
    [
        (OfStatus(429), "rate_limited", True),
        (OfStatus(408), "provider_timeout", True),
        (OfStatus(500), "provider_unavailable", True),
        (OfStatus(404), "bad_provider_request", False),
        (OfStatus(200), "agent_exception", False),
        (OfStatus("429"), "agent_exception", False),
        (OfCode(503), "provider_unavailable", True),
        (OfCode("ENOENT"), "agent_exception", False),
        (APIConnectionError(), "provider_unavailable", True),
        (ConnectTimeout(), "provider_timeout", True),
        (ConnectionResetError(), "provider_unavailable", True),
        (ValueError(), "agent_exception", False),
        (caused(OfStatus(401)), "authentication_failed", False),
        (caused(caused(ConnectionRefusedError())), "provider_unavailable", True),
        (in_a_circle(), "agent_exception", False),
        (ExceptionGroup("wrapped", [OfStatus(429)]), "rate_limited", True),
        (AgentFailure("no", "mine", retryable=True), "mine", True),
        (StorageUnavailable("away"), "storage_unavailable", True),
    ],
)
def test_the_class_and_the_status_decide(error: Exception, code: str, retryable: bool) -> None:
    told = failure(error, has_shown=False)
    assert (told["code"], told["retryable"]) == (code, retryable)
    assert failure(error, has_shown=True)["retryable"] is False


def test_our_own_reasons_are_told_as_they_are_and_others_with_their_class() -> None:
    assert failure(AgentFailure("too much", "x"), has_shown=False)["details"] == "too much"
    assert failure(ValueError("too much"), has_shown=False)["details"] == "ValueError: too much"


def test_keys_and_books_are_kept_out_of_the_details() -> None:
    told = failure(ValueError("bad key sk-abcdef123456 " + "x" * 5_000), has_shown=False)["details"]
    assert "sk-abc" not in told
    assert len(told) == 2_000


def test_a_status_has_one_meaning() -> None:
    assert of_status(413) == ("context_length_exceeded", False)


@pytest.mark.parametrize(
    ("first", "retryable"),
    [
        (text("a"), False),
        ({"type": "tool_started", "id": "1", "name": "n", "args": {}}, False),
        ({"type": "thinking", "delta": "hm"}, True),
    ],
)
async def test_what_was_shown_or_done_is_not_to_be_repeated(first: AgentEvent, retryable: bool) -> None:
    async def agent() -> AsyncGenerator[AgentEvent, None]:
        yield first
        raise ConnectionError

    events = [event async for event in guarded(agent())]
    assert events[0] == first
    assert events[1]["retryable"] is retryable


async def test_to_a_reader_that_has_left_nothing_is_said() -> None:
    async def agent() -> AsyncGenerator[AgentEvent, None]:
        try:
            yield text("a")
        finally:
            raise ValueError("clean-up")

    events = guarded(agent())
    assert await anext(events) == text("a")
    with pytest.raises(ValueError, match="clean-up"):
        await events.aclose()


async def test_nor_to_one_that_is_being_cancelled() -> None:
    said: list[AgentEvent] = []
    is_waiting = asyncio.Event()

    async def agent() -> AsyncGenerator[AgentEvent, None]:
        yield text("a")
        is_waiting.set()
        try:
            await asyncio.Event().wait()
        finally:
            raise ValueError("clean-up")

    async def read() -> None:
        async for event in guarded(agent()):
            said.append(event)  # noqa: PERF401 - what was said before it raises counts, too

    task = asyncio.create_task(read())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(ValueError, match="clean-up"):
        await task
    assert said == [text("a")]
