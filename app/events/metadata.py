"""What an event says of itself beside its data: who it comes from, the protocol's version, the trace."""

from typing import Any

from app.events.canonical import encode
from app.events.vocabulary import VERSION, Source


def metadata(source: Source, trace_id: str | None = None, **extra: Any) -> bytes:
    """An event's metadata, encoded. `trace_id` is the 32 hex digits of a W3C trace."""
    fields: dict[str, Any] = {"source": source, "version": VERSION}
    if trace_id is not None:
        fields["traceId"] = trace_id
    return encode(fields | extra)
