"""How a turn ended: said once, and written as its last events."""

from dataclasses import dataclass
from typing import Any, Final

from app.events.vocabulary import EndingStatus


class Absent:
    """The type of `ABSENT`: no result, as opposed to a result that is null."""


ABSENT: Final = Absent()


@dataclass(frozen=True, slots=True)
class Ending:
    """One of the four ways a turn ends. The first that is said stands.

    `code` and `message` tell why a turn did not complete, `is_recoverable` whether sending it again may help.
    `data` is a completed turn's structured result, or `ABSENT`.
    """

    status: EndingStatus
    code: str = ""
    message: str = ""
    is_recoverable: bool = False
    data: Any = ABSENT

    @classmethod
    def completed(cls, data: Any = ABSENT) -> "Ending":
        """The agent said `completed`."""
        return cls("completed", data=data)

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
