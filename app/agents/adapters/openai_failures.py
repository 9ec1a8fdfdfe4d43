"""What goes wrong at an OpenAI-compatible provider, as the `failed` event that a turn ends with.

The class of the error and the status decide, then the provider's own code; never its prose. What was visible
already must not be said again, so a failure after the first text is never retryable. The key appears in no
message.
"""

from typing import Any

import openai

from app.agents.adapters.failures import AgentFailure, of_status, without_keys
from app.agents.contract import Failed
from app.errors import TarkoError, Unavailable

_BY_PROVIDERS_CODE = {
    "context_length_exceeded": ("context_length_exceeded", False),
    "insufficient_quota": ("rate_limited", False),
    "rate_limit_exceeded": ("rate_limited", True),
    "rate_limit_error": ("rate_limited", True),
    "server_error": ("provider_unavailable", True),
    "overloaded_error": ("provider_unavailable", True),
}


class StreamCut(Exception):
    """The provider's answer stopped before it said why it ends."""

    def __init__(self) -> None:
        super().__init__("the provider's stream ended in the middle of the answer")


def failure(error: Exception, *, had_text: bool, secret: str) -> Failed:
    """The event for that error. `secret` is taken out of its details."""
    code, retryable = _classified(error)
    return {
        "type": "failed",
        "details": _clean(_details(error, code), secret),
        "retryable": retryable and not had_text,
        "code": code,
    }


def _classified(error: Exception) -> tuple[str, bool]:
    match error:
        case StreamCut():
            return "stream_cut", True
        case openai.APITimeoutError():
            return "provider_timeout", True
        case openai.APIConnectionError():
            return "provider_unavailable", True
        case openai.APIError():
            return _of_answer(error)
        case AgentFailure():
            return error.code, error.retryable
        case TarkoError():
            return error.code, isinstance(error, Unavailable)
        case _:
            return "provider_error", False


def _of_answer(error: openai.APIError) -> tuple[str, bool]:
    """An error that the provider itself told, by status or within a stream."""
    for said in (error.code, error.type):
        if said in _BY_PROVIDERS_CODE:
            return _BY_PROVIDERS_CODE[said]
    status = error.status_code if isinstance(error, openai.APIStatusError) else 0
    return of_status(status) if status >= 400 else ("provider_error", False)


def _details(error: Exception, code: str) -> str:
    if code == "authentication_failed":
        return "the provider refused the API key"
    if isinstance(error, openai.APIError):
        return f"the provider said: {_providers_message(error.body) or error.message}"
    return (
        str(error)
        if isinstance(error, StreamCut | AgentFailure | TarkoError)
        else f"{type(error).__name__}: {error}"
    )


def _providers_message(body: Any) -> str | None:
    message = body.get("message") if isinstance(body, dict) else None
    return message if isinstance(message, str) else None


def _clean(details: str, secret: str) -> str:
    if secret:
        details = details.replace(secret, "***")
    return without_keys(details)
