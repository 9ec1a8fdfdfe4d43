"""A transcript for agents that remember things of a session by events of their own."""

from collections.abc import AsyncGenerator
from typing import Any

from app.agents.contract import AgentEvent, Message


class Remembering:
    """It has only the agent's own events, all of one type."""

    def __init__(self, *events: AgentEvent) -> None:
        self._events = events

    async def messages(self) -> list[Message]:
        raise AssertionError

    async def own_events(self, event_type: str) -> AsyncGenerator[Any, None]:
        for event in self._events:
            assert event["type"] == event_type
            yield {key: event[key] for key in event if key != "type"}
