"""Sessions: create, list, look at, change, delete."""

from fastapi import APIRouter, Request, Response

from app.dialects.parts import Parts, principal_of
from app.dialects.strict import StrictRoute
from app.dialects.tarko_ui.messages import PREFIX, SessionDetails, SessionParam
from app.dialects.tarko_ui.session_info import session_info
from app.events.canonical import encode


def router(parts: Parts) -> APIRouter:
    """The routes over these parts."""
    api = APIRouter(prefix=f"{PREFIX}/sessions", tags=["ui: sessions"], route_class=StrictRoute)
    directory = parts.directory

    @api.get("/details", response_model=SessionDetails)
    async def details(request: Request, session_id: SessionParam) -> Response:
        """One session."""
        standing = await directory.find(session_id, principal_of(request))
        body = {"session": session_info(standing.session)}
        return Response(encode(body), media_type="application/json")

    return api
