"""Refuses request bodies over the limit with 413 `too_large`, by their stated length or as they arrive.

Promise: no more than `max_body` bytes of a body reach the application, whatever Content-Length said; nothing is
buffered, and a request without a body or a WebSocket is not touched.

Deliberate: to the application an oversized body looks like a client that went away, and what it answers to that is
dropped. Raising out of `receive` instead would let a framework turn it into an answer of its own (FastAPI: 400).
"""

from collections.abc import Awaitable

from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.access.refusal import refuse
from app.errors import TooLarge


class BodyLimit:
    """ASGI middleware; belongs inside the gate, so that its refusals carry the gate's headers."""

    def __init__(self, app: ASGIApp, max_body: int) -> None:
        self._app = app
        self._max_body = max_body

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not _may_have_body(scope):
            await self._app(scope, receive, send)
            return
        if _stated_length(scope) > self._max_body:
            await refuse(_too_large(self._max_body), scope, send)
            return
        exchange = _Exchange(scope, receive, send, self._max_body)
        try:
            await self._app(scope, exchange.receive, exchange.send)
        except ClientDisconnect:
            if not exchange.was_cut:
                raise


class _Exchange:
    """One request whose body is counted: reading, until it is complete or was cut at the limit."""

    __slots__ = ("_left", "_max_body", "_receive", "_response_begun", "_scope", "_send", "was_cut")

    def __init__(self, scope: Scope, receive: Receive, send: Send, max_body: int) -> None:
        self._scope = scope
        self._receive = receive
        self._send = send
        self._max_body = max_body
        self._left = max_body
        self._response_begun = False
        self.was_cut = False

    async def receive(self) -> Message:
        if self.was_cut:
            return {"type": "http.disconnect"}
        message = await self._receive()
        self._left -= len(message.get("body", b""))
        if self._left >= 0:
            return message
        self.was_cut = True
        if not self._response_begun:
            await refuse(_too_large(self._max_body), self._scope, self._send)
        return {"type": "http.disconnect"}

    def send(self, message: Message) -> Awaitable[None]:
        if self.was_cut and not self._response_begun:
            return _drop()
        self._response_begun = True
        return self._send(message)


async def _drop() -> None:
    """What is sent after our own refusal goes nowhere."""


def _may_have_body(scope: Scope) -> bool:
    # HTTP/2 and later need neither header to send a body.
    return not scope.get("http_version", "1.1").startswith("1.") or any(
        name in (b"content-length", b"transfer-encoding") for name, _ in scope["headers"]
    )


def _stated_length(scope: Scope) -> int:
    """The largest Content-Length given; 0 where it is missing or no number, for then the bytes are counted."""
    stated = [value for name, value in scope["headers"] if name == b"content-length"]
    try:
        return max(map(int, stated), default=0)
    except ValueError:
        return 0


def _too_large(max_body: int) -> TooLarge:
    return TooLarge(f"The request body is larger than the {max_body} bytes this server takes.")
