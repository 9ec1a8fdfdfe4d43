"""Asks one remote agent over HTTP, and tells in one word each what can go wrong.

No request is repeated here, and no redirect is followed. Token and headers go to the operator's host and nowhere else,
and no message has them. A card is kept for `CARD_LIFETIME` seconds, or until the agent answers in a way that makes it
look outdated (`forget`).
"""

import asyncio
import functools
import itertools
import json
import re
import ssl
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any, cast

import httpx
from httpx_sse import EventSource

from app.agents.adapters.a2a.card import (
    Endpoint,
    card_urls,
    endpoint_of,
    is_card,
    speaks_for,
    without_card,
)
from app.agents.adapters.a2a.failures import NotA2A, Refused
from app.agents.adapters.a2a.guard import PublicOnly
from app.agents.adapters.a2a.wire import request
from app.agents.adapters.comeback import now
from app.agents.adapters.remote_failures import (
    NEVER_PROXIED,
    BadRemoteEvent,
    Silence,
    is_token,
    lost,
    retry_after,
)
from app.agents.contract import Json
from app.errors import AgentLoadError
from app.events.canonical import NotJson, decode
from app.settings import A2ARemote

CONNECT_TIMEOUT = 5.0
CARD_TIMEOUT = 15.0
CARD_LIFETIME = 300.0
MAX_ANSWER = 128 * 2**20
"""Bytes of an answer, or characters of a stream's frame: more than any turn may say."""
_STREAM = "text/event-stream"
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE = re.compile(r"[!-~](?:[ -~]*[!-~])?")


