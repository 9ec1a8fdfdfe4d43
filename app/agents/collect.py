"""Reads an agent's stream to its end and keeps only the result: the joined text and the structured data.

The canonical buffered reading of the Agent Handler specification (§7): reasoning is not part of the answer,
unknown events are ignored, a `failed` is raised, and a stream without a terminal event is an error. The
iterator is closed on every way out.
"""

from collections.abc import AsyncIterable, AsyncIterator
from contextlib import AbstractAsyncContextManager, aclosing, nullcontext
from dataclasses import dataclass
from typing import Any

from app.agents.contract import AgentEvent, Json


@dataclass(frozen=True, slots=True)
class Collected:
    """What a turn came to. `data` is None when the agent gave none."""

    text: str
    data: Json = None


class AgentFailure(Exception):
    """The agent said `failed`. Branch on `code`; retry only what is `retryable`."""

    def __init__(self, details: str, retryable: bool, code: str | None = None) -> None:
        super().__init__(details)
        self.details = details
        self.retryable = retryable
        self.code = code


class MissingTerminal(Exception):
    """The stream ended without `completed` or `failed`: the agent broke the contract."""

    def __init__(self) -> None:
        super().__init__("stream ended without a terminal event")


async def collect(events: AsyncIterable[AgentEvent]) -> Collected:
    """Read to the terminal event. Raises AgentFailure for `failed`, MissingTerminal if there is none."""
    text: list[str] = []
    iterator = aiter(events)
    async with _closing(iterator):
        async for event in iterator:
            kind = event["type"]
            if kind == "text":
                text.append(event["delta"])
            elif kind == "completed":
                return Collected("".join(text), event.get("data"))
            elif kind == "failed":
                raise AgentFailure(event["details"], event["retryable"], event.get("code"))
    raise MissingTerminal


def _closing(iterator: AsyncIterator[AgentEvent]) -> AbstractAsyncContextManager[Any]:
    """Not every iterator can be closed."""
    return aclosing(iterator) if hasattr(iterator, "aclose") else nullcontext()
