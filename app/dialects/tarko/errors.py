"""Every refusal in one shape: `{"error": text, "code": code, "details"?: {}}`. Never a stack, never an echo."""

import logging
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from app.errors import BadRequest, TarkoError, Unavailable
from app.events.canonical import encode

_logger = logging.getLogger(__name__)

_CODES = {404: "not_found", 405: "method_not_allowed"}


def install(api: FastAPI) -> None:
    """Answer every exception of the API so."""
    api.add_exception_handler(TarkoError, _refused)
    api.add_exception_handler(RequestValidationError, _invalid)
    api.add_exception_handler(HTTPException, _http)
    api.add_exception_handler(Exception, _unexpected)


def refusal(error: TarkoError) -> Response:
    """The response that tells an error."""
    body: dict[str, Any] = {"error": str(error), "code": error.code}
    if error.details is not None:
        body["details"] = error.details
    headers = {"retry-after": str(error.retry_after)} if isinstance(error, Unavailable) else {}
    return Response(encode(body), error.status, headers, media_type="application/json")


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, TarkoError)  # noqa: S101 - registered for no other
    if isinstance(error, Unavailable):
        _logger.warning("%s %s: %s", request.method, request.url.path, error)
        return refusal(type(error)("The server can't do this now; try again soon.", code=error.code))
    return refusal(error)


async def _invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)  # noqa: S101 - registered for no other
    if isinstance(error.body, bytes):
        return refusal(BadRequest("Send the body as JSON, with `content-type: application/json`."))
    problems = [
        {"field": ".".join(str(step) for step in problem["loc"])[:200], "problem": problem["msg"][:500]}
        for problem in error.errors()[:20]
    ]
    is_json = error.errors()[0]["type"] != "json_invalid"
    cause = "" if is_json else f": {error.errors()[0].get('ctx', {}).get('error', '')}"[:200]
    message = (
        f"{problems[0]['field']}: {problems[0]['problem']}." if is_json else f"The body is not JSON{cause}."
    )
    code = "bad_request" if is_json else "bad_json"
    return refusal(BadRequest(message, code=code, details={"problems": problems} if is_json else None))


async def _http(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)  # noqa: S101 - registered for no other
    status = HTTPStatus(error.status_code)
    code = _CODES.get(status, status.phrase.lower().replace(" ", "_"))
    body = encode({"error": f"{status.phrase}.", "code": code})
    return Response(body, status, error.headers, media_type="application/json")


async def _unexpected(request: Request, error: Exception) -> Response:
    _logger.error("%s %s failed", request.method, request.url.path, exc_info=error)
    return refusal(TarkoError("The server failed to answer this."))
