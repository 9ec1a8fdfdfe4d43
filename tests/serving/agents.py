"""Agents for servers in processes of their own."""

import asyncio
import time
from collections.abc import AsyncIterator

from app.agents.contract import AgentEvent, Prompt, Scope


async def stubborn(_: Scope, __: Prompt) -> AsyncIterator[AgentEvent]:
    """Says something, then ignores every cancel."""
    yield {"type": "text", "delta": "never mind"}
    while True:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            continue


async def patient(_: Scope, __: Prompt) -> AsyncIterator[AgentEvent]:
    """Says something, then waits for ever."""
    yield {"type": "text", "delta": "waiting"}
    await asyncio.Event().wait()


async def blocking(_: Scope, __: Prompt) -> AsyncIterator[AgentEvent]:
    """Says something, lets it be sent, says so on the terminal and blocks the loop."""
    yield {"type": "text", "delta": "busy"}
    await asyncio.sleep(0.2)
    print("blocked", flush=True)  # noqa: T201 - the test is another process
    time.sleep(3600)  # noqa: ASYNC251 - that is the point
