"""What can go wrong between an agent here and its remote server, as the `failed` event that the turn ends with."""

import re

import httpx

from app.agents.contract import Failed

NEVER_PROXIED = ("all://localhost", "all://127.0.0.1", "all://[::1]")
"""A proxy from the environment is for the way out: it can't reach what listens on this machine."""

_DETAILS_LIMIT = 2_000
_TOKEN = re.compile(r"[!-~]+")


class RemoteFailure(Exception):
    """The remote server did not do what was asked. `code` and `retryable` are those of the turn that fails so."""

    code = "remote_failed"
    retryable = False

    def event(self) -> Failed:
        """The terminal event."""
        return {
            "type": "failed",
            "details": str(self)[:_DETAILS_LIMIT],
            "retryable": self.retryable,
            "code": self.code,
        }


class ConnectionLost(RemoteFailure):
    """The connection broke or fell silent; what was asked may have been done."""

    code = "connection_lost"
    retryable = True


class NoAnswer(RemoteFailure):
    """There was no connection: nothing was asked."""

    code = "remote_unavailable"
    retryable = True


class Silence(ConnectionLost):
    """Nothing came for too long."""


class BadRemoteEvent(Exception):
    """The remote server sent what is no event of its protocol; the message says what was expected."""

    def event(self) -> Failed:
        """The terminal event."""
        details = f"The remote server sent what is no event: {self}."
        return {
            "type": "failed",
            "details": details[:_DETAILS_LIMIT],
            "retryable": False,
            "code": "bad_remote_event",
        }


def lost(url: str, error: httpx.RequestError) -> ConnectionLost | NoAnswer:
    """What became of a request that got no whole answer."""
    if isinstance(error, httpx.ConnectError | httpx.ConnectTimeout):
        return NoAnswer(f"No server answers at {url}.")
    if isinstance(error, httpx.ReadTimeout):
        return Silence(f"{url} said nothing for too long.")
    return ConnectionLost(f"The connection to {url} was lost: {type(error).__name__}.")


def retry_after(headers: httpx.Headers) -> float | None:
    """The seconds that a `Retry-After` asks for; a date there counts as none."""
    said = headers.get("retry-after", "").strip()
    return float(said) if said.isascii() and said.isdigit() else None


def is_token(text: str) -> bool:
    """Whether it can be sent as a bearer token."""
    return _TOKEN.fullmatch(text) is not None
