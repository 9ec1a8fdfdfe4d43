"""Sessions: create, list, look at, change, delete."""

from fastapi import APIRouter, Request, Response

from app.access.caller import principal_of
from app.dialects.answering import json_answer
from app.dialects.parts import Parts
from app.dialects.strict import StrictRoute
from app.dialects.tarko_ui.messages import (
    PREFIX,
    FlatCreate,
    FlatCreated,
    FlatDetails,
    FlatDone,
    FlatSessions,
    FlatStatus,
    FlatUpdate,
    OfSession,
    SessionParam,
)
from app.dialects.tarko_ui.session_info import COMPUTED, is_processing, options_for, session_info
from app.dialects.tarko_ui.settling import Answers
from app.sessions.directory import Directory
from app.sessions.session import Change, Standing
from app.sessions.store import ListPlace
from app.turns.deletion import delete_session

PAGE = 1000


def router(parts: Parts, answers: Answers) -> APIRouter:
    """The routes over these parts."""
    api = APIRouter(prefix=f"{PREFIX}/sessions", tags=["ui: sessions"], route_class=StrictRoute)
    directory, options = parts.directory, parts.supervisor.options

    @api.post("/create", status_code=201, response_model=FlatCreated)
    async def create(request: Request, body: FlatCreate | None = None) -> Response:
        """Create a session, with settings that were chosen before. The body may be left out."""
        agent, chosen = parts.agents[0], (body or FlatCreate()).runtimeSettings
        session = await directory.create(
            principal_of(request),
            agent,
            attributes=options_for(agent, options).choosing_settings(chosen) if chosen else None,
        )
        return json_answer(
            {"sessionId": session.id, "session": session_info(session, options), "events": []}, 201
        )

    @api.get("", response_model=FlatSessions)
    async def list_sessions(request: Request) -> Response:
        """All sessions of the caller, the one changed last first."""
        return json_answer(
            {"sessions": [session_info(s.session, options) for s in await by_change(parts, request)]}
        )

    @api.get("/details", response_model=FlatDetails)
    async def details(request: Request, session_id: SessionParam) -> Response:
        """One session."""
        standing = await directory.find(session_id, principal_of(request))
        return json_answer({"session": session_info(standing.session, options)})

    @api.get("/status", response_model=FlatStatus)
    async def status(request: Request, session_id: SessionParam) -> Response:
        """Whether a turn runs or waits. That of a new session has time to come before it is told that none does."""
        is_running = is_processing(await answers.standing(session_id, principal_of(request)))
        status = {"isProcessing": is_running, "state": "executing" if is_running else "idle"}
        return json_answer({"sessionId": session_id, "status": status})

    @api.post("/update", response_model=FlatDetails)
    async def update(request: Request, body: FlatUpdate) -> Response:
        """Change name, tags or metadata. Concurrent changes are merged."""
        standing = await directory.update(body.sessionId, principal_of(request), _change(body))
        return json_answer({"session": session_info(standing.session, options)})

    @api.post("/delete", response_model=FlatDone)
    async def delete(request: Request, body: OfSession) -> Response:
        """Delete the session: its turn is aborted, its readers are told, its data is removed."""
        await delete_session(
            body.sessionId,
            principal_of(request),
            directory=directory,
            supervisor=parts.supervisor,
            commit=parts.commit,
        )
        return json_answer({"success": True})

    return api


async def by_change(parts: Parts, request: Request) -> list[Standing]:
    """The caller's sessions, the one changed last first."""
    found = await _all(parts.directory, principal_of(request))
    return sorted(found, key=lambda standing: standing.session.updated_at, reverse=True)


async def _all(directory: Directory, principal: str) -> list[Standing]:
    found: list[Standing] = []
    after: ListPlace | None = None
    while True:
        page = await directory.list(principal, limit=PAGE, after=after)
        found += page
        if len(page) < PAGE:
            return found
        last = page[-1].session
        after = ListPlace(last.created_at, last.id)


def _change(body: FlatUpdate) -> Change:
    kept = body.metadata.model_extra or {}
    return Change(
        name=body.metadata.name if body.name is None else body.name,
        tags=body.metadata.tags if body.tags is None else body.tags,
        attributes={key: value for key, value in kept.items() if key not in COMPUTED},
    )
