"""What a request says of who asks and of the trace it belongs to, for every dialect."""

import re

from starlette.requests import HTTPConnection

from app.errors import Unauthenticated

_TRACEPARENT = re.compile(
    r"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(?:-.*)?"
)


def principal_of(connection: HTTPConnection) -> str:
    """Who asks. The gate has let nobody pass who has no name."""
    principal = connection.scope.get("state", {}).get("principal")
    if not isinstance(principal, str):
        raise Unauthenticated("Who are you?")
    return principal


def trace_id_of(traceparent: str | None) -> str | None:
    """The trace id of a W3C `traceparent`; None when there is none or it is malformed, as the specification asks."""
    match = _TRACEPARENT.fullmatch(traceparent or "")
    return match[1] if match else None
