"""What the adapters' tests share: an agent driven as a turn is, and a transcript of given messages."""

from collections.abc import AsyncGenerator
from typing import Any

from app.agents.adapters.recognised import adapted, framework_of
from app.agents.contract import Agent, AgentEvent, Message
from app.agents.driver import Bounds
from tests.agents.driving import Recorded


class Earlier:
    """A transcript of these messages, in which the agent said these events."""

    def __init__(self, *messages: Message, events: list[AgentEvent] | None = None) -> None:
        self._messages = [*messages]
        self._events = events or []

    async def messages(self) -> list[Message]:
        return self._messages

    async def own_events(self, event_type: str) -> AsyncGenerator[Any, None]:
        for event in self._events:
            if event["type"] == event_type:
                yield {key: event[key] for key in event if key != "type"}


def drive(agent: Agent, text: str, **more: Any) -> Recorded:
    prompt: Any = {"text": text, **more.pop("prompt", {})}
    scope: Any = {"session": "sess_1", "turn": f"turn_{text}", **more}
    return Recorded(lambda: agent.invoke(scope, prompt), bounds=Bounds())


def recognised(found: object) -> Agent:
    """The agent that `serve` makes of an object."""
    framework = framework_of(found)
    assert framework is not None
    return adapted(found, framework)


def text_of(events: list[AgentEvent]) -> str:
    return "".join(event["delta"] for event in events if event["type"] == "text")


def said(*deltas: str) -> list[AgentEvent]:
    return [{"type": "text", "delta": delta} for delta in deltas]
