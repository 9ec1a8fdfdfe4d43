"""Reads request bodies as strictly as the log writes JSON: no NaN, no infinities, a bounded depth.

The depth is half of what an event may have: what was kept from a body must fit into answers that wrap it.
"""

import json
from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import Request, Response
from fastapi.routing import APIRoute

from app.events.canonical import MAX_DEPTH, NotJson, decode

MAX_BODY_DEPTH = MAX_DEPTH // 2


class StrictRequest(Request):
    """A request whose JSON is read by `app.events.canonical.decode`."""

    async def json(self) -> Any:
        try:
            body = decode(await self.body())
        except NotJson as error:
            raise json.JSONDecodeError(str(error), "", 0) from error
        if _is_deeper(body, MAX_BODY_DEPTH):
            raise json.JSONDecodeError(f"nested deeper than {MAX_BODY_DEPTH} levels", "", 0)
        return body


class StrictRoute(APIRoute):
    """A route that reads its body so."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def strictly(request: Request) -> Response:
            return await handle(StrictRequest(request.scope, request.receive))

        return strictly


def _is_deeper(value: Any, depth: int) -> bool:
    if not isinstance(value, dict | list):
        return False
    items = value.values() if isinstance(value, dict) else value
    return depth == 0 or any(_is_deeper(item, depth - 1) for item in items)
