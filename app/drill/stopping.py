"""What a drill clears away is cleared away to its end, however often the drill is told meanwhile to stop."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")


async def seen_through(work: Callable[[], Awaitable[T]]) -> T:
    """Do it, and only then be cancelled. The work must be bounded. Raises what it raises."""
    doing = asyncio.ensure_future(work())
    is_told = False
    while not doing.done():
        try:
            await asyncio.wait([doing])
        except asyncio.CancelledError:
            is_told = True
    result = doing.result()
    if is_told:
        raise asyncio.CancelledError
    return result
