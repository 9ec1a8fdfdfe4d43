"""Scripted agents that tell how they were called: closed, left waiting, and by which tasks."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from app.agents.contract import AgentEvent, Prompt, Scope
from app.conformance.gallery.exhibit import COMPLETED, text

_STEPS_OF_A_CLEAN_UP = 100


class Closable:
    """A generator that knows whether it was closed."""

    name = "a generator"

    def __init__(self, *, waits: bool = False) -> None:
        self._waits = waits
        self.is_waiting = asyncio.Event()
        self.is_closed = False

    async def invoke(self, scope: Scope, prompt: Prompt, /) -> AsyncIterator[AgentEvent]:
        try:
            yield text("a")
            if self._waits:
                self.is_waiting.set()
                await asyncio.Event().wait()
            yield COMPLETED
        finally:
            await clean_up()
            self.is_closed = True


class ClosableByHand:
    """An iterator whose clean-up is its `aclose`, and nothing else. `tasks` have touched it."""

    name = "an iterator"

    def __init__(self, *, waits: bool = False) -> None:
        self._waits = waits
        self._left: list[AgentEvent] = [text("a"), COMPLETED]
        self.is_waiting = asyncio.Event()
        self.is_closed = False
        self.tasks: set[Any] = set()

    def invoke(self, scope: Scope, prompt: Prompt, /) -> "ClosableByHand":
        self.tasks.add(asyncio.current_task())
        return self

    def __aiter__(self) -> "ClosableByHand":
        return self

    async def __anext__(self) -> AgentEvent:
        self.tasks.add(asyncio.current_task())
        if len(self._left) == 1 and self._waits:
            self.is_waiting.set()
            await asyncio.Event().wait()
        return self._left.pop(0) if self._left else await self._linger()

    async def _linger(self) -> AgentEvent:
        raise ValueError("it does not end by itself")

    async def aclose(self) -> None:
        self.tasks.add(asyncio.current_task())
        await clean_up()
        self.is_closed = True


class Stubborn:
    """It answers a cancel with an event."""

    def __init__(self, last: AgentEvent) -> None:
        self._last = last
        self.is_waiting = asyncio.Event()

    async def invoke(self, scope: Scope, prompt: Prompt, /) -> AsyncIterator[AgentEvent]:
        yield text("a")
        try:
            self.is_waiting.set()
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            yield self._last


async def clean_up() -> None:
    """It takes many steps: whoever only lets it begin is over before it."""
    for _ in range(_STEPS_OF_A_CLEAN_UP):
        await asyncio.sleep(0)


async def deaf_until(release: asyncio.Event) -> None:
    """Wait, whoever cancels."""
    while not release.is_set():
        try:
            await release.wait()
        except asyncio.CancelledError:
            continue
