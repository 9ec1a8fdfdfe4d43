"""What HTTP and sockets say, in this client's own words: used by the blocking and the asynchronous client alike."""

import json
import re
from base64 import b64encode
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http import HTTPStatus
from typing import Any

import httpx
from httpx_sse import EventSource, ServerSentEvent, SSEError
from websockets.exceptions import (
    ConnectionClosed,
    InvalidHandshake,
    InvalidStatus,
    InvalidURI,
    SecurityError,
)

from tarko_client.errors import ClientError, ConnectionLost, NoServer, NotTarko, Refused
from tarko_client.event import Event
from tarko_client.reading import Frame
from tarko_client.request import Request

CONNECT_TIMEOUT = 5.0
SILENCE = 60.0
"""Seconds without a byte after which a connection counts as lost; the server speaks far more often."""

GOODBYE = 0.5
"""Seconds that a socket which is left may take to say goodbye: it may be full of events that nobody will read."""

STREAM_HEADERS = {"Accept": "text/event-stream", "Cache-Control": "no-store"}

# A proxy from the environment is for the way out: it can't reach what listens on this machine.
_THIS_MACHINE = ("localhost", "127.0.0.1", "[::1]")
_BETWEEN = (429, 502, 503, 504)
_LAST_PORT = 65535
_TOKEN = re.compile(r"[!-~]+")
_CREDENTIALS = re.compile(r"//.*@", re.DOTALL)


class Address:
    """Where a server is and who asks. Raises ValueError for no address, for no token, and for both a token and a name.

    A name and a password in the address are sent, instead of a token, and never shown: `url` is without them.
    """

    def __init__(self, url: str, token: str | None) -> None:
        try:
            parsed = httpx.URL(url)
        except httpx.InvalidURL:
            parsed = httpx.URL()
        if parsed.scheme not in ("http", "https") or not parsed.host or (parsed.port or 0) > _LAST_PORT:
            raise ValueError(
                f"{_CREDENTIALS.sub('//…@', url)!r} is no address of a server: write http://host:port."
            )
        if token and not _TOKEN.fullmatch(token):
            raise ValueError("A token is printable ASCII without spaces; this one is not.")
        if token and parsed.userinfo:
            raise ValueError(
                "The server is told either a token or the address's name and password, not both."
            )
        self.url = str(parsed.copy_with(userinfo=b"", query=None, fragment=None)).rstrip("/")
        self.headers = {"Authorization": f"Bearer {token}"} if token else {}
        if parsed.userinfo:
            said = b64encode(f"{parsed.username}:{parsed.password}".encode()).decode()
            self.headers = {"Authorization": f"Basic {said}"}
        self._is_here = parsed.host in ("localhost", "127.0.0.1", "::1")

    @property
    def http_options(self) -> dict[str, Any]:
        """How httpx is to connect."""
        return {
            "base_url": self.url,
            "headers": self.headers,
            "timeout": httpx.Timeout(SILENCE, connect=CONNECT_TIMEOUT),
            # Each reader holds a connection for as long as it reads: they must not use up those of the calls.
            "limits": httpx.Limits(max_keepalive_connections=20),
            "mounts": {f"all://{host}": None for host in _THIS_MACHINE},
        }

    @property
    def socket_url(self) -> str:
        return f"ws{self.url.removeprefix('http')}/ws"

    @property
    def socket_options(self) -> dict[str, Any]:
        """How websockets is to connect; it pings by itself."""
        return {
            "additional_headers": self.headers,
            "max_size": None,
            "open_timeout": CONNECT_TIMEOUT,
            "close_timeout": GOODBYE,
            "proxy": None if self._is_here else True,
            "compression": None,
        }


def options_of(request: Request, **more: str) -> dict[str, Any]:
    """The request as httpx takes it."""
    return {
        "params": dict(request.params),
        "content": request.content,
        "headers": {**request.all_headers, **more},
    }


