"""Reads request bodies as strictly as the log writes JSON: no NaN, no infinities, a bounded depth."""

import json
from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import Request, Response
from fastapi.routing import APIRoute

from app.events.canonical import NotJson, decode


class StrictRequest(Request):
    """A request whose JSON is read by `app.events.canonical.decode`."""

    async def json(self) -> Any:
        try:
            return decode(await self.body())
        except NotJson as error:
            raise json.JSONDecodeError(str(error), "", 0) from error


class StrictRoute(APIRoute):
    """A route that reads its body so."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def strictly(request: Request) -> Response:
            return await handle(StrictRequest(request.scope, request.receive))

        return strictly
