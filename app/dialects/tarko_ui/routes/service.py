"""What the UI asks about the server itself."""

from functools import cache
from pathlib import Path
from typing import Any

from fastapi import APIRouter

import app
from app.dialects.tarko_ui.messages import PREFIX, FlatHealth, FlatVersion


def router() -> APIRouter:
    """The routes. Neither is public: a UI whose login has run out shows itself as disconnected."""
    api = APIRouter(prefix=PREFIX, tags=["ui: service"])

    @api.get("/health", response_model=FlatHealth)
    async def health() -> dict[str, Any]:
        """The server answers."""
        return {"status": "ok"}

    @api.get("/version", response_model=FlatVersion)
    async def version() -> dict[str, Any]:
        """The server's version."""
        return version_info()

    return api


@cache
def version_info() -> dict[str, Any]:
    """The version, and when it was installed."""
    installed = Path(app.__file__).stat().st_mtime_ns // 1_000_000
    return {"version": app.__version__, "buildTime": installed, "gitHash": ""}
