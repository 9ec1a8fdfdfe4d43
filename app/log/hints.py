"""What a process tells the others on the same database: look here. A hint may be lost; nothing depends on one.

Whoever reads looks by itself now and then; hints only make it sooner.
"""

from collections.abc import Mapping
from typing import Protocol


class Hints(Protocol):
    """Says something to the other processes, without waiting."""

    @property
    def others(self) -> bool:
        """Whether there are other processes, as far as is known."""
        ...

    def moved(self, places: Mapping[str, int]) -> None:
        """These sessions have events up to these places."""
        ...

    def queued(self, session_id: str) -> None:
        """The session's queue has changed."""
        ...

    def stop_turn(self, turn_id: str) -> None:
        """Whoever runs this turn is asked to stop it."""
        ...


class NoHints:
    """For a process that is alone."""

    others = False

    def moved(self, places: Mapping[str, int]) -> None:
        pass

    def queued(self, session_id: str) -> None:
        pass

    def stop_turn(self, turn_id: str) -> None:
        pass


ALONE = NoHints()