@contextmanager
def told(url: str) -> Iterator[None]:
    """What the libraries raise in the block, as a ClientError."""
    try:
        yield
    except (httpx.ConnectError, httpx.ConnectTimeout) as error:
        raise NoServer(f"No server answers at {url}.") from error
    except SSEError as error:  # which is a RequestError too
        raise NotTarko(f"{url} does not answer with events: is it a Tarko server?") from error
    except httpx.RequestError as error:
        raise lost(url, error) from error
    except InvalidStatus as error:
        answer = error.response
        raise refusal(url, answer.status_code, dict(answer.headers), bytes(answer.body or b"")) from error
    except (InvalidURI, SecurityError) as error:  # websockets followed a redirect, and not to a socket
        raise NotTarko(f"{url} answers with a redirect: is the address right?") from error
    except (ConnectionClosed, InvalidHandshake, EOFError) as error:
        raise lost(url, error) from error
    except (ConnectionRefusedError, TimeoutError) as error:
        raise NoServer(f"No server answers at {url}.") from error
    except OSError as error:
        raise lost(url, error) from error


def lost(url: str, reason: object) -> ConnectionLost:
    """The loss of a connection."""
    return ConnectionLost(f"The connection to {url} was lost: {str(reason) or type(reason).__name__}.")


def ended(url: str) -> ConnectionLost:
    """The loss of a connection that the server closed properly."""
    return ConnectionLost(f"The connection to {url} was lost: the server closed the stream.")


def refusal(url: str, status: int, headers: Mapping[str, str], body: bytes) -> ClientError:
    """What an answer that is no success means."""
    retry_after = _retry_after({name.lower(): value for name, value in headers.items()})
    try:
        said = json.loads(body)
        message, code, details = str(said["error"]), str(said["code"]), said.get("details")
    except (ValueError, KeyError, TypeError):
        return _foreign(url, status, retry_after)
    return Refused(
        message,
        code=code,
        http_status=status,
        retry_after=retry_after,
        details=details if isinstance(details, dict) else None,
    )


def _foreign(url: str, status: int, retry_after: float | None) -> ClientError:
    """An answer that is not the protocol's own."""
    if status == 401:
        message = "The server asks who you are."
        return Refused(message, code="unauthenticated", http_status=status)
    if status in _BETWEEN:  # a proxy's: the server behind it may be restarting
        phrase = HTTPStatus(status).phrase
        return Refused(
            f"{url} answers {status} {phrase}.",
            code="bad_gateway",
            http_status=status,
            retry_after=retry_after,
        )
    return NotTarko(f"{url} answers {status} without the JSON of a Tarko server: is the address right?")


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """The seconds that a `Retry-After` asks for; a date there counts as none."""
    said = headers.get("retry-after", "").strip()
    return float(said) if said.isascii() and said.isdigit() else None


def event_source(answer: httpx.Response) -> EventSource:
    """The blocks of an event stream. It is UTF-8 whatever its headers say, and a mark at its beginning is no text."""
    answer.encoding = "utf-8-sig"
    return EventSource(answer)


def frame_of(sent: ServerSentEvent) -> Frame:
    """A block of an event stream. Raises NotTarko when its data is no event."""
    event = Event.read(sent.data) if sent.data else None
    is_pause = sent.retry is not None and sent.retry >= 0  # httpx-sse takes a sign for a digit
    return Frame(sent.id or None, event, sent.retry if is_pause else None)


def frame_on_socket(message: str | bytes) -> Frame:
    """A message of a socket that has joined one session. Raises Refused when it could not, or NotTarko."""
    event = Event.read(message if isinstance(message, str) else message.decode("utf-8", "replace"))
    if not event.is_control:
        return Frame(event.id or None, event)
    if event.type == "error":
        raise Refused(event.text_of("error"), code=event.text_of("code"))
    return Frame(event.id if "~" in event.id else None)
