"""An error of the tree as an ASGI answer, for what is refused before any route has its say.

The body is the one every route gives: `{"error": text, "code": code}`. A WebSocket is refused before it is accepted,
so its client sees an HTTP status: ours where the server can send it, else the 403 that every server makes of a close.
"""

import orjson
from starlette.types import Scope, Send

from app.errors import TarkoError, Unauthenticated

_POLICY_VIOLATION = 1008


def refusal_body(error: TarkoError) -> bytes:
    return orjson.dumps({"error": str(error), "code": error.code})


def refusal_headers(error: TarkoError) -> dict[str, str]:
    headers = {"content-type": "application/json"}
    if isinstance(error, Unauthenticated):
        headers["www-authenticate"] = "Bearer"
    return headers


async def refuse(error: TarkoError, scope: Scope, send: Send) -> None:
    """Answer an HTTP request, or a WebSocket not yet accepted, with `error`."""
    if scope["type"] == "http":
        await _send_response("http", error, send)
    elif "websocket.http.response" in (scope.get("extensions") or {}):
        await _send_response("websocket.http", error, send)
    else:
        await send({"type": "websocket.close", "code": _POLICY_VIOLATION, "reason": error.code})


async def _send_response(prefix: str, error: TarkoError, send: Send) -> None:
    body = refusal_body(error)
    headers = refusal_headers(error) | {"content-length": str(len(body))}
    await send(
        {
            "type": f"{prefix}.response.start",
            "status": error.status,
            "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
        }
    )
    await send({"type": f"{prefix}.response.body", "body": body})
