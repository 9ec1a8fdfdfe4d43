"""What the exhibits are made of: their words, a function as an agent, and what is said of each."""

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

from app.agents.contract import AgentEvent, Prompt, Scope

Events = AsyncIterator[AgentEvent]

COMPLETED: AgentEvent = {"type": "completed"}
FAILED: AgentEvent = {"type": "failed", "details": "no luck", "retryable": False, "code": "luck"}
LONG = 3600.0


def text(delta: str) -> AgentEvent:
    """A text delta."""
    return {"type": "text", "delta": delta}


class Acting:
    """A function of scope and prompt as an agent, whatever it returns."""

    def __init__(self, function: Callable[[Scope, Prompt], Any]) -> None:
        self._function = function

    def invoke(self, scope: Scope, prompt: Prompt, /) -> Any:
        return self._function(scope, prompt)


@dataclass(frozen=True, slots=True)
class Exhibit:
    """An agent: its name, how to make one, and the statements that it breaks.

    `is_failure`: a host must make a failed turn of it; else the turn completes, or only a stop shows what is wrong.
    """

    name: str
    make: Callable[[], Acting]
    breaks: frozenset[str] = frozenset()
    is_failure: bool = True

    def __str__(self) -> str:
        return self.name


def exhibit_of(function: Callable[[Scope, Prompt], Any], *breaks: str, is_failure: bool = True) -> Exhibit:
    """The function as an exhibit, under its name."""
    return Exhibit(function.__name__, lambda: Acting(function), frozenset(breaks), is_failure)


def saying(*events: Any) -> Acting:
    """An agent that says these and nothing else."""

    async def say(_: Scope, __: Prompt) -> Events:
        for event in events:
            yield event

    return Acting(say)
