"""How sessions, turns and events are named.

A session is `sess_` and a turn `turn_` followed by a UUIDv7 in lower-case base32. An event's id carries its session
and its place, so it is unique everywhere and *is* the cursor: a reader that names the last id it saw is told
everything after it. An envelope that is not in the log (an answer on a socket) has an id too, made of the place it
was sent at and a count, and is as good a cursor as that place.
"""

import base64
import hashlib
import os
import re
import time

_PART = r"[a-z2-7]{26}"
_SESSION_ID = re.compile(rf"sess_({_PART})")
_TURN_ID = re.compile(rf"turn_{_PART}")
_EVENT_ID = re.compile(rf"evt_({_PART})_([0-9]{{1,18}})(?:~[0-9]{{1,9}})?")
_PLACE = re.compile(r"[0-9]{1,18}")


class BadCursor(ValueError):
    """Not a place in this session; the message says what came."""


def new_session_id() -> str:
    """A session id that nobody has used."""
    return "sess_" + _uuid7()


def session_id_of(seed: str) -> str:
    """The session id that belongs to a text: always the same."""
    return "sess_" + _base32(hashlib.sha256(seed.encode()).digest()[:16])


def new_turn_id() -> str:
    """A turn id that nobody has used."""
    return "turn_" + _uuid7()


def is_session_id(text: str) -> bool:
    """Whether the text has a session id's form."""
    return _SESSION_ID.fullmatch(text) is not None


def is_turn_id(text: str) -> bool:
    """Whether the text has a turn id's form."""
    return _TURN_ID.fullmatch(text) is not None


def event_id(session_id: str, place: int) -> str:
    """The id of the event at this place of the session."""
    return f"{event_id_prefix(session_id)}{place}"


def event_id_prefix(session_id: str) -> str:
    """What all event ids of a session begin with; the place follows."""
    return f"evt_{session_id.removeprefix('sess_')}_"


def place_of(session_id: str, cursor: str) -> int:
    """The place a cursor names: an event's id, a control envelope's id, or a bare number.

    Raises `BadCursor` for garbage and for a cursor of another session.
    """
    if _PLACE.fullmatch(cursor):
        return int(cursor)
    match = _EVENT_ID.fullmatch(cursor)
    if match is None:
        raise BadCursor(f"a cursor is an event id or a place, not {cursor[:80]!r}")
    if match[1] != session_id.removeprefix("sess_"):
        raise BadCursor(f"{cursor} is a cursor of another session")
    return int(match[2])


def _uuid7() -> str:
    raw = bytearray((time.time_ns() // 1_000_000).to_bytes(6) + os.urandom(10))
    raw[6] = 0x70 | (raw[6] & 0x0F)
    raw[8] = 0x80 | (raw[8] & 0x3F)
    return _base32(raw)


def _base32(raw: bytes | bytearray) -> str:
    return base64.b32encode(raw).decode().rstrip("=").lower()
