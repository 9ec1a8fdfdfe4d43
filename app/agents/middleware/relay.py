"""An agent's events, read by a middleware: whatever the agent does, exactly one terminal event ends them.

Promises of `relay`: events are passed on as they are and one at a time, nothing is read ahead; a failure of the inner
agent, in its call too, is a `failed` event; the inner agent has been closed when the relay has; a cancel arrives in it
at the place where it waits, and goes on from there whatever it makes of it, so that nothing is tried again or said for a
reader that has left. All of it happens in the caller's own task, so the driver around it bounds it; where an
agent must be bounded apart from its middleware, `Driven` does it.
"""

import asyncio
import inspect
import logging
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

from app.agents.contract import TERMINAL_TYPES, Agent, AgentEvent, Prompt, Scope
from app.agents.outcome import Failed, as_event
from app.agents.reading import (
    EXCEPTION,
    NO_TERMINAL,
    NotAStream,
    described,
    iterator_of,
    kind_of,
    outcome_of,
    protocol_error,
    shown,
)

log = logging.getLogger(__name__)


async def relay(agent: Agent, scope: Scope, prompt: Prompt) -> AsyncGenerator[AgentEvent, None]:
    """The agent's events, one terminal event last. Close it with `aclosing`."""
    iterator = None
    cancels_before = _cancels()
    try:
        opened = await _open(agent, scope, prompt, cancels_before)
        if isinstance(opened, Failed):
            yield as_event(opened)
            return
        iterator = opened
        is_over = False
        while not is_over:
            event = await _next(iterator, cancels_before)
            _obey_cancels_since(cancels_before)
            is_over = event["type"] in TERMINAL_TYPES
            yield event
        # So that code after the agent's last yield runs where the agent expects it.
        await _next(iterator, cancels_before)
    finally:
        if iterator is not None:
            await _close(iterator)


async def _open(
    agent: Agent, scope: Scope, prompt: Prompt, cancels_before: int
) -> AsyncIterator[AgentEvent] | Failed:
    try:
        stream: Any = agent.invoke(scope, prompt)
        if not hasattr(stream, "__aiter__") and inspect.isawaitable(stream):
            stream = await stream
        return iterator_of(stream)
    except (Exception, SystemExit, KeyboardInterrupt, asyncio.CancelledError) as error:  # noqa: BLE001 - the agent's code may raise anything
        return _failure(error, cancels_before)


async def _next(iterator: AsyncIterator[AgentEvent], cancels_before: int) -> AgentEvent:
    """The next event, or the `failed` one that says why there is none."""
    try:
        event = await iterator.__anext__()
    except (Exception, SystemExit, KeyboardInterrupt, asyncio.CancelledError) as error:  # noqa: BLE001 - as above
        return as_event(_failure(error, cancels_before))
    kind = kind_of(event)
    if not isinstance(kind, str):
        return as_event(protocol_error(f"an event is an object with a string `type`, not {shown(event)}"))
    if kind == "failed":
        outcome = outcome_of(event, kind)
        if isinstance(outcome, Failed) and outcome.details != event.get("details"):
            return as_event(outcome)
    return event


def _cancels() -> int:
    """How often the reader's task was asked to stop."""
    task = asyncio.current_task()
    return 0 if task is None else task.cancelling()


def _obey_cancels_since(before: int) -> None:
    """Stop the reader that was asked to, also when the agent within made something else of it."""
    if _cancels() > before:
        log.warning("an agent went on though it was cancelled")
        raise asyncio.CancelledError


def _failure(error: BaseException, cancels_before: int) -> Failed:
    """What the agent's error is to whoever reads it. Raises it again if it is the reader's own cancellation."""
    if isinstance(error, asyncio.CancelledError) and _cancels() > cancels_before:
        raise error
    if isinstance(error, StopAsyncIteration):
        return NO_TERMINAL
    if isinstance(error, NotAStream):
        return protocol_error(str(error))
    log.warning("an agent raised", exc_info=error)
    return Failed(described(error), retryable=False, code=EXCEPTION)


async def _close(iterator: AsyncIterator[AgentEvent]) -> None:
    aclose = getattr(iterator, "aclose", None)
    if aclose is None:
        return
    try:
        await aclose()
    except (Exception, SystemExit, KeyboardInterrupt) as error:  # noqa: BLE001 - the agent's clean-up may raise anything
        log.warning("an agent did not close: %s", described(error))
