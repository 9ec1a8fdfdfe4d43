"""A server that kills itself at a chosen point: `kill -9` by its own hand, exactly there.

SIGUSR1 arms it: the file that `DRILL_KILL_AT` names holds `<point>:<n>`, and the process dies when it passes the point
for the n-th time from then on. The server itself knows nothing of this; its storage and its agent are wrapped.
"""

import os
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from typing import Any

from app.agents.contract import Agent, AgentEvent, Prompt, Scope
from app.agents.loading import load_agent
from app.events.envelope import Placed
from app.log.store import Strand
from app.postgres.pool import Pool
from app.serving import serve
from app.settings import Settings
from app.wiring import Storage, postgres_storage

KILL_AT = "DRILL_KILL_AT"
POINTS = (
    "turn_stored",  # the start row is committed; its caller does not know yet
    "agent_called",  # the agent is about to do its first step
    "first_yield",  # its first event has been taken
    "before_write",  # inside of a flush
    "after_write",  # the flush is committed; nobody was shown it
    "abort_asked",  # the agent is being cancelled
    "abort_written",  # the ending is committed; whoever asked does not know yet
)


class Trap:
    """Kills the process when its point is passed for the n-th time after it was armed."""

    def __init__(self) -> None:
        self._point = ""
        self._left = 0

    def arm(self, wanted: str) -> None:
        """Take a point, as `<point>:<n>`."""
        self._point, _, count = wanted.partition(":")
        self._left = int(count)

    def passes(self, point: str) -> None:
        if point == self._point:
            self._left -= 1
            if self._left == 0:
                os.kill(os.getpid(), signal.SIGKILL)


class TrappedAgent:
    """An agent with points in it."""

    def __init__(self, agent: Agent, trap: Trap) -> None:
        self._agent = agent
        self._trap = trap

    async def invoke(self, scope: Scope, prompt: Prompt, /) -> AsyncIterator[AgentEvent]:
        self._trap.passes("agent_called")
        is_done = False
        async with aclosing(_generator(self._agent.invoke(scope, prompt))) as events:
            try:
                async for event in events:
                    yield event
                    self._trap.passes("first_yield")
                is_done = True
            finally:
                if not is_done:
                    self._trap.passes("abort_asked")


async def _generator(events: Any) -> Any:
    async for event in events:
        yield event


class _Trapped:
    """A store with points in it; what has none is the store's own."""

    def __init__(self, store: Any, trap: Trap) -> None:
        self._store = store
        self._trap = trap

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


class TrappedEvents(_Trapped):
    """The log's storage with points in it."""

    async def write(self, strands: Sequence[Strand]) -> list[Placed | None]:
        self._trap.passes("before_write")
        places: list[Placed | None] = await self._store.write(strands)
        self._trap.passes("after_write")
        if any(strand.ending is not None and strand.ending.status == "aborted" for strand in strands):
            self._trap.passes("abort_written")
        return places


class TrappedTurns(_Trapped):
    """The turns' storage with points in it."""

    async def start(self, *turn: Any, **options: Any) -> Placed:
        placed: Placed = await self._store.start(*turn, **options)
        self._trap.passes("turn_stored")
        return placed


def main() -> int:
    """Serve until killed."""
    settings = Settings()
    trap = Trap()
    orders = Path(os.environ[KILL_AT])
    signal.signal(signal.SIGUSR1, lambda number, frame: trap.arm(orders.read_text()))

    def storage(pool: Pool) -> Storage:
        whole = postgres_storage(pool)
        events: Any = TrappedEvents(whole.events, trap)
        turns: Any = TrappedTurns(whole.turns, trap)
        return replace(whole, events=events, turns=turns)

    return serve(settings, TrappedAgent(load_agent(settings.agent, settings), trap), storage=storage)


if __name__ == "__main__":
    sys.exit(main())
