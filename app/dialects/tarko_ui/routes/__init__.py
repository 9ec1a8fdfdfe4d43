"""The dialect's routes: each module has a `router`, and this is their list."""

from pathlib import Path

from fastapi import APIRouter

from app.dialects.parts import Parts
from app.dialects.tarko_ui.routes import (
    events,
    models,
    page,
    query,
    service,
    sessions,
    settings,
    share,
    summary,
    workspace,
)
from app.dialects.tarko_ui.routes.folder import Folder
from app.dialects.tarko_ui.settling import Answers

fonts = page.fonts
is_public = page.is_public


def routers(parts: Parts, title: str, files: Path | None) -> list[APIRouter]:
    """All routes of the dialect over these parts. `title` is that of the UI's page, `files` the folder that it offers.

    Raises `ConfigurationError` when there is no such folder.
    """
    folder = None if files is None else Folder(files)
    answers = Answers(parts.directory, parts.logs)
    return [
        service.router(),
        sessions.router(parts, answers),
        events.router(parts),
        query.router(parts, answers),
        share.router(parts, title),
        summary.router(parts),
        models.router(parts),
        settings.router(parts, None if folder is None else folder.name),
        workspace.router(parts, folder),
        page.router(title, has_files=folder is not None),
    ]
