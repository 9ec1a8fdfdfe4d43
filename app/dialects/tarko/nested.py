"""How the documented protocol spells an event: the nested envelope, and its frames.

A function of one event each: whatever a reader needs is in the event already. The data is not parsed again.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import orjson

from app.events.canonical import encode
from app.events.envelope import Envelope, now_ms
from app.events.ids import event_id, event_id_prefix
from app.transport.sse import named_frame


def spell(event: Envelope) -> bytes:
    """The envelope as JSON."""
    return b'{"id":"%b%d","type":%b,"timestamp":%d,"sessionId":"%b","data":%b,"metadata":%b}' % (
        _prefix(event.session_id),
        event.place,
        _quoted(event.type),
        event.timestamp,
        event.session_id.encode(),
        event.data,
        event.metadata,
    )


def spell_each(events: Sequence[Envelope]) -> list[bytes]:
    """Each envelope as JSON."""
    return [spell(event) for event in events]


def stream_frames(events: Sequence[Envelope]) -> bytes:
    """The frames of the GET stream: unnamed, so that `EventSource.onmessage` sees them."""
    return _frames(events, _unnamed)


def query_frames(events: Sequence[Envelope]) -> bytes:
    """The frames of the POST stream: named after the events' types."""
    return _frames(events, _named)


def _frames(events: Sequence[Envelope], head: Callable[[str], tuple[bytes, bytes]]) -> bytes:
    """What `frame(id, spell(event))` gives for each, joined; in one go it takes a fifth of the time."""
    if not events:
        return b""
    session_id = events[0].session_id
    first = b"id: " + _prefix(session_id)
    session = b',"sessionId":"%b","data":' % session_id.encode()
    parts: list[bytes] = []
    add = parts.extend
    for _, place, _, _, kind, timestamp, data, marks in events:
        before_id, after_id = head(kind)
        number = b"%d" % place
        add(
            (
                first,
                number,
                before_id,
                _prefix(session_id),
                number,
                after_id,
                b"%d" % timestamp,
                session,
                data,
            )
        )
        add((b',"metadata":', marks, b"}\n\n"))
    return b"".join(parts)


@lru_cache(maxsize=1024)
def _unnamed(event_type: str) -> tuple[bytes, bytes]:
    """What stands before the id inside an unnamed frame's data, and between it and the timestamp."""
    return b'\ndata: {"id":"', b'","type":%b,"timestamp":' % _quoted(event_type)


@lru_cache(maxsize=1024)
def _named(event_type: str) -> tuple[bytes, bytes]:
    """The same of a frame that is named after the event's type."""
    return b'\nevent: %b\ndata: {"id":"' % event_type.encode(), b'","type":%b,"timestamp":' % _quoted(
        event_type
    )


def spell_control(
    *, event_id: str, event_type: str, timestamp: int, session_id: str | None, data: bytes
) -> bytes:
    """An envelope that is not in the log: an answer on a socket. Its session is empty when it has none."""
    return b'{"id":"%b","type":%b,"timestamp":%d,"sessionId":"%b","data":%b,"metadata":%b}' % (
        event_id.encode(),
        _quoted(event_type),
        timestamp,
        (session_id or "").encode(),
        data,
        b'{"source":"server","version":"1.0"}',
    )


def control_frame(name: str, data: dict[str, Any], session_id: str, place: int, number: int) -> bytes:
    """A named frame with an envelope that is not in the log; its id is as good a cursor as the place."""
    control_id = f"{event_id(session_id, place)}~{number}"
    body = spell_control(
        event_id=control_id,
        event_type=name,
        timestamp=now_ms(),
        session_id=session_id,
        data=encode(data),
    )
    return named_frame(control_id.encode(), name.encode(), body)


@lru_cache(maxsize=4096)
def _prefix(session_id: str) -> bytes:
    return event_id_prefix(session_id).encode()


@lru_cache(maxsize=1024)
def _quoted(event_type: str) -> bytes:
    return orjson.dumps(event_type)
