"""Bounds how many turns start in a time, for each principal: more fail as `rate_limited`, before anything is started.

The limit is this process's own; several replicas admit as many times more. It is the generic cell rate algorithm: a
number a principal, which is forgotten once it no longer matters.
"""

import time
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing

from app.agents.contract import Agent, AgentEvent, Prompt, Scope
from app.agents.middleware.relay import relay

CODE = "rate_limited"
_LOOK_FOR_OLD_ONES = 1_000


class RateLimit:
    """`turns` in `seconds`, at once if they like. Who has no principal is limited by session."""

    def __init__(
        self, agent: Agent, *, turns: int, seconds: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        if turns < 1 or seconds <= 0:
            raise ValueError(f"a rate is at least 1 turn in more than 0 seconds, not {turns} in {seconds}")
        self._agent = agent
        self._interval = seconds / turns
        self._burst = seconds - self._interval
        self._clock = clock
        self._due: dict[str, float] = {}

    async def invoke(self, scope: Scope, prompt: Prompt, /) -> AsyncIterator[AgentEvent]:
        wait = self._admit(scope.get("principal") or scope["session"])
        if wait > 0:
            details = f"too many turns; the next may start in {wait:.1f} s"
            yield {"type": "failed", "details": details, "retryable": True, "code": CODE}
            return
        async with aclosing(relay(self._agent, scope, prompt)) as events:
            async for event in events:
                yield event

    def _admit(self, who: str) -> float:
        """How many seconds too early it is; a turn that is admitted is counted."""
        now = self._clock()
        if len(self._due) >= _LOOK_FOR_OLD_ONES:
            self._due = {name: due for name, due in self._due.items() if due > now}
        due = max(self._due.get(who, now), now)
        wait = due - self._burst - now
        if wait <= 1e-9:
            self._due[who] = due + self._interval
            return 0.0
        return wait
