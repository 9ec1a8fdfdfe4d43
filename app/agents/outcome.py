"""How driving an agent ends: exactly one of three outcomes, whatever the agent did.

A `Cancelled` says only that the caller stopped the agent; what that means (an abort, a shutdown) the caller
knows. `BadEvent` is how whoever takes an agent's events refuses one: the turn then fails with the refusal's
code.
"""

from dataclasses import dataclass
from typing import TypeAlias

from app.agents.contract import AgentEvent, Json


@dataclass(frozen=True, slots=True)
class Completed:
    """The agent said `completed`. `has_data` tells a `data` of null from no data at all."""

    data: Json = None
    has_data: bool = False


@dataclass(frozen=True, slots=True)
class Failed:
    """The agent said `failed`, or broke the contract and was failed by the driver.

    `code` is None only when the agent's own `failed` has none.
    """

    details: str
    retryable: bool = False
    code: str | None = None


@dataclass(frozen=True, slots=True)
class Cancelled:
    """The agent was stopped before it had said how it ends."""


Outcome: TypeAlias = Completed | Failed | Cancelled


class BadEvent(Exception):
    """An agent's event that can't be taken. The message says what was expected and what came."""

    def __init__(self, message: str, code: str = "bad_event") -> None:
        super().__init__(message)
        self.code = code


def as_event(outcome: Outcome) -> AgentEvent:
    """The terminal event that tells an outcome; keys that say nothing are left out."""
    if isinstance(outcome, Completed):
        return {"type": "completed", "data": outcome.data} if outcome.has_data else {"type": "completed"}
    if isinstance(outcome, Cancelled):
        outcome = Failed("the agent was stopped", code="aborted")
    event = {"type": "failed", "details": outcome.details, "retryable": outcome.retryable}
    return event if outcome.code is None else event | {"code": outcome.code}
