"""The settings that an agent declares, a session's choice of values, and what the UI shows of the agent.

The path of the settings has moved between builds of the UI: both are served.
"""

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response

from app.access.caller import principal_of
from app.dialects.answering import json_answer
from app.dialects.parts import Parts
from app.dialects.strict import StrictRoute
from app.dialects.tarko_ui.messages import (
    PREFIX,
    FlatOptions,
    FlatSettings,
    FlatSettingsChoice,
    FlatSettingsChosen,
)
from app.dialects.tarko_ui.session_info import options_for, session_info
from app.errors import NotFound
from app.sessions.session import Change

PATHS = ("/runtime-settings", "/sessions/runtime-settings")
NO_SETTINGS: dict[str, Any] = {"type": "object", "properties": {}}


def router(parts: Parts, workspace: str | None) -> APIRouter:
    """The routes over these parts. `workspace` is the name of the folder whose files are offered, if there is one."""
    api = APIRouter(prefix=PREFIX, tags=["ui: settings"], route_class=StrictRoute)
    options = parts.supervisor.options

    async def settings(
        request: Request, session_id: Annotated[str | None, Query(alias="sessionId", max_length=200)] = None
    ) -> Response:
        """What can be set, and the session's values. The UI also asks before there is a session: then for the defaults."""
        agent, attributes = parts.agents[0], {}
        if session_id is not None:
            try:
                session = (await parts.directory.find(session_id, principal_of(request))).session
                agent, attributes = session.agent, session.attributes
            except NotFound:
                pass
        found = options_for(agent, options)
        values = {} if session_id is None else found.settings(attributes)
        return json_answer({"schema": found.schema or NO_SETTINGS, "currentValues": values})

    async def choose(request: Request, body: FlatSettingsChoice) -> Response:
        """Choose the session's settings, from its next turn on, instead of all that were chosen before."""
        principal = principal_of(request)
        session = (await parts.directory.find(body.sessionId, principal)).session
        chosen = options_for(session.agent, options).choosing_settings(body.runtimeSettings)
        changed = (await parts.directory.update(session.id, principal, Change(attributes=chosen))).session
        values = options_for(changed.agent, options).settings(changed.attributes)
        return json_answer({"session": session_info(changed, options), "runtimeSettings": values})

    for path in PATHS:
        api.get(path, response_model=FlatSettings)(settings)
        api.post(path, response_model=FlatSettingsChosen)(choose)

    @api.get("/agent/options", response_model=FlatOptions)
    async def agent_options() -> Response:
        """What people may know of the agent: its name, its models, the workspace's name. Nothing of its configuration."""
        agent = parts.agents[0]
        told: dict[str, Any] = {"id": agent, "name": agent}
        if (model := options_for(agent, options).model({})) is not None:
            told["model"] = model
        if workspace is not None:
            told |= {"workspace": workspace, "workspaceName": workspace}
        return json_answer({"options": told})

    return api
