"""What is checked: how to make the agent, and prompts that make it do what the statements are about."""

import itertools
import secrets
from collections.abc import AsyncGenerator, Callable, Iterable
from dataclasses import dataclass, field

from app.agents.contract import Agent, AgentEvent, Json, Message, Prompt, Scope
from app.conformance.playing import Limits

_numbers = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Conversation:
    """Two turns of which the second needs the first: what is said, what is asked, and what the answer must contain."""

    told: str
    asked: str
    expected: str


@dataclass(frozen=True, slots=True)
class Subject:
    """An agent under test. `make` gives an instance; instances share only what lies outside of them.

    `prompt` is an ordinary one. `failing` makes the agent's engine fail, `waiting` makes it wait for a long time; what
    needs one that is not given is tried with the ordinary one, or skipped.
    """

    make: Callable[[], Agent]
    prompt: Prompt = field(default_factory=lambda: Prompt(text="Hello"))
    failing: Prompt | None = None
    waiting: Prompt | None = None
    conversation: Conversation | None = None
    limits: Limits = field(default_factory=Limits)


class Remembered:
    """A transcript that the kit keeps, as a host would."""

    def __init__(self) -> None:
        self._messages: list[Message] = []
        self._events: list[AgentEvent] = []

    async def messages(self) -> list[Message]:
        """All earlier messages."""
        return list(self._messages)

    async def own_events(self, event_type: str) -> AsyncGenerator[Json, None]:
        """The fields of the agent's own events of that type, oldest first."""
        for event in self._events:
            if event["type"] == event_type:
                yield {name: value for name, value in event.items() if name != "type"}

    def add(self, told: str, answered: str, events: Iterable[AgentEvent]) -> None:
        """Remember a turn."""
        self._events += events
        self._messages += [{"role": "user", "content": told}, {"role": "assistant", "content": answered}]


def new_scope(session: str | None = None, transcript: Remembered | None = None) -> Scope:
    """The scope of a turn in a session of its own, unless one is named."""
    return {
        "session": session or f"conformance-{secrets.token_hex(4)}-{next(_numbers)}",
        "transcript": transcript or Remembered(),
    }
