"""How the documented protocol spells an event: the nested envelope, and its frames.

A function of one event each: whatever a reader needs is in the event already. The data is not parsed again.
"""

from functools import lru_cache

import orjson

from app.events.envelope import Envelope
from app.events.ids import event_id_prefix
from app.transport.sse import frame, named_frame


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


def stream_frame(event: Envelope) -> bytes:
    """The frame of the GET stream: unnamed, so that `EventSource.onmessage` sees it."""
    return frame(b"%b%d" % (_prefix(event.session_id), event.place), spell(event))


def query_frame(event: Envelope) -> bytes:
    """The frame of the POST stream: named after the event's type."""
    event_id = b"%b%d" % (_prefix(event.session_id), event.place)
    return named_frame(event_id, event.type.encode(), spell(event))


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


@lru_cache(maxsize=4096)
def _prefix(session_id: str) -> bytes:
    return event_id_prefix(session_id).encode()


@lru_cache(maxsize=1024)
def _quoted(event_type: str) -> bytes:
    return orjson.dumps(event_type)
