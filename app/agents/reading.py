"""Reads what an agent gave, however wrong it is: a stream or none, an event or none, an outcome, an error.

Nothing here raises because of what the agent's objects do when they are looked at, but for `iterator_of`.
"""

import reprlib
from collections.abc import AsyncIterator, Mapping
from typing import Any

from app.agents.contract import AgentEvent
from app.agents.outcome import Completed, Failed, Outcome

PROTOCOL_ERROR = "agent_protocol_error"
EXCEPTION = "agent_exception"

_DETAILS_LIMIT = 2_000


class NotAStream(Exception):
    """What `invoke` returned can't be iterated asynchronously."""


def iterator_of(stream: Any) -> AsyncIterator[AgentEvent]:
    """The iterator of what `invoke` returned. Raises NotAStream, and whatever the agent's code does."""
    if not hasattr(stream, "__aiter__"):
        raise NotAStream(f"`invoke` must return an async iterable, not {type(stream).__name__}")
    iterator = stream.__aiter__()
    if not hasattr(iterator, "__anext__"):
        raise NotAStream(f"`__aiter__` must return an async iterator, not {type(iterator).__name__}")
    return iterator  # type: ignore[no-any-return]


def kind_of(event: object) -> object:
    """What stands for `type` in it; None when it is no mapping."""
    try:
        return event.get("type") if isinstance(event, Mapping) else None
    except Exception:  # noqa: BLE001 - a mapping of the agent's own may raise anything
        return None


def outcome_of(event: AgentEvent, kind: str) -> Outcome:
    """The outcome that a terminal event tells, or the protocol error that it is."""
    if kind == "completed":
        return Completed(event["data"], has_data=True) if "data" in event else Completed()
    details, retryable, code = event.get("details"), event.get("retryable"), event.get("code")
    if not isinstance(details, str):
        return protocol_error(f"`failed` needs `details` as a string, not {shown(details)}")
    if not isinstance(retryable, bool):
        return protocol_error(f"`failed` needs `retryable` as a boolean, not {shown(retryable)}: {details}")
    if not isinstance(code, str | None):
        return protocol_error(f"`failed` may have `code` as a string, not {shown(code)}: {details}")
    return Failed(details, retryable, code)


def protocol_error(details: str) -> Failed:
    """The failure of an agent that broke the contract."""
    return Failed(details[:_DETAILS_LIMIT], retryable=False, code=PROTOCOL_ERROR)


def described(error: BaseException) -> str:
    """`TypeName: text`, bounded. An exception's own `__str__` may raise, too."""
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 - a foreign `__str__` may raise anything
        text = ""
    name = type(error).__name__
    return f"{name}: {text}"[:_DETAILS_LIMIT] if text else name


def shown(value: object) -> str:
    """What came, in a few words however big it is."""
    try:
        return reprlib.repr(value)[:200]
    except Exception:  # noqa: BLE001 - a foreign `__repr__` may raise anything
        return type(value).__name__


NO_TERMINAL = protocol_error("the stream ended without `completed` or `failed`")
