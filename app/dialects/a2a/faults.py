"""What is wrong with a call, as JSON-RPC tells it: the SDK's errors and codes, never what went wrong inside.

A server that is not able now (draining, its database is away) is no fault of a call and not told here: HTTP 503 is.
"""

from typing import Any

from a2a.utils.error_handlers import build_error_details
from a2a.utils.errors import (
    JSON_RPC_ERROR_CODE_MAP,
    A2AError,
    InvalidParamsError,
    TaskNotFoundError,
    UnsupportedOperationError,
)

from app.dialects.a2a.spelling import Version, json_of
from app.errors import BadRequest, NotFound, SessionBusy, TarkoError, TooLarge
from app.turns.admission import NothingAsked

_SAME: tuple[tuple[type[TarkoError], type[A2AError]], ...] = (
    (NotFound, TaskNotFoundError),
    (SessionBusy, UnsupportedOperationError),
    (NothingAsked, UnsupportedOperationError),
    (BadRequest, InvalidParamsError),
    (TooLarge, InvalidParamsError),
)


def fault_of(error: TarkoError) -> A2AError | None:
    """The caller's fault that this is; None when it is the server's."""
    for ours, theirs in _SAME:
        if isinstance(error, ours):
            return theirs(str(error), {"code": error.code})
    return None


def error_body(fault: A2AError, request_id: str | int | None, version: Version) -> bytes:
    """The JSON-RPC error. 1.0 adds details for programs."""
    error: dict[str, Any] = {"code": JSON_RPC_ERROR_CODE_MAP[type(fault)], "message": fault.message}
    if version == "1.0":
        error["data"] = build_error_details(fault)
    elif fault.data:
        error["data"] = fault.data
    return json_of({"jsonrpc": "2.0", "id": request_id, "error": error})
