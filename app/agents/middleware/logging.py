"""Tells the log how each turn of an agent went: how it ended, how long it took, how much came. Never what was said."""

import logging
import time
from collections.abc import AsyncIterator
from contextlib import aclosing

from app.agents.contract import Agent, AgentEvent, Prompt, Scope
from app.agents.middleware.relay import relay

log = logging.getLogger(__name__)


class Logging:
    """One line when a turn begins and one when it is over. `level` is a name of the logging module's."""

    def __init__(self, agent: Agent, *, level: str = "info", logger: logging.Logger = log) -> None:
        self._agent = agent
        self._level = logging.getLevelNamesMapping()[level.upper()]
        self._log = logger

    async def invoke(self, scope: Scope, prompt: Prompt, /) -> AsyncIterator[AgentEvent]:
        name = scope.get("turn") or scope["session"]
        self._log.log(self._level, "%s begins", name)
        began = time.monotonic()
        events_seen = tools = 0
        ending = "stopped by its reader"
        try:
            async with aclosing(relay(self._agent, scope, prompt)) as events:
                async for event in events:
                    events_seen += 1
                    tools += event["type"] == "tool_started"
                    ending = _ending(event) or ending
                    yield event
        finally:
            self._log.log(
                self._level,
                "%s is over: %s, %d events, %d tools, %d ms",
                name,
                ending,
                events_seen,
                tools,
                round((time.monotonic() - began) * 1000),
            )


def _ending(event: AgentEvent) -> str | None:
    if event["type"] == "failed":
        return f"failed ({event.get('code') or 'no code'})"
    return "completed" if event["type"] == "completed" else None
