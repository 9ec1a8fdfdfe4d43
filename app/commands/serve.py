"""`tarko-server serve`: the server itself."""

from typing import Any


def serve(**flags: Any) -> int:
    """Serve until told to stop; returns the exit code."""
    from app.commands.configuration import load_settings
    from app.serving import serve as serve_alone
    from app.workers import serve_with_workers

    settings = load_settings(**flags)
    return serve_alone(settings) if settings.workers == 1 else serve_with_workers(settings)
