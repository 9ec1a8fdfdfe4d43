"""Turns: query, stream, abort, and both queries in a session of their own."""

from typing import Any

from fastapi import APIRouter, Request, Response

from app.access.caller import principal_of
from app.agents.prompt import prompt_of
from app.dialects.parts import Parts
from app.dialects.strict import StrictRoute
from app.dialects.tarko_ui.flat import frame
from app.dialects.tarko_ui.messages import (
    PREFIX,
    FlatDone,
    FlatOneShot,
    FlatOneShotResult,
    FlatQuery,
    FlatResult,
    OfSession,
)
from app.dialects.tarko_ui.routes.turns import Turns
from app.dialects.tarko_ui.settling import Answers
from app.events.canonical import encode
from app.sessions.session import Session

STREAM: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "Frames of one `data:` line each; the last event is `agent_run_end`.",
        "content": {
            "text/event-stream": {
                "example": 'data: {"id":"evt_agpzhxv4lz5czmzoyw3zw2h5ge_2","type":"user_message",'
                '"timestamp":1622548800000,"content":"Hello","role":"user"}\n\n'
            }
        },
    }
}


def router(parts: Parts, answers: Answers) -> APIRouter:
    """The routes over these parts."""
    api = APIRouter(prefix=PREFIX, tags=["ui: queries"], route_class=StrictRoute)
    turns = Turns(parts, answers)

    async def create(request: Request, body: FlatOneShot) -> Session:
        prompt_of(body.query)  # one that can't be read makes no session
        return await parts.directory.create(
            principal_of(request), parts.agents[0], name=body.sessionName, tags=body.sessionTags
        )

    @api.post("/sessions/query", response_model=FlatResult)
    async def query(request: Request, body: FlatQuery) -> Response:
        """Start a turn and wait for its last message, whatever its ending."""
        standing = await parts.directory.find(body.sessionId, principal_of(request))
        result = await turns.answer(request, standing.session, body.query)
        return Response(b'{"result":%b}' % result, media_type="application/json")

    @api.post("/sessions/query/stream", response_class=Response, responses=STREAM)
    async def query_stream(request: Request, body: FlatQuery) -> Response:
        """Start a turn and stream its events; the stream ends after `agent_run_end`, whatever happens."""
        standing = await parts.directory.find(body.sessionId, principal_of(request))
        return await turns.stream(request, standing.session, standing.last_place, body.query)

    @api.post("/sessions/abort", response_model=FlatDone)
    async def abort(request: Request, body: OfSession) -> Response:
        """Stop the running turn. The answer comes when nothing runs any more, so a late abort succeeds, too."""
        principal = principal_of(request)
        await parts.directory.find(body.sessionId, principal)
        await parts.supervisor.stops.abort(body.sessionId)
        await answers.before_end(principal, body.sessionId)
        return Response(encode({"success": True}), media_type="application/json")

    @api.post("/oneshot/query", response_model=FlatOneShotResult)
    async def oneshot(request: Request, body: FlatOneShot) -> Response:
        """Create a session, start a turn in it and wait for its last message."""
        session = await create(request, body)
        result = await turns.answer(request, session, body.query)
        content = b'{"sessionId":"%b","result":%b}' % (session.id.encode(), result)
        return Response(content, media_type="application/json")

    @api.post("/oneshot/query/stream", response_class=Response, responses=STREAM)
    async def oneshot_stream(request: Request, body: FlatOneShot) -> Response:
        """Create a session and stream its first turn, after an event `session_created`."""
        session = await create(request, body)
        created = {"type": "session_created", "sessionId": session.id, "timestamp": session.created_at}
        return await turns.stream(request, session, 1, body.query, frame(encode(created)))

    return api
