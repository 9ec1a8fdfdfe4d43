"""The error tree: one class for each thing that a caller can act on.

`code` is for programs and never changes; the message says what was expected and what came. The web edge turns each
into `{"error": message, "code": code, "details": details}` with the class's `status`.
"""

from typing import Any


class TarkoError(Exception):
    """Anything this server refuses or cannot do, with a stable code.

    Attributes: `status` the HTTP status it maps to, `code` in lower snake case, `details` JSON or None.
    """

    status = 500
    code = "internal_error"

    def __init__(
        self, message: str, *, code: str | None = None, details: dict[str, Any] | None = None
    ) -> None:
        super().__init__(message)
        self.code = code or type(self).code
        self.details = details


class BadRequest(TarkoError):
    """The request is not what the protocol says: mend it and send it again."""

    status = 400
    code = "bad_request"


class Unauthenticated(TarkoError):
    """No valid token or cookie came with the request."""

    status = 401
    code = "unauthenticated"


class Forbidden(TarkoError):
    """The request comes from an origin or to a host that is not allowed."""

    status = 403
    code = "forbidden"


class NotFound(TarkoError):
    """No such thing, or it belongs to another principal: the two are not told apart."""

    status = 404
    code = "not_found"


class SessionNotFound(NotFound):
    """No such session for this principal."""

    code = "session_not_found"


class SessionDeleted(NotFound):
    """The session existed and was deleted."""

    code = "session_deleted"


class SessionBusy(TarkoError):
    """Another turn runs in this session: wait for its ending, or abort it."""

    status = 409
    code = "session_busy"


class TooLarge(TarkoError):
    """The request is bigger than the server takes."""

    status = 413
    code = "too_large"


class Unavailable(TarkoError):
    """The server can't take this now (draining, or its database is away); try again later.

    `retry_after` is in seconds and becomes the `Retry-After` header.
    """

    status = 503
    code = "unavailable"
    retry_after = 2


class ShuttingDown(Unavailable):
    """The server is draining and admits no more work."""

    code = "server_shutdown"


class StorageUnavailable(Unavailable):
    """The database did not answer."""

    code = "storage_unavailable"


class AgentLoadError(TarkoError):
    """The agent named in the settings cannot be served; the message says why and how to mend it."""

    code = "agent_not_loaded"


class ConfigurationError(TarkoError):
    """The settings contradict each other or the machine; the message says how to mend them."""

    code = "bad_configuration"
