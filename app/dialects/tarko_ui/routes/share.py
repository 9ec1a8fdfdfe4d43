"""Sharing: a page of its own that plays a session back."""

from anyio import to_thread
from fastapi import APIRouter, Request, Response

from app.dialects.parts import Parts, principal_of
from app.dialects.strict import StrictRoute
from app.dialects.tarko_ui.messages import PREFIX, ShareConfig, Shared, ShareRequest
from app.dialects.tarko_ui.page import replay_page
from app.dialects.tarko_ui.routes.events import flat_events
from app.dialects.tarko_ui.routes.service import version_info
from app.dialects.tarko_ui.session_info import session_info
from app.errors import BadRequest, SessionBusy
from app.events.canonical import encode


def router(parts: Parts, title: str) -> APIRouter:
    """The routes over these parts. `title` is the page's."""
    api = APIRouter(prefix=PREFIX, tags=["ui: sharing"], route_class=StrictRoute)

    @api.get("/share/config", response_model=ShareConfig)
    async def config() -> Response:
        """Where shared pages could be uploaded to: nowhere, they are downloaded."""
        return Response(
            encode({"hasShareProvider": False, "shareProvider": None}), media_type="application/json"
        )

    @api.post("/sessions/share", response_model=Shared)
    async def share(request: Request, body: ShareRequest) -> Response:
        """The session as a page for a file of its own. Not while a turn runs."""
        standing = await parts.directory.find(body.sessionId, principal_of(request))
        if body.upload:
            raise BadRequest(
                "There is nowhere to upload to; ask with `upload: false`.", code="no_share_provider"
            )
        if standing.running_turn is not None:
            raise SessionBusy("A turn is running: share the session when it has ended.")
        info = session_info(standing.session)
        events = [event async for page in flat_events(parts, standing) for event in page]
        # Some megabytes are escaped and encoded: not in the loop that serves everybody.
        content = await to_thread.run_sync(
            lambda: encode(
                {
                    "success": True,
                    "sessionId": info["id"],
                    "html": replay_page(title, info, events, version_info()).decode(),
                }
            )
        )
        return Response(content, media_type="application/json")

    return api
