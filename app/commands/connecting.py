"""The server that a command talks to: where it is, how a lost connection is told, and what a failure means.

The client's errors are a programmer's; here they become one line for a person at a terminal, with what to do about it.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from app.commands.failures import CommandFailed
from app.commands.screen import Screen
from tarko_client import Client, ClientError, ConnectionState, NoServer
from tarko_client.link import OnState


def server_url(given: str | None, environment: Mapping[str, str] = os.environ) -> str:
    """Where the server is: as given, else `TARKO_URL`, else this machine at `TARKO_PORT`."""
    text = given or environment.get("TARKO_URL") or f"127.0.0.1:{environment.get('TARKO_PORT') or 8888}"
    return text if "://" in text else f"http://{text}"


@contextmanager
def connected(url: str, token: str | None) -> Iterator[Client]:
    """A client for the block. Raises CommandFailed for whatever goes wrong between it and the server."""
    try:
        client = Client(url, token)
    except ValueError as error:
        raise CommandFailed(str(error), code="bad_address") from error
    with client, explained():
        yield client


@contextmanager
def explained() -> Iterator[None]:
    """The client's errors in the block, as failures of the command."""
    try:
        yield
    except ClientError as error:
        raise CommandFailed(explanation(error), code=error.code) from error


def explanation(error: ClientError) -> str:
    """What went wrong, and what to do about it."""
    if isinstance(error, NoServer):
        return f"{error} Start one with `tarko-server serve`."
    if error.code == "unauthenticated":
        return f"{error} Give the token of a principal: set TARKO_TOKEN, or use --token."
    return str(error)


def noticing(screen: Screen) -> OnState:
    """Tells of each loss when the reader will be back."""

    def tell(state: ConnectionState) -> None:
        if state.name == "waiting":
            screen.notice(f"{state.error} Coming back in {state.seconds:.1f} s.")

    return tell
