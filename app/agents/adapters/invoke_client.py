"""An agent that is somewhere else and speaks the Agent Handler's wire: `POST /invoke`, answered by its events.

Events pass through as they come, unknown ones too. A connection that is refused, cut or silent for too long, and an
HTTP status that says so, are retryable failures; anything that is not the wire is not. Closing the stream closes the
connection, which cancels the turn over there. Images are not on this wire: a prompt that has some is sent without them.
"""

import json
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing
from typing import Any

import httpx

from app.agents.contract import TERMINAL_TYPES, AgentEvent, Prompt, Scope

SILENCE = 90.0
CONNECT = 10.0
_BUSY_STATUS = 429
_SERVER_ERRORS = 500
_PASSED_ON = ("parentSession", "branchHints")


class InvokeAgent:
    """`url` is the server's; `/invoke` is added. `silence` seconds without a byte are a lost connection."""

    def __init__(self, url: str, *, token: str | None = None, silence: float = SILENCE) -> None:
        self._url = f"{url.rstrip('/')}/invoke"
        self._headers = {"accept": "text/event-stream"} | bearer(token)
        self._timeout = httpx.Timeout(CONNECT, read=silence)

    async def invoke(self, scope: Scope, prompt: Prompt, /) -> AsyncIterator[AgentEvent]:
        body: dict[str, Any] = {"session": scope["session"], "text": prompt["text"]}
        body |= {key: value for key, value in scope.items() if key in _PASSED_ON}
        try:
            async with (
                httpx.AsyncClient(timeout=self._timeout, trust_env=False) as client,
                client.stream("POST", self._url, json=body, headers=self._headers) as response,
            ):
                if response.status_code != httpx.codes.OK:
                    yield refusal(response.status_code, await response.aread())
                    return
                async with aclosing(messages(response)) as found:
                    async for message in found:
                        event = _event(message)
                        yield event
                        if event["type"] in TERMINAL_TYPES:
                            return
            yield failure("the connection was cut before the turn had ended", retryable=True)
        except httpx.HTTPError as error:
            yield failure(f"{type(error).__name__}: {error}", retryable=True)


def bearer(token: str | None) -> dict[str, str]:
    """The header that says who asks."""
    return {} if token is None else {"authorization": f"Bearer {token}"}


def failure(details: str, *, retryable: bool, code: str | None = None) -> AgentEvent:
    """A `failed` event."""
    event = {"type": "failed", "details": details, "retryable": retryable}
    return event if code is None else event | {"code": code}


def refusal(status: int, body: bytes) -> AgentEvent:
    """The failure that an HTTP answer is; its code where the answer tells one."""
    try:
        told = json.loads(body)
    except ValueError:
        told = None
    code = told.get("code") if isinstance(told, Mapping) else None
    details = told.get("error") if isinstance(told, Mapping) else body.decode(errors="replace")
    is_retryable = status == _BUSY_STATUS or status >= _SERVER_ERRORS or code == "session_busy"
    return failure(
        f"{status}: {str(details)[:500]}",
        retryable=is_retryable,
        code=code if isinstance(code, str) else None,
    )


async def messages(response: httpx.Response) -> AsyncGenerator[bytes, None]:
    """The data of each message of an event stream. Lines end with a line feed, data with an empty line."""
    rest = b""
    data: list[bytes] = []
    async for chunk in response.aiter_raw():
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            line = line.removesuffix(b"\r")
            if line.startswith(b"data:"):
                data.append(line.removeprefix(b"data:").removeprefix(b" "))
            elif not line and data:
                yield b"\n".join(data)
                data = []


def _event(message: bytes) -> AgentEvent:
    try:
        event = json.loads(message)
    except ValueError:
        event = None
    if isinstance(event, dict) and isinstance(event.get("type"), str):
        return event
    return failure("the server sent what is no event", retryable=False, code="bad_event")
