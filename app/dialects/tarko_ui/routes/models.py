"""The models that an agent allows, and a session's choice of one."""

from typing import Any

from fastapi import APIRouter, Request, Response

from app.access.caller import principal_of
from app.dialects.parts import Parts
from app.dialects.strict import StrictRoute
from app.dialects.tarko_ui.messages import PREFIX, FlatModelChoice, FlatModelChosen, FlatModels
from app.dialects.tarko_ui.session_info import options_for, session_info
from app.events.canonical import encode
from app.sessions.session import Change


def router(parts: Parts) -> APIRouter:
    """The routes over these parts."""
    api = APIRouter(prefix=PREFIX, tags=["ui: models"], route_class=StrictRoute)
    options = parts.supervisor.options

    @api.get("/models", response_model=FlatModels)
    async def models() -> dict[str, Any]:
        """The models of the agent that new sessions have, its default first."""
        return {"models": options_for(parts.agents[0], options).models}

    @api.post("/sessions/model", response_model=FlatModelChosen)
    async def choose(request: Request, body: FlatModelChoice) -> Response:
        """Choose the session's model, from its next turn on."""
        principal = principal_of(request)
        session = (await parts.directory.find(body.sessionId, principal)).session
        chosen = options_for(session.agent, options).choosing_model(body.model.id, body.model.provider)
        changed = await parts.directory.update(session.id, principal, Change(attributes=chosen))
        info = session_info(changed.session, options)
        return Response(encode({"success": True, "sessionInfo": info}), media_type="application/json")

    return api
