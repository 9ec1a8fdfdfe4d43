"""What of a turn's scope a remote server is told."""

import hashlib

from app.agents.contract import Scope


def traceparent(scope: Scope) -> dict[str, str]:
    """The W3C header that carries the turn's trace on, if it has one. Its parent span is the turn."""
    trace = scope.get("trace")
    if trace is None:
        return {}
    span = hashlib.sha256(scope.get("turn", "").encode()).hexdigest()[:16]
    return {"traceparent": f"00-{trace}-{span}-01"}
