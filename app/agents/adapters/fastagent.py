"""A FastAgent server as an agent: `serve fastagent:https://host`. Its turns come over its `/invoke` wire, one to one.

The server keeps the conversation itself, by the session's id. It has no place for images: a turn with some fails. When a
turn is stopped the connection is closed, which cancels the run there. A stream that ends without a terminal event is
cut: nobody knows what was done, so asking again makes sense only if nothing was shown.

Source: FastAgent's HTTP surface: `POST /invoke {session, text}`, answered by one event in each `data:` line.
"""

import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any

import httpx
from httpx_sse import EventSource, SSEError

from app.agents.adapters.failures import AgentFailure, guarded, of_status
from app.agents.contract import TERMINAL_TYPES, AgentEvent, Prompt, Scope
from app.errors import AgentLoadError
from app.events.canonical import NotJson, decode

_PASSED_ON = ("parentSession", "branchHints")
_DETAILS_LIMIT = 500


class FastAgent:
    """`url` is the server, or its very `/invoke`; `silence` (seconds) without a byte is a lost connection.

    `transport` replaces the network.
    """

    name = "fastagent"

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        silence: float = 90.0,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        """Raises AgentLoadError for an address that can't be one."""
        try:
            parsed = httpx.URL(url)
        except httpx.InvalidURL as error:
            raise AgentLoadError(f"`fastagent:` needs an address, and this is none: {error}") from error
        if parsed.scheme not in ("http", "https") or not parsed.host or parsed.userinfo:
            raise AgentLoadError("The address of a FastAgent server is `http://host:port` or `https://…`.")
        path = parsed.path.rstrip("/")
        self._url = parsed.copy_with(path=path if path.endswith("/invoke") else f"{path}/invoke")
        self._client = httpx.AsyncClient(
            transport=transport,
            trust_env=False,
            headers={"authorization": f"Bearer {token}"} if token else {},
            timeout=httpx.Timeout(silence, connect=10.0),
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=20),
        )

    async def aclose(self) -> None:
        """Close the connections to the server."""
        await self._client.aclose()

    def invoke(self, scope: Scope, prompt: Prompt, /) -> AsyncGenerator[AgentEvent, None]:
        return guarded(self._turn(scope, prompt))

    async def _turn(self, scope: Scope, prompt: Prompt) -> AsyncGenerator[AgentEvent, None]:
        if prompt.get("images"):
            raise AgentFailure("a FastAgent server takes no images", "attachment_unsupported")
        given: Mapping[str, Any] = scope  # what lineage there is goes along, though it is not ours
        body = {"session": scope["session"], "text": prompt["text"]}
        body |= {key: given[key] for key in _PASSED_ON if key in given}
        headers = {"accept": "text/event-stream", "content-type": "application/json"}
        content = json.dumps(body).encode()
        async with self._client.stream("POST", self._url, content=content, headers=headers) as response:
            if response.status_code != 200:
                raise await self._refusal(response)
            async with aclosing(self._events(response)) as events:
                async for event in events:
                    yield event
                    if event["type"] in TERMINAL_TYPES:
                        return
        raise AgentFailure(f"{self._url} ended in the middle of the turn", "stream_cut", retryable=True)

    async def _events(self, response: httpx.Response) -> AsyncGenerator[AgentEvent, None]:
        try:
            async with aclosing(EventSource(response).aiter_sse()) as frames:
                async for frame in frames:
                    if frame.data:
                        yield _event(frame.data)
        except SSEError as error:
            raise AgentFailure(
                f"{self._url} does not answer with an event stream", "not_fastagent"
            ) from error

    async def _refusal(self, response: httpx.Response) -> AgentFailure:
        said = (await response.aread()).decode("utf-8", "replace").strip()[:_DETAILS_LIMIT]
        code, is_retryable = (
            of_status(response.status_code) if response.is_error else ("not_fastagent", False)
        )
        return AgentFailure(
            f"{self._url} answers {response.status_code}: {said}", code, retryable=is_retryable
        )


def _event(data: str) -> AgentEvent:
    try:
        event = decode(data.encode())
    except (NotJson, ValueError) as error:
        raise AgentFailure(f"the server sent what is not JSON: {error}", "bad_remote_event") from error
    if not (isinstance(event, dict) and isinstance(event.get("type"), str)):
        raise AgentFailure("the server sent what is no event", "bad_remote_event")
    return event
