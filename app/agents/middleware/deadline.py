"""Ends a turn that takes too long as `failed` with `deadline_exceeded`, also when its agent does not listen."""

import asyncio
from collections.abc import AsyncIterator

from app.agents.contract import TERMINAL_TYPES, Agent, AgentEvent, Prompt, Scope
from app.agents.driver import DEFAULT_BOUNDS, Bounds
from app.agents.middleware.driven import Driven

CODE = "deadline_exceeded"


class Deadline:
    """`seconds` from the call to the terminal event. The failure is retryable: the next try may be faster."""

    def __init__(self, agent: Agent, *, seconds: float, bounds: Bounds = DEFAULT_BOUNDS) -> None:
        if seconds <= 0:
            raise ValueError(f"a deadline is more than 0 seconds, not {seconds}")
        self._agent = agent
        self._seconds = seconds
        self._bounds = bounds

    async def invoke(self, scope: Scope, prompt: Prompt, /) -> AsyncIterator[AgentEvent]:
        late = asyncio.get_running_loop().time() + self._seconds
        async with Driven(self._agent, scope, prompt, bounds=self._bounds) as turn:
            while True:
                event = await self._next(turn, late)
                if event is None:
                    yield {
                        "type": "failed",
                        "details": f"the agent took longer than {self._seconds:g} s",
                        "retryable": True,
                        "code": CODE,
                    }
                    return
                yield event
                if event["type"] in TERMINAL_TYPES:
                    await turn.ended()
                    return

    async def _next(self, turn: Driven, late: float) -> AgentEvent | None:
        """The next event, or None when it is too late. The wait is for our own hand-over, so it can be cut short."""
        if asyncio.get_running_loop().time() >= late:
            return None
        try:
            async with asyncio.timeout_at(late):
                return await turn.next()
        except TimeoutError:
            return None
