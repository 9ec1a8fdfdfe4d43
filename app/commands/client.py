"""A Tarko server over HTTP, as the commands see it. What goes wrong is raised as one of `app.commands.failures`.

Promise: nothing is retried here and no wait is unbounded: a server that says nothing for `SILENCE` seconds (it pings
far more often) counts as lost.
"""

import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import Any, NoReturn, Self

import httpx
from httpx_sse import EventSource, ServerSentEvent, SSEError

from app.commands.failures import CommandFailed, ConnectionLost, NoServer, NotTarko, Refused

SESSIONS = "/api/v1/sessions"
CREATE = f"{SESSIONS}/create"
EVENTS = f"{SESSIONS}/events"
EVENTS_STREAM = f"{SESSIONS}/events/stream"
QUERY_STREAM = f"{SESSIONS}/query/stream"
ABORT = f"{SESSIONS}/abort"

CONNECT_TIMEOUT = 5.0
SILENCE = 60.0
# A proxy from the environment is for the way out: it can't reach what listens on this machine.
_NEVER_PROXIED = ("all://localhost", "all://127.0.0.1", "all://[::1]")

_TOKEN = re.compile(r"[!-~]+")

Params = Mapping[str, str | int]


def server_url(given: str | None, environment: Mapping[str, str] = os.environ) -> str:
    """Where the server is: as given, else `TARKO_URL`, else this machine at `TARKO_PORT`. Raises CommandFailed."""
    text = given or environment.get("TARKO_URL") or f"127.0.0.1:{environment.get('TARKO_PORT') or 8888}"
    try:
        url = httpx.URL(text if "://" in text else f"http://{text}")
    except httpx.InvalidURL:
        url = httpx.URL()
    if url.scheme not in ("http", "https") or not url.host:
        raise CommandFailed(f"{text!r} is no address of a server: write http://host:port.", code="bad_url")
    return str(url).rstrip("/")


class Server:
    """One server. Use as a context manager; safe to call from several threads."""

    def __init__(self, url: str, token: str | None = None) -> None:
        if token and not _TOKEN.fullmatch(token):
            raise CommandFailed(
                "A token is printable ASCII without spaces; this one is not.", code="bad_token"
            )
        self.url = url
        self._client = httpx.Client(
            base_url=url,
            headers={"Authorization": f"Bearer {token}"} if token else {},
            timeout=httpx.Timeout(SILENCE, connect=CONNECT_TIMEOUT),
            mounts=dict.fromkeys(_NEVER_PROXIED),
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._client.close()

    def get(self, path: str, params: Params | None = None) -> str:
        """The text of the answer."""
        with self._told():
            return self._checked(self._client.get(path, params=params)).text

    def post(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """The object that is answered."""
        with self._told():
            answer = self._checked(self._client.post(path, content=_encoded(body), headers=_JSON))
        try:
            found = answer.json()
        except ValueError:
            found = None
        return found if isinstance(found, dict) else self._is_not_tarko(answer)

    @contextmanager
    def stream(
        self,
        method: str,
        path: str,
        *,
        params: Params | None = None,
        body: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Iterator[Iterator[ServerSentEvent]]:
        """The frames of an event stream, as they come."""
        wanted = {"Accept": "text/event-stream", "Cache-Control": "no-store", **(headers or {})}
        content = None if body is None else _encoded(body)
        with (
            self._told(),
            self._client.stream(
                method,
                path,
                params=params,
                content=content,
                headers=wanted if body is None else {**wanted, **_JSON},
            ) as answer,
        ):
            if answer.is_error:
                answer.read()
            yield EventSource(self._checked(answer)).iter_sse()

    @contextmanager
    def _told(self) -> Iterator[None]:
        """What the HTTP library raises, in the words of a person at a terminal."""
        try:
            yield
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            raise NoServer(
                f"No server answers at {self.url}: start one with `tarko-server serve`."
            ) from error
        except SSEError as error:  # which is a RequestError too
            raise NotTarko(f"{self.url} does not answer with events: is it a Tarko server?") from error
        except httpx.RequestError as error:
            reason = str(error) or type(error).__name__
            raise ConnectionLost(f"The connection to {self.url} was lost: {reason}.") from error

    def _checked(self, answer: httpx.Response) -> httpx.Response:
        if answer.is_success:
            return answer
        message, code = _error_in(answer)
        if answer.status_code == 401:
            message += " Give the token of a principal: set TARKO_TOKEN, or use --token."
        if code is None:
            self._is_not_tarko(answer)
        raise Refused(
            message, code=code, http_status=answer.status_code, retry_after=_retry_after(answer.headers)
        )

    def _is_not_tarko(self, answer: httpx.Response) -> NoReturn:
        if answer.status_code in (
            502,
            503,
            504,
        ):  # a proxy's own page: the server behind it may be restarting
            raise Refused(
                f"{self.url} answers {answer.status_code} {answer.reason_phrase}.",
                code="bad_gateway",
                http_status=answer.status_code,
                retry_after=_retry_after(answer.headers),
            )
        raise NotTarko(
            f"{self.url} answers {answer.status_code} without the JSON of a Tarko server: is the address right?"
        )


_JSON = {"Content-Type": "application/json"}


def _encoded(body: Mapping[str, Any]) -> bytes:
    # In ASCII, because what is typed may hold lone surrogates, which UTF-8 has no word for.
    return json.dumps(body).encode()


def _error_in(answer: httpx.Response) -> tuple[str, str | None]:
    try:
        body = answer.json()
        return str(body["error"]), str(body["code"])
    except (ValueError, KeyError, TypeError):
        return "The server asks who you are.", "unauthenticated" if answer.status_code == 401 else None


def _retry_after(headers: httpx.Headers) -> float | None:
    """The seconds that a `Retry-After` asks for; a date there counts as none."""
    said = headers.get("Retry-After", "").strip()
    return float(said) if said.isascii() and said.isdigit() else None
