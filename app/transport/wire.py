"""The server's own `send`, beneath every middleware.

Middleware has had its say when a response or a socket has begun: what follows is bytes, and each layer in between costs
a coroutine for every write to every reader. The application's outermost layer marks the scope; streams look there.
"""

from starlette.types import Scope, Send

_KEY = "tarko.send"


def mark(scope: Scope, send: Send) -> None:
    """Remember the server's `send` of this connection."""
    scope[_KEY] = send


def wire_of(scope: Scope, send: Send) -> Send:
    """The server's `send`, or this one where nobody marked it."""
    found: Send = scope.get(_KEY, send)
    return found
