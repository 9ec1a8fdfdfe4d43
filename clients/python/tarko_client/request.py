"""What is asked of a server, without I/O: requests, and what their answers mean."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar, cast

from tarko_client.errors import NotTarko
from tarko_client.pages import EventPage, SessionPage
from tarko_client.shapes import AbortReceipt, Created, Queue, SessionItem, TurnStatus

SESSIONS = "/api/v1/sessions"
CREATE = f"{SESSIONS}/create"
DETAILS = f"{SESSIONS}/details"
STATUS = f"{SESSIONS}/status"
UPDATE = f"{SESSIONS}/update"
DELETE = f"{SESSIONS}/delete"
QUEUE = f"{SESSIONS}/queue"
ABORT = f"{SESSIONS}/abort"
EVENTS = f"{SESSIONS}/events"
EVENTS_STREAM = f"{SESSIONS}/events/stream"
QUERY_STREAM = f"{SESSIONS}/query/stream"

Params = Mapping[str, str | int]
Body = Mapping[str, Any]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Request:
    """A request. With a body it is a POST of JSON."""

    path: str
    params: Params = field(default_factory=dict)
    body: Body | None = None
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def method(self) -> str:
        return "GET" if self.body is None else "POST"

    @property
    def content(self) -> bytes | None:
        """The body in ASCII, because what is typed may hold lone surrogates, which UTF-8 has no word for."""
        return None if self.body is None else json.dumps(self.body).encode()

    @property
    def all_headers(self) -> dict[str, str]:
        """Its headers, with what the body is."""
        return {**self.headers} if self.body is None else {**self.headers, "Content-Type": "application/json"}


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """A request, and how its answer is read. `read` raises NotTarko."""

    request: Request
    read: Callable[[str], T]


def given(**fields: Any) -> dict[str, Any]:
    """The fields that were given."""
    return {name: value for name, value in fields.items() if value is not None}


def _object(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise NotTarko(f"The server's answer should be a JSON object, but is {text[:80]!r}.")
    return found


def _part(text: str, name: str) -> Any:
    found = _object(text)
    if name not in found:
        raise NotTarko(f"The server's answer has no {name}: {text[:80]!r}.")
    return found[name]


def create(name: str | None, tags: list[str] | None, agent: str | None) -> Call[Created]:
    def read(text: str) -> Created:
        _part(text, "sessionId")
        return cast(Created, _object(text))

    return Call(Request(CREATE, body=given(name=name, tags=tags, agent=agent)), read)


def sessions(limit: int, after: str | None) -> Call[SessionPage]:
    return Call(Request(SESSIONS, given(limit=limit, after=after)), SessionPage.read)


def details(session_id: str) -> Call[SessionItem]:
    return Call(Request(DETAILS, {"sessionId": session_id}), _session)


def status(session_id: str) -> Call[TurnStatus]:
    return Call(
        Request(STATUS, {"sessionId": session_id}), lambda text: cast(TurnStatus, _part(text, "status"))
    )


def queue(session_id: str) -> Call[Queue]:
    return Call(Request(QUEUE, {"sessionId": session_id}), lambda text: cast(Queue, _object(text)))


def update(
    session_id: str, name: str | None, tags: list[str] | None, metadata: dict[str, Any] | None
) -> Call[SessionItem]:
    body = {"sessionId": session_id} | given(name=name, tags=tags, metadata=metadata)
    return Call(Request(UPDATE, body=body), _session)


def delete(session_id: str) -> Call[None]:
    return Call(Request(DELETE, body={"sessionId": session_id}), lambda _: None)


def abort(session_id: str, turn_id: str | None) -> Call[AbortReceipt]:
    body = {"sessionId": session_id} | given(turnId=turn_id)
    return Call(Request(ABORT, body=body), lambda text: cast(AbortReceipt, _object(text)))


def append(session_id: str, event_type: str, data: Any) -> Call[str]:
    body = {"sessionId": session_id, "type": event_type, "data": data}
    return Call(Request(EVENTS, body=body), lambda text: str(_part(text, "id")))


def events(session_id: str, params: Params) -> Call[EventPage]:
    return Call(Request(EVENTS, {"sessionId": session_id, **params}), EventPage.read)


def _session(text: str) -> SessionItem:
    return cast(SessionItem, _part(text, "session"))
