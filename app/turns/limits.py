"""What bounds a turn, and how many may wait."""

from dataclasses import dataclass, field

from app.agents.driver import Bounds
from app.agents.translate import MAX_EVENT, MAX_TURN


@dataclass(frozen=True, slots=True)
class Limits:
    """What bounds a turn. Sizes are bytes: of the largest event and of the turn's closing messages together.

    `deadline` of the whole turn and `silence` without an event are seconds, None for none; `outage` is how long the
    database may be away before running turns fail; `queue` is how many turns may wait in a session.
    """

    max_event: int = MAX_EVENT
    max_turn: int = MAX_TURN
    bounds: Bounds = field(default_factory=Bounds)
    deadline: float | None = None
    silence: float | None = None
    outage: float = 30.0
    queue: int = 16
