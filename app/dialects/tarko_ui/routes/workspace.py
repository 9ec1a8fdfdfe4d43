"""The workspace: what the UI offers behind an `@`. Without a folder in the settings there is an empty one."""

from collections.abc import Callable
from typing import Annotated, Literal, TypeVar

from anyio import CapacityLimiter, to_thread
from fastapi import APIRouter, Query, Request, Response

from app.access.caller import principal_of
from app.dialects.answering import json_answer
from app.dialects.parts import Parts
from app.dialects.strict import StrictRoute
from app.dialects.tarko_ui.messages import (
    PREFIX,
    FlatFiles,
    FlatFound,
    FlatPaths,
    FlatValidated,
    SessionParam,
)
from app.dialects.tarko_ui.routes.folder import MAX_PATH, Folder
from app.errors import BadRequest, NotFound

THREADS = 4

T = TypeVar("T")


def router(parts: Parts, folder: Folder | None) -> APIRouter:
    """The routes. Each names a session, which must be the caller's."""
    api = APIRouter(prefix=f"{PREFIX}/sessions/workspace", tags=["ui: workspace"], route_class=StrictRoute)
    # Of their own, so that a disk that hangs holds up nobody else.
    threads = CapacityLimiter(THREADS)

    async def look(request: Request, session_id: str, work: Callable[[Folder], T]) -> T | None:
        await parts.directory.find(session_id, principal_of(request))
        return None if folder is None else await to_thread.run_sync(work, folder, limiter=threads)

    @api.get("/search", response_model=FlatFound)
    async def search(
        request: Request,
        session_id: SessionParam,
        q: Annotated[str, Query(max_length=200)] = "",
        kind: Annotated[Literal["file", "directory", "all"], Query(alias="type")] = "all",
    ) -> Response:
        """Up to 20 files and folders whose path has these letters."""
        items = await look(request, session_id, lambda folder: folder.search(q, kind))
        return json_answer({"items": items or []})

    @api.post("/validate", response_model=FlatValidated)
    async def validate(
        request: Request,
        body: FlatPaths,
        session_id: Annotated[str | None, Query(alias="sessionId", max_length=200)] = None,
    ) -> Response:
        """Whether these exist, and as what."""
        named = session_id or body.sessionId
        if named is None:
            raise BadRequest("query.sessionId: Field required.")
        found = await look(request, named, lambda folder: [folder.kind(path) for path in body.paths])
        kinds = found or [None] * len(body.paths)
        results = [
            {"path": path, "exists": kind is not None} | ({} if kind is None else {"type": kind})
            for path, kind in zip(body.paths, kinds, strict=True)
        ]
        return json_answer({"results": results})

    @api.get("/files", response_model=FlatFiles)
    async def files(
        request: Request, session_id: SessionParam, path: Annotated[str, Query(max_length=MAX_PATH)] = ""
    ) -> Response:
        """A file with its content, or a folder with its entries."""
        found = await look(request, session_id, lambda folder: folder.look(path))
        if found is None:
            raise NotFound("This server has no workspace.", code="file_not_found")
        return json_answer(found)

    return api