class Remote:
    """The agent at an address that the operator wrote. Raises `AgentLoadError` for one that can be none."""

    def __init__(self, address: str, options: A2ARemote, *, strangers: PublicOnly | None = None) -> None:
        try:
            url = httpx.URL(address)
        except httpx.InvalidURL:
            url = httpx.URL()
        if url.scheme not in ("http", "https") or not url.host or url.userinfo:
            raise AgentLoadError("The address of an A2A agent is `http://host:port/path` or `https://…`.")
        self.address = str(url)
        # For messages: a query may hold a key.
        self._title = str(url.copy_with(query=None))
        self._options = options
        timeout = httpx.Timeout(options.silence, connect=CONNECT_TIMEOUT)
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=20)
        self._own = httpx.AsyncClient(
            headers=_headers(options),
            timeout=timeout,
            limits=limits,
            mounts=dict.fromkeys(NEVER_PROXIED),
            verify=_tls(),
        )
        guarded = strangers or PublicOnly(httpx.AsyncHTTPTransport(verify=_tls(), limits=limits))
        self._strangers = httpx.AsyncClient(timeout=timeout, transport=guarded, verify=_tls())
        self._numbers = itertools.count(1)
        self._endpoint: Endpoint | None = None
        self._found_at = 0.0

    async def aclose(self) -> None:
        """Close all connections."""
        await self._own.aclose()
        await self._strangers.aclose()

    async def endpoint(self) -> Endpoint:
        """Where and how the agent is talked to, by its card. Raises RemoteFailure."""
        if self._endpoint is None or now() - self._found_at > CARD_LIFETIME:
            self._endpoint, self._found_at = await self._discovered(), now()
        return self._endpoint

    def settle_on(self, endpoint: Endpoint) -> None:
        """Keep what was found out by asking."""
        self._endpoint = endpoint

    def forget(self) -> None:
        """Look at the card again before the next turn."""
        self._endpoint = None

    async def call(
        self,
        endpoint: Endpoint,
        method: str,
        params: Json,
        headers: Mapping[str, str] | None = None,
        *,
        patience: float | None = None,
    ) -> Any:
        """The result, within `patience` seconds of silence if given. Raises RemoteFailure, BadRemoteEvent."""
        response = await self._post(
            endpoint, method, params, headers or {}, accept="application/json", patience=patience
        )
        try:
            return await self._result(response)
        finally:
            await response.aclose()

    async def open(
        self, endpoint: Endpoint, method: str, params: Json, headers: Mapping[str, str] | None = None
    ) -> "Results":
        """A stream of results. Raises RemoteFailure, BadRemoteEvent."""
        accept = f"{_STREAM}, application/json;q=0.5"
        response = await self._post(endpoint, method, params, headers or {}, accept=accept)
        if response.is_success and _media_type(response) == _STREAM:
            return Results(_streamed(response, self._title))
        try:
            result = await self._result(response)
        finally:
            await response.aclose()
        return Results(_alone(result))

    async def _post(
        self,
        endpoint: Endpoint,
        method: str,
        params: Json,
        headers: Mapping[str, str],
        *,
        accept: str,
        patience: float | None = None,
    ) -> httpx.Response:
        version = endpoint.version or "0.3"
        # In ASCII, because a prompt may hold lone surrogates, which UTF-8 has no word for.
        content = json.dumps(request(version, method, params, next(self._numbers))).encode()
        sent = {"content-type": "application/json", "accept": accept, **headers}
        if version == "1.0":
            sent["a2a-version"] = version
        client = self._strangers if endpoint.is_strange else self._own
        asked = client.build_request("POST", endpoint.url, content=content, headers=sent)
        if patience is not None:
            asked.extensions["timeout"]["read"] = min(patience, self._options.silence)
        return await self._send(client, asked)

    async def _send(self, client: httpx.AsyncClient, asked: httpx.Request) -> httpx.Response:
        try:
            return await client.send(asked, stream=True)
        except httpx.RequestError as error:
            raise lost(self._title, error) from error

    async def _result(self, response: httpx.Response) -> Any:
        body = await self._body(response)
        if not response.is_success:
            raise self._refusal(response, body)
        if body is None:
            raise NotA2A(f"{self._title} does not answer with the JSON of an A2A agent.")
        return _result_of(body, self._title)

    async def _body(self, response: httpx.Response) -> Any:
        """The JSON that was answered, None if it is none."""
        body = bytearray()
        try:
            async for piece in response.aiter_bytes():
                body += piece
                _check_size(len(body))
            return decode(bytes(body))
        except NotJson:
            return None
        except httpx.RequestError as error:
            raise lost(self._title, error) from error

    def _refusal(self, response: httpx.Response, body: Any) -> Refused:
        error = body.get("error") if isinstance(body, dict) else None
        number, said = _error(error)
        status = response.status_code
        told = said or f"{status} {response.reason_phrase}"
        return Refused(
            f"{self._title}: {told}", status=status, number=number, retry_after=retry_after(response.headers)
        )

    async def _discovered(self) -> Endpoint:
        options = self._options
        if options.card is False:
            found = without_card(self.address)
        else:
            found = await self._by_card()
        if options.streaming is not None:
            found = Endpoint(found.url, found.version, options.streaming, found.is_strange)
        if options.version is not None and found.version is None:
            found = Endpoint(found.url, options.version, found.streams, found.is_strange)
        return found

    async def _by_card(self) -> Endpoint:
        trouble: Refused | None = None
        for url in card_urls(self.address):
            response = await self._send(
                self._own,
                self._own.build_request(
                    "GET", url, headers={"accept": "application/json"}, timeout=CARD_TIMEOUT
                ),
            )
            try:
                card = await self._body(response)
            finally:
                await response.aclose()
            if response.status_code in (401, 403):
                raise self._refusal(response, card)
            if response.status_code == 429 or response.status_code >= 500:
                trouble = trouble or self._refusal(response, card)
            elif response.status_code == 200 and is_card(card) and speaks_for(card, url, self.address):
                return endpoint_of(card, self.address, self._options.version)
        if trouble is not None:
            raise trouble
        return without_card(self.address)


