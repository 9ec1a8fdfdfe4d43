"""Asks a Tarko server over HTTP, and tells in one word each what can go wrong.

No request is repeated here. The token goes into a header and nowhere else: no message has it.
"""

import json
import re
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any

import httpx
from httpx_sse import EventSource, ServerSentEvent, SSEError

from app.agents.adapters.tarko.told import BadRemoteEvent
from app.agents.contract import Failed
from app.errors import AgentLoadError
from app.events.canonical import NotJson, decode

CONNECT_TIMEOUT = 5.0
# A proxy from the environment is for the way out: it can't reach what listens on this machine.
_NEVER_PROXIED = ("all://localhost", "all://127.0.0.1", "all://[::1]")
_DETAILS_LIMIT = 2_000
_TOKEN = re.compile(r"[!-~]+")

Body = Mapping[str, Any]


class RemoteFailure(Exception):
    """The remote server did not do what was asked. `code` and `retryable` are those of the turn that fails so."""

    code = "remote_failed"
    retryable = False

    def event(self) -> Failed:
        """The terminal event."""
        return {
            "type": "failed",
            "details": str(self)[:_DETAILS_LIMIT],
            "retryable": self.retryable,
            "code": self.code,
        }


class ConnectionLost(RemoteFailure):
    """The connection broke or fell silent; what was asked may have been done."""

    code = "connection_lost"
    retryable = True


class NoAnswer(ConnectionLost):
    """There was no connection: nothing was asked."""

    code = "remote_unavailable"


class Silence(ConnectionLost):
    """Nothing came for too long."""


class NotTarko(RemoteFailure):
    """What answers is no Tarko server, or not where it was looked for."""

    code = "not_tarko"


class Refused(RemoteFailure):
    """The server said no. `retry_after`: seconds after which it may say yes."""

    def __init__(self, status: int, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.retry_after = retry_after
        self.code, self.retryable = _MEANT.get(
            status, ("remote_unavailable", True) if status >= 500 else ("remote_refused", False)
        )

    @property
    def is_temporary(self) -> bool:
        """Whether it makes sense to ask again soon."""
        return self.status in (502, 503, 504)


_MEANT = {
    401: ("authentication_failed", False),
    403: ("authentication_failed", False),
    404: ("remote_session_lost", False),
    408: ("remote_unavailable", True),
    409: ("session_busy", True),
    413: ("too_large", False),
    429: ("rate_limited", True),
}


class Remote:
    """One server. `url` is what its `/api/v1` is under; `silence` (seconds) without a byte is a lost connection."""

    def __init__(self, url: str, token: str | None = None, *, silence: float = 60.0) -> None:
        """Raises `AgentLoadError` for an address or a token that can't be one."""
        try:
            parsed = httpx.URL(url)
        except httpx.InvalidURL:
            parsed = httpx.URL()
        if parsed.scheme not in ("http", "https") or not parsed.host or parsed.userinfo:
            raise AgentLoadError("The address of a Tarko server is `http://host:port` or `https://…`.")
        if token and not _TOKEN.fullmatch(token):
            raise AgentLoadError(
                "A token is printable ASCII without spaces; that of the Tarko server is not."
            )
        self.url = str(parsed).rstrip("/")
        self._client = httpx.AsyncClient(
            base_url=f"{self.url}/api/v1/",
            headers={"authorization": f"Bearer {token}"} if token else {},
            timeout=httpx.Timeout(silence, connect=CONNECT_TIMEOUT),
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=20),
            mounts=dict.fromkeys(_NEVER_PROXIED),
        )

    async def aclose(self) -> None:
        """Close all connections."""
        await self._client.aclose()

    async def get(self, path: str, **params: str) -> dict[str, Any]:
        """The object that is answered. Raises RemoteFailure."""
        return await self._ask(self._client.build_request("GET", path, params=params))

    async def post(self, path: str, body: Body) -> dict[str, Any]:
        """The object that is answered. Raises RemoteFailure."""
        return await self._ask(self._client.build_request("POST", path, **_sent(body)))

    async def query(self, session_id: str, content: Any, headers: Mapping[str, str]) -> "Frames":
        """Start a turn; its stream. Raises RemoteFailure."""
        sent = _sent({"sessionId": session_id, "query": content}, {**_STREAM, **headers})
        return await self._open(self._client.build_request("POST", "sessions/query/stream", **sent))

    async def follow(self, session_id: str, cursor: str) -> "Frames":
        """The session's live stream after a cursor. Raises RemoteFailure."""
        request = self._client.build_request(
            "GET",
            "sessions/events/stream",
            params={"sessionId": session_id, "after": cursor},
            headers={**_STREAM, "last-event-id": cursor},
        )
        return await self._open(request)

    async def _open(self, request: httpx.Request) -> "Frames":
        response = await self._send(request, stream=True)
        if response.is_success:
            return Frames(response, self.url)
        try:
            await response.aread()
        except httpx.RequestError as error:
            raise _lost(self.url, error) from error
        finally:
            await response.aclose()
        raise self._refusal(response)

    async def _ask(self, request: httpx.Request) -> dict[str, Any]:
        response = await self._send(request, stream=False)
        if not response.is_success:
            raise self._refusal(response)
        try:
            found = response.json()
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise NotTarko(f"{self.url} does not answer with the JSON of a Tarko server.")
        return found

    async def _send(self, request: httpx.Request, *, stream: bool) -> httpx.Response:
        try:
            return await self._client.send(request, stream=stream)
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            raise NoAnswer(f"No server answers at {self.url}.") from error
        except httpx.RequestError as error:
            raise _lost(self.url, error) from error

    def _refusal(self, response: httpx.Response) -> RemoteFailure:
        status = response.status_code
        try:
            said = response.json()["error"]
        except (ValueError, KeyError, TypeError):
            said = None
        if isinstance(said, str):
            return Refused(status, f"{self.url}: {said}", _retry_after(response.headers))
        if status == 404 or (status < 500 and status not in _MEANT):
            return NotTarko(f"{self.url} answers {status} without the JSON of a Tarko server.")
        told = f"{self.url} answers {status} {response.reason_phrase}."
        return Refused(status, told, _retry_after(response.headers))


