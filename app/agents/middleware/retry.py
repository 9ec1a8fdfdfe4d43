"""Tries again what failed before anything of it was seen.

A try is repeated only if its failure says `retryable` and nothing but `retrying` events came before it: text that was
streamed, a tool that was started, and any event that is not known are never repeated. Before each new try a `retrying`
event is told. The last failure is passed on as it came.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing

from app.agents.contract import Agent, AgentEvent, Prompt, Scope
from app.agents.middleware.relay import relay

_LONGEST_DELAY = 30.0
_DOUBLINGS = 50


class Retry:
    """At most `times` new tries, after `delay` seconds and twice as long each time, half of it left to chance."""

    def __init__(
        self,
        agent: Agent,
        *,
        times: int = 2,
        delay: float = 0.5,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._agent = agent
        self._times = times
        self._delay = delay
        self._chance = chance

    async def invoke(self, scope: Scope, prompt: Prompt, /) -> AsyncIterator[AgentEvent]:
        attempt = 0
        while True:
            attempt += 1
            failure = None
            is_seen = attempt > self._times
            async with aclosing(relay(self._agent, scope, prompt)) as events:
                async for event in events:
                    if not is_seen and event["type"] == "failed" and event["retryable"]:
                        failure = event
                        break
                    is_seen = is_seen or event["type"] != "retrying"
                    yield event
            if failure is None:
                return
            delay = self._pause(attempt)
            yield {
                "type": "retrying",
                "attempt": attempt,
                "maxAttempts": self._times,
                "delayMs": round(delay * 1000),
                "reason": failure["details"],
            }
            await asyncio.sleep(delay)

    def _pause(self, attempt: int) -> float:
        longest: float = min(self._delay * 2 ** min(attempt - 1, _DOUBLINGS), _LONGEST_DELAY)
        return longest * (1 + self._chance()) / 2