@functools.cache
def _tls() -> ssl.SSLContext:
    """One for all agents: reading the certificates takes longer than a request."""
    return httpx.create_ssl_context()


def _headers(options: A2ARemote) -> dict[str, str]:
    """What is sent with every request. Raises AgentLoadError for what can't be."""
    if options.token and not is_token(options.token):
        raise AgentLoadError("A token is printable ASCII without spaces; that of the A2A agent is not.")
    for name, value in options.headers.items():
        if not _NAME.fullmatch(name) or not _VALUE.fullmatch(value):
            raise AgentLoadError(f"What is set for the A2A agent's header {name!r} can't be sent.")
    if options.session_header is not None and not _NAME.fullmatch(options.session_header):
        raise AgentLoadError(
            f"{options.session_header!r} can't be the name of the A2A agent's session header."
        )
    return ({"authorization": f"Bearer {options.token}"} if options.token else {}) | options.headers


class Results:
    """The results of a call, one after the other. Close them when they are not read to their end."""

    def __init__(self, results: AsyncGenerator[Any, None]) -> None:
        self._results = results

    @classmethod
    def none(cls) -> "Results":
        """No results."""
        return cls(_none())

    async def next(self, silence: float) -> Any:
        """The next result, within so many seconds; None when there are no more.

        A stream that only keeps its connection alive is silent, too. Raises RemoteFailure, BadRemoteEvent.
        """
        try:
            async with asyncio.timeout(silence):
                return await anext(self._results, None)
        except TimeoutError:
            raise Silence("The agent said nothing for too long.") from None

    async def aclose(self) -> None:
        """Hang up."""
        await self._results.aclose()


async def _none() -> AsyncGenerator[Any, None]:
    return
    yield


async def _alone(result: Any) -> AsyncGenerator[Any, None]:
    yield result


class _Bounded:
    """What of a response its frames are read from. `taken` are the characters since the last frame."""

    def __init__(self, response: httpx.Response) -> None:
        self.headers = response.headers
        self.taken = 0
        self._response = response

    async def aiter_text(self) -> AsyncGenerator[str, None]:
        async for text in self._response.aiter_text():
            self.taken += len(text)
            _check_size(self.taken)
            yield text


def _check_size(size: int) -> None:
    if size > MAX_ANSWER:
        raise BadRemoteEvent(f"what it says at once may have {MAX_ANSWER} bytes")


async def _streamed(response: httpx.Response, address: str) -> AsyncGenerator[Any, None]:
    bounded = _Bounded(response)
    try:
        async with aclosing(EventSource(cast(httpx.Response, bounded)).aiter_sse()) as frames:
            async for frame in frames:
                bounded.taken = 0
                if frame.data:
                    yield _result_of(_json(frame.data), address)
    except httpx.RequestError as error:
        raise lost(address, error) from error
    finally:
        await response.aclose()


def _json(text: str) -> Any:
    try:
        return decode(text)
    except NotJson as error:
        raise BadRemoteEvent(f"a frame's data must be JSON: {str(error)[:200]}") from error


def _result_of(body: Any, address: str) -> Any:
    """The result in a JSON-RPC answer. Raises Refused for an error."""
    if not isinstance(body, dict):
        raise BadRemoteEvent(f"an answer must be an object, not {type(body).__name__}")
    if body.get("error") is not None:
        number, said = _error(body["error"])
        raise Refused(f"{address}: {said or 'it answers with an error'}", number=number)
    if body.get("result") is None:
        raise BadRemoteEvent("an answer must have a `result` or an `error`")
    return body["result"]


def _error(error: Any) -> tuple[int, str]:
    if not isinstance(error, dict):
        return 0, error if isinstance(error, str) else ""
    number, said = error.get("code"), error.get("message")
    return number if isinstance(number, int) else 0, said if isinstance(said, str) else ""


def _media_type(response: httpx.Response) -> str:
    return str(response.headers.get("content-type", "")).partition(";")[0].strip().lower()
