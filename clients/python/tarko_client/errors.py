"""What can go wrong between a client and its server. `code` is for programs, the message for people."""

from typing import Any

_COME_BACK = frozenset({"storage_unavailable", "server_shutdown", "bad_gateway"})


class ClientError(Exception):
    """Anything this client raises. `code` is stable, in lower snake case."""

    code = "client_error"

    @property
    def is_temporary(self) -> bool:
        """Whether the same request may be answered later."""
        return False


class ConnectionLost(ClientError):
    """The connection broke, or the server went silent."""

    code = "connection_lost"

    @property
    def is_temporary(self) -> bool:
        return True


class NoServer(ConnectionLost):
    """Nobody listens at the address."""

    code = "no_server"


class NotTarko(ClientError):
    """Somebody answers, but not what a Tarko server would."""

    code = "not_a_tarko_server"


class Refused(ClientError):
    """The server answered with an error.

    `code` and `details` are the server's own; `http_status` is None where the answer came on a socket; `retry_after` is
    the number of seconds that the server wants to be left alone, where it says one.
    """

    def __init__(
        self,
        message: str,
        *,
        code: str,
        http_status: int | None = None,
        retry_after: float | None = None,
        details: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.http_status = http_status
        self.retry_after = retry_after
        self.details = details

    @property
    def is_temporary(self) -> bool:
        return self.http_status == 503 or self.code in _COME_BACK


class TurnFailed(ClientError):
    """A query's turn ended `failed` or `interrupted`, or was removed before it started. `code` is the turn's own.

    `status` is the ending's, `response` the text that came before it, `is_recoverable` whether the agent thinks that
    another try may help.
    """

    def __init__(
        self, message: str, *, code: str, status: str, response: str, turn_id: str, is_recoverable: bool
    ) -> None:
        super().__init__(message)
        self.code = code
        self.status = status
        self.response = response
        self.turn_id = turn_id
        self.is_recoverable = is_recoverable
