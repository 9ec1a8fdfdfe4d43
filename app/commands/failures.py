"""Why a command could not do what it was told. Each becomes one line on stderr and exit code 1, never a traceback."""

from app.errors import TarkoError


class CommandFailed(TarkoError):
    """The command could not do its work; the message says why and what to do."""

    code = "command_failed"


class ConnectionLost(CommandFailed):
    """The server was there and is not any more, or not yet again: coming back may help."""

    code = "connection_lost"


class NoServer(ConnectionLost):
    """Nobody listens at the address."""

    code = "no_server"


class Unanswered(CommandFailed):
    """The connection broke after a request was sent and before it was answered; sending it again might do it twice."""

    code = "unanswered"


class NotTarko(CommandFailed):
    """Somebody answers, but not what a Tarko server would."""

    code = "not_a_tarko_server"


class CannotWrite(CommandFailed):
    """The file that was asked for cannot be written."""

    code = "cannot_write"


class Refused(CommandFailed):
    """The server answered with an error. `http_status` is what it said, `retry_after` how long it wants to be left."""

    def __init__(self, message: str, *, code: str, http_status: int, retry_after: float | None) -> None:
        super().__init__(message, code=code)
        self.http_status = http_status
        self.retry_after = retry_after

    @property
    def is_temporary(self) -> bool:
        """Whether the same request may be answered later."""
        return self.http_status in (429, 502, 503, 504)
