"""An answer of JSON in the canonical encoding, whatever the dialect."""

from typing import Any

from starlette.responses import Response

from app.events.canonical import encode


def json_answer(body: dict[str, Any], status: int = 200) -> Response:
    """The body as a response."""
    return Response(encode(body), status, media_type="application/json")
