"""Where a stream begins: decided from what the client sent, without I/O."""

from typing import Literal

from app.errors import BadRequest
from app.events.ids import BadCursor, place_of
from app.sessions.session import Standing
from app.transport.cursor import Start

From = Literal["start", "now"]


def cursor_place(session_id: str, cursor: str) -> int:
    """The place that a client's cursor names.

    Raises `BadRequest` (`bad_cursor`).
    """
    try:
        return place_of(session_id, cursor)
    except BadCursor as error:
        raise BadRequest(f"{error}.", code="bad_cursor") from error


def start_of(standing: Standing, *, cursor: str | None, beginning: From | None) -> Start:
    """Where to begin: after the cursor; else now; else with a replay of the session.

    The replay leaves out the deltas of turns that have ended by now. Raises `BadRequest`: `bad_cursor`, or
    `cursor_ahead` for a place that the log has not reached (it was restored from an older backup: start afresh).
    """
    if cursor is not None:
        place = cursor_place(standing.session.id, cursor)
        if place > standing.last_place:
            raise BadRequest(
                f"The log has {standing.last_place} events and has not reached {cursor[:80]!r}; read it from the start.",
                code="cursor_ahead",
            )
        return Start(place)
    if beginning == "now":
        return Start(standing.last_place)
    return Start(0, standing.last_place, standing.running_turn)
