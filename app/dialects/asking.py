"""How a turn is asked for and waited for, whatever the dialect."""

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from typing import Any

from fastapi import Request

from app.dialects.parts import Parts
from app.errors import SessionDeleted, ShuttingDown, StorageUnavailable
from app.log.session_log import Page
from app.transport.disconnect import until_disconnect
from app.turns.admission import Admitted, TurnRemoved

OUTAGE_PAUSE = 0.2


async def until_ended(
    parts: Parts,
    request: Request,
    session_id: str,
    admitted: Admitted,
    take: Callable[[Page], bool],
    *,
    aborts_on_disconnect: bool = False,
) -> None:
    """Give `take` the session's pages from the turn's first event on, until it says that the turn has ended.

    A client that goes away stops nothing, unless it asked to. Raises `TurnRemoved`, `ShuttingDown` when the server
    stops before the turn has begun, `SessionDeleted`.
    """
    turn_id = admitted.turn_id
    reading = asyncio.create_task(_read(parts, session_id, admitted.after, take), name=f"answer of {turn_id}")
    gone = asyncio.create_task(until_disconnect(request.receive), name=f"client of {turn_id}")
    removed = admitted.removed or asyncio.get_running_loop().create_future()
    stops: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def stop_waiting() -> None:
        if admitted.is_waiting and not removed.done() and not stops.done():
            stops.set_result(None)

    parts.readers.on_drain(stop_waiting)
    waiting: set[asyncio.Future[Any]] = {reading, removed, stops}
    if aborts_on_disconnect:
        waiting.add(gone)
    try:
        while True:
            done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            if reading in done:
                return reading.result()
            if removed in done and removed.result():
                raise TurnRemoved("The turn was removed before it started.", details={"turnId": turn_id})
            if stops in done:
                raise ShuttingDown("The server stops; the turn waits for another one.")
            if gone in done:
                parts.supervisor.stops.abandon(session_id, turn_id)
    finally:
        parts.readers.forget(stop_waiting)
        reading.cancel()
        gone.cancel()


async def _read(parts: Parts, session_id: str, after: int, take: Callable[[Page], bool]) -> None:
    async with parts.logs.open(session_id) as log:
        while True:
            try:
                async with aclosing(log.follow(after)) as pages:
                    async for page in pages:
                        after = page.upto
                        if take(page):
                            return
                raise SessionDeleted("The session was deleted.")
            except StorageUnavailable:
                await asyncio.sleep(OUTAGE_PAUSE)
