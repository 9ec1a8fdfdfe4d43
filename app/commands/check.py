"""`tarko-server check`: a named place for the conformance checks, which are not there yet."""

from typing import NoReturn

from app.commands.failures import NotSupported


def check() -> NoReturn:
    """Say that it is not there yet."""
    raise NotSupported("Checking a server's conformance is not there yet.")
