"""The dialect's routes: each module has a `router`, and this is their list."""

from fastapi import APIRouter

from app.dialects.parts import Parts
from app.dialects.tarko_ui.routes import events, page, query, service, sessions, share, summary
from app.dialects.tarko_ui.settling import Settling

fonts = page.fonts
is_public = page.is_public


def routers(parts: Parts, title: str) -> list[APIRouter]:
    """All routes of the dialect over these parts. `title` is that of the UI's page."""
    settling = Settling()
    return [
        service.router(),
        sessions.router(parts, settling),
        events.router(parts),
        query.router(parts, settling),
        share.router(parts, title),
        summary.router(parts),
        page.router(title),
    ]
