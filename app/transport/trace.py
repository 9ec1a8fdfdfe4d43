"""Reads the trace that a request belongs to from its headers. Source: W3C Trace Context."""

import re

_TRACEPARENT = re.compile(
    r"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(?:-.*)?"
)


def trace_id_of(traceparent: str | None) -> str | None:
    """The trace id of a `traceparent`; None when there is none or it is malformed, as the specification asks."""
    match = _TRACEPARENT.fullmatch(traceparent or "")
    return match[1] if match else None
