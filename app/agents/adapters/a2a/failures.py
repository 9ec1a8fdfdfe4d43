"""What is wrong with a remote agent that answers. What is wrong with the connection is in `remote_failures`."""

from app.agents.adapters.remote_failures import RemoteFailure

TASK_NOT_FOUND = -32001
UNSUPPORTED = -32004
VERSION_NOT_SUPPORTED = -32009
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603
IDENTITY_REFUSED = -31403


class NotA2A(RemoteFailure):
    """What answers is no A2A agent, or none that can be talked to."""

    def __init__(self, message: str, *, code: str = "not_a2a") -> None:
        super().__init__(message)
        self.code = code


class WrongVersion(RemoteFailure):
    """The agent speaks no version of the protocol that is known here."""

    code = "remote_version_unsupported"


class StrangeAddress(RemoteFailure):
    """An address that does not come from the operator leads where nobody may be sent."""

    code = "remote_address_refused"


class OutcomeUnknown(RemoteFailure):
    """The connection was lost before the agent said anything: the message may have been taken, or not."""

    code = "outcome_unknown"
    retryable = True


class Busy(RemoteFailure):
    """Another task of the conversation is running, and can't be canceled."""

    code = "session_busy"
    retryable = True


class NeverEnds(RemoteFailure):
    """The task has shown no sign of life for too long."""

    code = "remote_silent"
    retryable = True


class Refused(RemoteFailure):
    """The agent said no: by an HTTP status, by a JSON-RPC error, or by both.

    `number` is the JSON-RPC error's, 0 without one. `retry_after`: seconds after which it may say yes.
    """

    def __init__(
        self, message: str, *, status: int = 200, number: int = 0, retry_after: float | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.number = number
        self.retry_after = retry_after
        self.code, self.retryable = _meant(status, number)

    @property
    def is_temporary(self) -> bool:
        """Whether it makes sense to ask again soon."""
        return self.status in (429, 502, 503, 504)

    @property
    def did_nothing(self) -> bool:
        """Whether it is sure that what was asked was not begun."""
        return self.status in (429, 503)

    @property
    def is_not_known(self) -> bool:
        """Whether the method is one that the agent does not have."""
        return self.number == METHOD_NOT_FOUND

    @property
    def is_unsupported(self) -> bool:
        """Whether the agent does not do this, or not now: peers say it of busy contexts as well."""
        return self.number == UNSUPPORTED


# 409 is how agentfootprint says that it can't go on without a person: asking again would only run it again.
_BY_STATUS = {
    401: ("authentication_failed", False),
    403: ("authentication_failed", False),
    404: ("not_a2a", False),
    405: ("not_a2a", False),
    408: ("remote_unavailable", True),
    409: ("remote_conflict", False),
    413: ("too_large", False),
    429: ("rate_limited", True),
}
_BY_NUMBER = {
    TASK_NOT_FOUND: ("task_not_found", False),
    UNSUPPORTED: ("remote_unsupported", False),
    -32005: ("content_type_unsupported", False),
    VERSION_NOT_SUPPORTED: ("remote_version_unsupported", False),
    IDENTITY_REFUSED: ("authentication_failed", False),
    INTERNAL_ERROR: ("remote_failed", False),
}


def _meant(status: int, number: int) -> tuple[str, bool]:
    if status in _BY_STATUS:
        return _BY_STATUS[status]
    if status >= 500:
        return "remote_unavailable", True
    if status >= 400 and number == INTERNAL_ERROR:
        return "remote_refused", False
    return _BY_NUMBER.get(number, ("remote_refused", False))
