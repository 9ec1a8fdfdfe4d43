"""`tarko-server serve`: the server itself."""

from typing import Any


def serve(**flags: Any) -> int:
    """Serve until told to stop; returns the exit code."""
    from app.commands.configuration import load_settings
    from app.serving import serve as serve_with

    return serve_with(load_settings(**flags))
