"""What went wrong in a framework or at a provider, as the `failed` event that a turn ends with.

The class of an error and its status decide, along the chain of its causes, never its prose. Classes are known by name
too: frameworks are not imported to ask. What was shown already must not be said again and a tool that ran must not run
again, so a failure after the first text or tool is never retryable. What looks like a key appears in no message.
"""

import asyncio
import re
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing

from app.agents.contract import AgentEvent, Failed
from app.errors import TarkoError, Unavailable

_DETAILS_LIMIT = 2_000
_LOOKS_LIKE_A_KEY = re.compile(r"\b(sk|gsk|xai)-[\w*.-]{6,}")
_SHOWN = frozenset({"text", "tool_started"})

_BY_STATUS = {
    401: ("authentication_failed", False),
    403: ("authentication_failed", False),
    408: ("provider_timeout", True),
    413: ("context_length_exceeded", False),
    429: ("rate_limited", True),
}
_BY_NAME = {
    "APITimeoutError": ("provider_timeout", True),
    "TimeoutException": ("provider_timeout", True),
    "APIConnectionError": ("provider_unavailable", True),
    "TransportError": ("provider_unavailable", True),
}


class AgentFailure(Exception):
    """An adapter's own reason to fail. `code` and `retryable` are those of the event."""

    def __init__(self, details: str, code: str, *, retryable: bool = False) -> None:
        super().__init__(details)
        self.code = code
        self.retryable = retryable


async def guarded(events: AsyncGenerator[AgentEvent, None]) -> AsyncGenerator[AgentEvent, None]:
    """The events; an exception becomes the `failed` that it means. Closing it closes them, in the same task.

    To a reader that has left nothing is said any more: what their clean-up raises then is raised.
    """
    has_shown = is_left = False
    try:
        async with aclosing(events):
            async for event in events:
                has_shown = has_shown or event["type"] in _SHOWN
                try:
                    yield event
                except GeneratorExit:
                    is_left = True
                    raise
    except Exception as error:
        if is_left or _is_being_cancelled():
            raise
        yield failure(error, has_shown=has_shown)


def _is_being_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def failure(error: BaseException, *, has_shown: bool) -> Failed:
    """The event for that error. `has_shown`: whether text or a tool was seen before it."""
    code, retryable = _classified(error)
    is_ours = isinstance(error, AgentFailure | TarkoError)
    details = str(error) if is_ours else f"{type(error).__name__}: {error}"
    return {
        "type": "failed",
        "details": without_keys(details),
        "retryable": retryable and not has_shown,
        "code": code,
    }


def of_status(status: int) -> tuple[str, bool]:
    """The code, and whether asking again makes sense, for a provider's HTTP status of 400 or more."""
    if status in _BY_STATUS:
        return _BY_STATUS[status]
    return ("provider_unavailable", True) if status >= 500 else ("bad_provider_request", False)


def without_keys(details: str) -> str:
    """The text without what looks like a provider's key, not longer than an event's details may be."""
    return _LOOKS_LIKE_A_KEY.sub("***", details)[:_DETAILS_LIMIT]


def _classified(error: BaseException) -> tuple[str, bool]:
    for each in _chain(error):
        if (found := _known(each)) is not None:
            return found
    return "agent_exception", False


def _known(error: BaseException) -> tuple[str, bool] | None:
    if isinstance(error, AgentFailure):
        return error.code, error.retryable
    if isinstance(error, TarkoError):
        return error.code, isinstance(error, Unavailable)
    # Google's SDK calls the status `code`.
    for status in (getattr(error, "status_code", None), getattr(error, "code", None)):
        if isinstance(status, int) and 400 <= status < 600:
            return of_status(status)
    for kind in type(error).__mro__:
        if kind.__name__ in _BY_NAME:
            return _BY_NAME[kind.__name__]
    if isinstance(error, TimeoutError):
        return "provider_timeout", True
    return ("provider_unavailable", True) if isinstance(error, ConnectionError) else None


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The error, what it was raised from or, for a task group's, the first that it wraps."""
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        yield current
        wrapped = current.exceptions[0] if isinstance(current, BaseExceptionGroup) else None
        current = wrapped or current.__cause__
