"""How a turn ended: said once, and written as its last events."""

from dataclasses import dataclass
from typing import Any, Final

from app.events.vocabulary import EndingStatus


class Absent:
    """The type of `ABSENT`: no result, as opposed to a result that is null."""


ABSENT: Final = Absent()

ASKS: Final = "input_required"
"""The code of a turn that completed with a question."""


@dataclass(frozen=True, slots=True)
class Ending:
    """One of the four ways a turn ends. The first that is said stands.

    `code` and `message` tell why a turn did not complete, `is_recoverable` whether sending it again may help.
    `data` is a completed turn's structured result, or `ABSENT`. `question` is what a completed turn asks the user, and
    its code is `ASKS` then.
    """

    status: EndingStatus
    code: str = ""
    message: str = ""
    is_recoverable: bool = False
    data: Any = ABSENT
    question: str = ""

    @classmethod
    def completed(cls, data: Any = ABSENT, *, question: str = "") -> "Ending":
        """The agent said `completed`; with a question if it waits for an answer."""
        return cls("completed", ASKS if question else "", data=data, question=question)

    @classmethod
    def failed(cls, message: str, *, code: str, is_recoverable: bool) -> "Ending":
        """The agent said `failed`, or broke its contract."""
        return cls("failed", code, message, is_recoverable)

    @classmethod
    def aborted(cls, code: str = "aborted", message: str = "The turn was aborted.") -> "Ending":
        """Somebody stopped the turn."""
        return cls("aborted", code, message, is_recoverable=True)

    @classmethod
    def interrupted(cls) -> "Ending":
        """The process that ran the turn is gone."""
        return cls(
            "interrupted", "server_restarted", "The server that ran this turn stopped.", is_recoverable=True
        )