class Frames:
    """An open event stream. Close it when it is not read to its end."""

    def __init__(self, response: httpx.Response, url: str) -> None:
        self._response = response
        self._url = url

    async def aclose(self) -> None:
        """Hang up."""
        await self._response.aclose()

    async def events(self) -> AsyncGenerator[tuple[str, Any], None]:
        """The cursor and the event of each frame that has data, until the stream is closed in order.

        The cursor is empty where the server gives none. Raises ConnectionLost, NotTarko, BadRemoteEvent.
        """
        try:
            async with aclosing(EventSource(self._response).aiter_sse()) as frames:
                async for frame in frames:
                    if frame.data:
                        yield frame.id, _event(frame)
        except SSEError as error:
            raise NotTarko(f"{self._url} does not answer with an event stream.") from error
        except httpx.RequestError as error:
            raise _lost(self._url, error) from error
        finally:
            await self._response.aclose()


def _lost(url: str, error: httpx.RequestError) -> ConnectionLost:
    if isinstance(error, httpx.ReadTimeout):
        return Silence(f"{url} said nothing for too long.")
    return ConnectionLost(f"The connection to {url} was lost: {type(error).__name__}.")


def _event(frame: ServerSentEvent) -> Any:
    try:
        return decode(frame.data)
    except NotJson as error:
        raise BadRemoteEvent(f"a frame's data must be JSON: {str(error)[:200]}") from error


_STREAM = {"accept": "text/event-stream", "cache-control": "no-store"}


def _sent(body: Body, headers: Mapping[str, str] | None = None) -> dict[str, Any]:
    # In ASCII, because a prompt may hold lone surrogates, which UTF-8 has no word for.
    content = json.dumps(body).encode()
    return {"content": content, "headers": {"content-type": "application/json", **(headers or {})}}


def _retry_after(headers: httpx.Headers) -> float | None:
    """The seconds that a `Retry-After` asks for; a date there counts as none."""
    said = headers.get("retry-after", "").strip()
    return float(said) if said.isascii() and said.isdigit() else None
