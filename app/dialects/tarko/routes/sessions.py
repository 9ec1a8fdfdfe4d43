"""Sessions: create, list, look at, change, delete."""

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError

from app.access.caller import principal_of
from app.dialects.answering import json_answer
from app.dialects.parts import Parts
from app.dialects.strict import StrictRoute
from app.dialects.tarko.messages import (
    Created,
    CreateSession,
    Done,
    NamedSession,
    SessionDetails,
    SessionList,
    SessionStatus,
    UpdateSession,
)
from app.errors import BadRequest
from app.events.ids import event_id, is_session_id
from app.sessions.session import Change, Standing
from app.sessions.store import ListPlace
from app.turns.deletion import delete_session

SessionParam = Annotated[str, Query(alias="sessionId", max_length=200)]


def router(parts: Parts) -> APIRouter:
    """The routes over these parts."""
    api = APIRouter(prefix="/api/v1/sessions", tags=["sessions"], route_class=StrictRoute)
    directory = parts.directory

    @api.post("/create", status_code=201, response_model=Created)
    async def create(request: Request, body: CreateSession | None = None) -> Response:
        """Create a session. The body may be left out."""
        wanted = body or CreateSession()
        session = await directory.create(
            principal_of(request), agent_for(parts, wanted.agent), name=wanted.name, tags=wanted.tags
        )
        return json_answer({"sessionId": session.id, "createdAt": session.created_at}, status=201)

    @api.get("", response_model=SessionList, response_model_exclude_none=True)
    async def list_sessions(
        request: Request,
        limit: Annotated[int, Query(ge=1, le=1000)] = 100,
        after: Annotated[str | None, Query(max_length=200)] = None,
    ) -> Response:
        """The caller's sessions, newest first; `nextAfter` of one page is the `after` of the next."""
        page = await directory.list(principal_of(request), limit=limit + 1, after=_list_place(after))
        body: dict[str, Any] = {"sessions": [_item(standing) for standing in page[:limit]]}
        if len(page) > limit:
            last = page[limit - 1].session
            body["nextAfter"] = f"{last.created_at}.{last.id}"
        return json_answer(body)

    @api.get("/details", response_model=SessionDetails)
    async def details(request: Request, session_id: SessionParam) -> Response:
        """One session."""
        return json_answer({"session": _item(await directory.find(session_id, principal_of(request)))})

    @api.get("/status", response_model=SessionStatus)
    async def status(request: Request, session_id: SessionParam) -> Response:
        """Whether a turn runs in the session."""
        standing = await directory.find(session_id, principal_of(request))
        return json_answer({"sessionId": session_id, "status": _status(standing)})

    @api.post("/update", response_model=SessionDetails)
    async def update(request: Request, body: UpdateSession) -> Response:
        """Change name, tags or metadata. Concurrent changes are merged."""
        standing = await directory.update(body.sessionId, principal_of(request), _change(body))
        return json_answer({"session": _item(standing)})

    @api.post("/delete", response_model=Done)
    async def delete(request: Request, body: NamedSession) -> Response:
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


def agent_for(parts: Parts, name: str | None) -> str:
    """The agent of that name, or the default one.

    Raises `BadRequest` (`unknown_agent`).
    """
    if name is None:
        return parts.agents[0]
    if name not in parts.agents:
        raise BadRequest(
            f"There is no agent {name!r}.", code="unknown_agent", details={"agents": list(parts.agents)}
        )
    return name


def _change(body: UpdateSession) -> Change:
    attributes = dict(body.metadata or {})
    fields = {key: attributes.pop(key) for key in ("name", "tags") if key in attributes}
    try:
        within = UpdateSession.model_validate({"sessionId": body.sessionId} | fields)
    except ValidationError as error:
        problems = [{**problem, "loc": ("body", "metadata", *problem["loc"])} for problem in error.errors()]
        raise RequestValidationError(problems) from error
    return Change(
        name=within.name if body.name is None else body.name,
        tags=within.tags if body.tags is None else body.tags,
        attributes=attributes,
    )


def _item(standing: Standing) -> dict[str, Any]:
    session = standing.session
    return {
        "id": session.id,
        "createdAt": session.created_at,
        "updatedAt": session.updated_at,
        "name": session.name,
        "tags": session.tags,
        "agent": session.agent,
        "metadata": session.attributes,
        "status": _status(standing),
        "lastEventId": event_id(session.id, standing.last_place),
    }


def _status(standing: Standing) -> dict[str, Any]:
    ended = {} if standing.last_ending is None else {"lastEnding": standing.last_ending}
    if standing.running_turn is None:
        return {"isProcessing": False, "state": "idle", "queued": standing.queued} | ended
    return {
        "isProcessing": True,
        "state": "executing",
        "turnId": standing.running_turn,
        "queued": standing.queued,
    } | ended


def _list_place(cursor: str | None) -> ListPlace | None:
    if cursor is None:
        return None
    created_at, _, session_id = cursor.partition(".")
    if not (
        created_at.isascii() and created_at.isdigit() and len(created_at) < 16 and is_session_id(session_id)
    ):
        raise BadRequest("`after` is the `nextAfter` of an earlier page.", code="bad_cursor")
    return ListPlace(int(created_at), session_id)
