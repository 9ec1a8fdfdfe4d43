"""Holds an agent to its contract: what it breaks becomes a `failed` event, never anything worse.

The codes are those of the driver (`agent_exception`, `agent_protocol_error`) and `bad_event`; none is retryable. An
agent that does not stop within the bounds when it is cancelled or closed is abandoned.
"""

import logging
from collections.abc import AsyncIterator, Callable

from app.agents.contract import TERMINAL_TYPES, Agent, AgentEvent, Prompt, Scope
from app.agents.driver import DEFAULT_BOUNDS, Bounds
from app.agents.middleware.driven import Driven
from app.agents.outcome import BadEvent
from app.agents.reading import EXCEPTION, PROTOCOL_ERROR
from app.agents.shapes import wrong_field
from app.events.canonical import NotJson, encode

log = logging.getLogger(__name__)

_BREACHES = {EXCEPTION, PROTOCOL_ERROR, BadEvent("").code}


class Enforce:
    """`violations` counts what was broken; `on_violation` is told each in words."""

    def __init__(
        self,
        agent: Agent,
        *,
        bounds: Bounds = DEFAULT_BOUNDS,
        on_violation: Callable[[str], None] = lambda violation: None,
    ) -> None:
        self._agent = agent
        self._bounds = bounds
        self._on_violation = on_violation
        self.violations = 0

    async def invoke(self, scope: Scope, prompt: Prompt, /) -> AsyncIterator[AgentEvent]:
        async with Driven(self._agent, scope, prompt, bounds=self._bounds, check=check) as turn:
            is_over = False
            while not is_over:
                event = await turn.next()
                is_over = event["type"] in TERMINAL_TYPES
                if event["type"] == "failed" and event.get("code") in _BREACHES:
                    self._violated(event["details"])
                yield event
            for violation in await turn.ended():
                self._violated(violation)

    def _violated(self, violation: str) -> None:
        self.violations += 1
        self._on_violation(violation)


def check(event: AgentEvent) -> None:
    """Raise `BadEvent` for an event that is not JSON or lacks what its type must have."""
    problem = wrong_field(event)
    if problem is not None:
        raise BadEvent(problem)
    try:
        encode(dict(event))
    except NotJson as error:
        raise BadEvent(f"{event['type'][:80]!r} event: {error}") from error
