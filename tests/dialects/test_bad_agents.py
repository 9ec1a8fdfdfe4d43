"""Agents that break the contract in every way: their turn has a stated outcome, and nobody else notices."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from app.agents.contract import AgentEvent, Prompt, Scope
from tests.conftest import Server, own_database
from tests.server import (
    COMPLETED,
    Client,
    Serving,
    Step,
    places,
    said,
    saying,
    serving,
    short_bounds,
    soon,
    types,
)

FAILED: AgentEvent = {"type": "failed", "details": "no", "retryable": False, "code": "no"}


@pytest.fixture(scope="module")
async def shared(embedded_server: Server) -> AsyncIterator[Serving]:
    """A server that is impatient with agents."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("app.wiring.Limits", short_bounds())
        async with own_database(embedded_server) as url, serving(url) as server:
            yield server


async def raises_at_first(_: Scope, __: Prompt) -> AsyncIterator[AgentEvent]:
    raise RuntimeError("first line")
    yield COMPLETED


async def raises_later(_: Scope, __: Prompt) -> AsyncIterator[AgentEvent]:
    yield said("kept")
    raise ValueError("later")


async def exits(_: Scope, __: Prompt) -> AsyncIterator[AgentEvent]:
    yield said("kept")
    raise SystemExit(3)


async def interrupts(_: Scope, __: Prompt) -> AsyncIterator[AgentEvent]:
    yield said("kept")
    raise KeyboardInterrupt


async def raises_something_basic(_: Scope, __: Prompt) -> AsyncIterator[AgentEvent]:
    class Basic(BaseException):
        pass

    yield said("kept")
    raise Basic("basic")


async def cancels_itself(_: Scope, __: Prompt) -> AsyncIterator[AgentEvent]:
    yield said("kept")
    raise asyncio.CancelledError


async def goes_on_after_the_end(_: Scope, __: Prompt) -> AsyncIterator[AgentEvent]:
    yield said("kept")
    yield COMPLETED
    yield said("too late")


async def ends_twice(_: Scope, __: Prompt) -> AsyncIterator[AgentEvent]:
    yield said("kept")
    yield FAILED
    yield COMPLETED


async def never_ends_well(_: Scope, __: Prompt) -> AsyncIterator[AgentEvent]:
    yield said("kept")


async def is_no_generator(_: Scope, __: Prompt) -> AsyncIterator[AgentEvent]:
    return None  # type: ignore[return-value]


async def says_no_event(_: Scope, __: Prompt) -> AsyncIterator[AgentEvent]:
    yield said("kept")
    yield "text"  # type: ignore[misc]


async def blocks(_: Scope, __: Prompt) -> AsyncIterator[AgentEvent]:
    yield said("kept")
    time.sleep(0.3)  # noqa: ASYNC251 - that is the point
    yield COMPLETED


async def has_wrong_fields(_: Scope, __: Prompt) -> AsyncIterator[AgentEvent]:
    yield said("kept")
    yield {"type": "text", "delta": 5}


async def says_too_much_at_once(_: Scope, __: Prompt) -> AsyncIterator[AgentEvent]:
    yield said("kept")
    yield {"type": "note", "text": "x" * 20_000_000}


async def says_too_much_text_at_once(_: Scope, __: Prompt) -> AsyncIterator[AgentEvent]:
    yield said("kept")
    yield said("x" * 20_000_000)


class ClosesBadly:
    """An iterator whose `aclose` raises."""

    def __aiter__(self) -> "ClosesBadly":
        return self

    async def __anext__(self) -> AgentEvent:
        return COMPLETED

    async def aclose(self) -> None:
        raise RuntimeError("aclose")


def closes_badly(_: Scope, __: Prompt) -> Any:
    return ClosesBadly()


def raises_in_invoke(_: Scope, __: Prompt) -> Any:
    raise RuntimeError("invoke")


