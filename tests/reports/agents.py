"""Agents for servers in processes of their own."""

import asyncio
from collections.abc import AsyncIterator

from app.agents.contract import AgentEvent, Prompt, Scope


async def patient(_: Scope, prompt: Prompt) -> AsyncIterator[AgentEvent]:
    """Says `hello`, then completes; asked to wait, waits for ever."""
    yield {"type": "text", "delta": "hello"}
    if prompt["text"] == "wait":
        await asyncio.Event().wait()
    yield {"type": "completed"}
