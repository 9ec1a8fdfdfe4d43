"""An agent that is driven apart from the middleware that reads it: in a pump of its own, with every wait bounded.

For a middleware that must be able to end a turn though its agent is deaf. One event at a time is handed over, and the
agent goes on only when the next one is asked for: nothing is buffered. Leaving the block ends the agent: it is
cancelled, waited for within the bounds, and abandoned if it ignores that.
"""

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import Self

from app.agents.contract import Agent, AgentEvent, Prompt, Scope
from app.agents.driver import DEFAULT_BOUNDS, Bounds, Drive
from app.agents.outcome import BadEvent, Completed, Failed, Outcome, as_event

Check = Callable[[AgentEvent], None]


class Driven:
    """One turn of an agent. `check` may raise `BadEvent` for any event, which then fails the turn."""

    def __init__(
        self,
        agent: Agent,
        scope: Scope,
        prompt: Prompt,
        *,
        bounds: Bounds = DEFAULT_BOUNDS,
        check: Check = lambda event: None,
    ) -> None:
        self._check = check
        self._came = asyncio.Event()
        self._offer: AgentEvent | None = None
        self._taken: asyncio.Future[None] | None = None
        self._drive = Drive(
            agent,
            scope,
            prompt,
            self._take,
            self._end,
            bounds=bounds,
            name=f"inner agent of {scope['session']}",
        )

    async def __aenter__(self) -> Self:
        self._drive.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._drive.cancel()

    async def next(self) -> AgentEvent:
        """The next event. After the terminal one nothing comes any more: use `ended`."""
        if self._taken is not None and not self._taken.done():
            self._taken.set_result(None)
        await self._came.wait()
        self._came.clear()
        event, self._offer = self._offer, None
        assert event is not None  # noqa: S101 - it is set before the flag is
        return event

    async def ended(self) -> list[str]:
        """Wait until the agent has cleaned up after its terminal event; returns how it broke the contract, if it did."""
        await self._drive.wait()
        return self._drive.violations

    def _take(self, event: AgentEvent) -> "asyncio.Future[None]":
        self._check(event)
        self._taken = asyncio.get_running_loop().create_future()
        self._hand_over(event)
        return self._taken

    def _end(self, outcome: Outcome) -> None:
        self._hand_over(as_event(self._checked(outcome)))

    def _checked(self, outcome: Outcome) -> Outcome:
        if not isinstance(outcome, Completed):
            return outcome
        try:
            self._check(as_event(outcome))
        except BadEvent as error:
            return Failed(str(error), retryable=False, code=error.code)
        return outcome

    def _hand_over(self, event: AgentEvent) -> None:
        self._offer = event
        self._came.set()
