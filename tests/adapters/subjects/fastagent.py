"""FastAgent: a double of its server's `/invoke`, written from its wire, behind a transport."""

import json
from collections.abc import AsyncGenerator
from typing import Any

import httpx

from app.agents.adapters.fastagent import FastAgent
from app.agents.contract import Agent
from tests.adapters.brain import REPORT, ProviderError
from tests.adapters.subjects.fake_http import open_streams
from tests.adapters.subjects.functions import answer as act


def sse(event: Any) -> bytes:
    return f"data: {json.dumps(event)}\n\n".encode()


class _Body(httpx.AsyncByteStream):
    def __init__(self, events: AsyncGenerator[bytes, None]) -> None:
        self._events = events
        open_streams.add(id(self))

    async def __aiter__(self) -> AsyncGenerator[bytes, None]:
        async for each in self._events:
            yield each

    async def aclose(self) -> None:
        open_streams.discard(id(self))
        await self._events.aclose()


class Server(httpx.AsyncBaseTransport):
    """The server: one turn for each request."""

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        assert (request.method, request.url.path) == ("POST", "/invoke")
        assert request.headers["content-type"] == "application/json"
        body = json.loads(await request.aread())
        if body["text"].startswith("fail ") and "late" not in body["text"]:
            return httpx.Response(int(body["text"].split()[-1]), text="no", request=request)
        stream = _Body(self._turn(body["text"]))
        headers = {"content-type": "text/event-stream"}
        return httpx.Response(200, headers=headers, stream=stream, request=request)

    async def _turn(self, text: str) -> AsyncGenerator[bytes, None]:
        yield b": ping\n\n"
        if text == "report":
            yield sse({"type": "completed", "data": REPORT})
            return
        try:
            async for each in act(text, messages=[], images=[]):
                yield sse({"type": "text", "delta": each} if isinstance(each, str) else each)
            yield sse({"type": "completed"})
        except ProviderError as error:
            yield sse(
                {"type": "failed", "details": str(error), "retryable": False, "code": "provider_unavailable"}
            )


def make() -> Agent:
    return FastAgent("http://fastagent.test", transport=Server())


structured = make


async def final_text() -> str:
    return "Hello, world."
