"""The dialect's routes: each module has a `router(parts)`, and this is their list."""

from fastapi import APIRouter

from app.dialects.parts import Parts
from app.dialects.tarko_ui.routes import sessions


def routers(parts: Parts) -> list[APIRouter]:
    """All routes of the dialect over these parts."""
    return [
        sessions.router(parts),
    ]
