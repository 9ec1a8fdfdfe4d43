"""Helpers of the driver's tests: a drive whose events and outcomes are recorded, and what may not be left
behind.
"""

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from types import AsyncGeneratorType
from typing import Any

from app.agents.contract import AgentEvent, Prompt, Scope
from app.agents.driver import Bounds, Drive
from app.agents.outcome import Outcome

COMPLETED: AgentEvent = {"type": "completed"}
SHORT = Bounds(grace=0.05, recancel=0.02, recancels=2, close=0.05, tail=0.05)
PATIENCE = 60.0


def text(delta: str) -> AgentEvent:
    return {"type": "text", "delta": delta}


class FunctionAgent:
    """Any function as an agent, however wrong what it returns."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function

    def invoke(self, scope: Scope, prompt: Prompt, /) -> Any:
        return self._function()


class Recorded:
    """A drive that remembers what came out of it."""

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        sink: Callable[[AgentEvent], Awaitable[None] | None] | None = None,
        bounds: Bounds = SHORT,
    ) -> None:
        self.events: list[AgentEvent] = []
        self.outcomes: list[Outcome] = []
        self.has_ended = asyncio.Event()
        self._also = sink
        self.drive = Drive(
            FunctionAgent(function),
            {"session": "s"},
            {"text": "t"},
            self._take,
            self._end,
            bounds=bounds,
            name="turn 1",
        )

    def _take(self, event: AgentEvent, /) -> Awaitable[None] | None:
        assert not self.outcomes, "an event after the ending"
        self.events.append(event)
        return self._also(event) if self._also is not None else None

    def _end(self, outcome: Outcome) -> None:
        self.outcomes.append(outcome)
        self.has_ended.set()

    @property
    def outcome(self) -> Outcome:
        (outcome,) = self.outcomes
        return outcome

    async def run(self) -> "Recorded":
        self.drive.start()
        await self.over()
        return self

    async def over(self) -> None:
        async with asyncio.timeout(PATIENCE):
            await self.drive.wait()

    async def cancelled(self) -> "Recorded":
        async with asyncio.timeout(PATIENCE):
            await self.drive.cancel()
        return self


@asynccontextmanager
async def nothing_left() -> AsyncIterator[None]:
    """No task, no live async generator of the tests and no complaint to the loop may remain; and none of our own
    generators may have been left to the garbage collector, which closes it later and in another task.
    """
    tasks = asyncio.all_tasks()
    complaints: list[dict[str, Any]] = []
    dropped: list[str] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: complaints.append(context))
    first, last = sys.get_asyncgen_hooks()

    def drop(generator: Any) -> None:
        if "/app/agents/" in generator.ag_code.co_filename:
            dropped.append(generator.__qualname__)
        assert last is not None
        last(generator)

    sys.set_asyncgen_hooks(first, drop)
    try:
        yield
        # What an SDK drops unclosed is closed by the loop, generator by generator.
        for _ in range(20):
            await asyncio.sleep(0)
        assert asyncio.all_tasks() - tasks == set()
        assert [each for each in loop._asyncgens if _is_live_agent(each)] == []  # type: ignore[attr-defined]
        assert complaints == []
        assert dropped == []
    finally:
        sys.set_asyncgen_hooks(first, last)
        loop.set_exception_handler(None)


def _is_live_agent(generator: AsyncGeneratorType[Any, Any]) -> bool:
    return generator.ag_frame is not None and "/tests/agents/test_" in generator.ag_code.co_filename