OUTCOMES: list[tuple[Callable[..., Any], str, str, str]] = [
    (raises_at_first, "failed", "agent_exception", ""),
    (raises_in_invoke, "failed", "agent_exception", ""),
    (raises_later, "failed", "agent_exception", "kept"),
    (exits, "failed", "agent_exception", "kept"),
    (interrupts, "failed", "agent_exception", "kept"),
    (raises_something_basic, "failed", "agent_exception", "kept"),
    (cancels_itself, "failed", "agent_exception", "kept"),
    (goes_on_after_the_end, "completed", "", "kept"),
    (ends_twice, "failed", "no", "kept"),
    (never_ends_well, "failed", "agent_protocol_error", "kept"),
    (is_no_generator, "failed", "agent_protocol_error", ""),
    (says_no_event, "failed", "agent_protocol_error", "kept"),
    (blocks, "completed", "", "kept"),
    (has_wrong_fields, "failed", "bad_event", "kept"),
    (says_too_much_at_once, "failed", "event_too_large", "kept"),
    (says_too_much_text_at_once, "failed", "event_too_large", "kept"),
    (closes_badly, "completed", "", ""),
]


@pytest.mark.parametrize(
    ("script", "status", "code", "text"), OUTCOMES, ids=lambda v: getattr(v, "__name__", "")
)
async def test_the_turn_has_its_outcome_and_the_neighbours_notice_nothing(
    client: Client, script: Any, status: str, code: str, text: str
) -> None:
    step = Step()

    async def neighbour(_: Scope, __: Prompt) -> AsyncIterator[AgentEvent]:
        yield said("a")
        await step.wait()
        yield said("b")
        yield COMPLETED

    beside = await client.session(neighbour)
    other = asyncio.create_task(client.query(beside))
    await soon(step.reached.wait())
    session_id = await client.session(script)

    response = await client.query(session_id)
    step.passed.set()

    assert (await soon(other)).json()["response"] == "ab"
    body = response.json()
    outcome = body if response.status_code == 200 else body["details"]
    assert response.status_code == (200 if status == "completed" else 502)
    assert outcome["status"] == status
    assert outcome["response"] == text
    assert body.get("code", "") == code
    assert "Traceback" not in response.text
    assert types(outcome["events"]).count("agent_run_end") == 1
    assert types(outcome["events"])[-1] == "agent_run_end"
    client.server.agent.in_session[session_id] = saying(said("fine"))
    assert (await client.query(session_id)).json()["response"] == "fine"
    assert "too late" not in str(await client.events(session_id))


async def test_an_agent_that_never_says_anything_can_be_aborted(client: Client) -> None:
    async def silent(_: Scope, __: Prompt) -> AsyncIterator[AgentEvent]:
        started.set()
        await asyncio.Event().wait()
        yield COMPLETED

    started = asyncio.Event()
    session_id = await client.session(silent)
    turn = asyncio.create_task(client.query(session_id))
    await soon(started.wait())

    assert (await client.abort(session_id))["success"] is True
    assert (await soon(turn)).json()["status"] == "aborted"


async def test_twenty_thousand_events_without_an_await_starve_nobody(client: Client) -> None:
    session_id = await client.session(saying(*(said("x") for _ in range(20_000))))
    turn = asyncio.create_task(client.query(session_id))

    answers = 0
    while not turn.done():
        assert (await client.get("/healthz")).status_code == 200
        answers += 1

    assert answers > 3
    assert (await soon(turn)).json()["response"] == "x" * 20_000
    assert places(await client.events(session_id)) == list(range(1, 20_007))


async def test_an_event_is_taken_as_it_was_when_it_was_said(client: Client) -> None:
    async def mutates(_: Scope, __: Prompt) -> AsyncIterator[AgentEvent]:
        event: dict[str, Any] = {"type": "note", "list": [1]}
        yield event
        event["list"].append(2)
        event["type"] = "changed"
        yield {"type": "completed"}

    session_id = await client.session(mutates)

    events = (await client.query(session_id)).json()["events"]

    assert [event["data"] for event in events if event["type"] == "note"] == [{"list": [1]}]
    assert "changed" not in types(events)


async def test_a_turn_that_says_too_much_in_all_keeps_what_it_had_said(embedded_server: Server) -> None:
    async with own_database(embedded_server) as url, serving(url, max_turn=100_000) as server:
        client = await server.client()
        session_id = await client.session(saying(*(said("x" * 9_000) for _ in range(20))))

        response = await client.query(session_id)

    assert (response.status_code, response.json()["code"]) == (502, "turn_too_large")
    assert response.json()["details"]["response"] == "x" * 99_000
