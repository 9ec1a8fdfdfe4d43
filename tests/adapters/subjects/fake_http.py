"""A provider without a network: a transport of the SDKs' HTTP client that streams what it is given."""

import json
from collections.abc import AsyncGenerator, Callable
from typing import Any

import httpx2

from tests.adapters.brain import ProviderError

Answer = Callable[[dict[str, Any]], AsyncGenerator[bytes, None]]

open_streams: set[int] = set()
"""The streams that no client has closed."""


class _Body(httpx2.AsyncByteStream):
    def __init__(self, first: bytes, rest: AsyncGenerator[bytes, None]) -> None:
        self._first, self._rest = first, rest
        open_streams.add(id(self))

    async def __aiter__(self) -> AsyncGenerator[bytes, None]:
        yield self._first
        async for each in self._rest:
            yield each

    async def aclose(self) -> None:
        open_streams.discard(id(self))
        await self._rest.aclose()


class Provider(httpx2.AsyncBaseTransport):
    """Asked, it streams the answer; an answer that fails at once has the error's status."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        body = json.loads(await request.aread())
        answer = self._answer(body)
        try:
            first = await anext(answer)
        except ProviderError as error:
            told = {"error": {"type": "error", "message": str(error)}}
            return httpx2.Response(error.status_code, json=told, request=request)
        headers = {"content-type": "text/event-stream"}
        return httpx2.Response(200, headers=headers, stream=_Body(first, answer), request=request)
