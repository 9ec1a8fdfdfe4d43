"""Titles of conversations."""

from fastapi import APIRouter, Request, Response

from app.dialects.parts import Parts, principal_of
from app.dialects.strict import StrictRoute
from app.dialects.tarko_ui.messages import PREFIX, Summary, SummaryRequest
from app.dialects.tarko_ui.summary import question, title_of
from app.events.canonical import encode

PATIENCE = 10.0


def router(parts: Parts) -> APIRouter:
    """The routes over these parts."""
    api = APIRouter(prefix=f"{PREFIX}/sessions", tags=["ui: sessions"], route_class=StrictRoute)

    @api.post("/generate-summary", response_model=Summary)
    async def summarize(request: Request, body: SummaryRequest) -> Response:
        """A title of the messages: the agent's, if it says one in ten seconds, else their first words."""
        standing = await parts.directory.find(body.sessionId, principal_of(request))
        answer = await parts.supervisor.ask_aside(standing.session, question(body.messages), PATIENCE)
        told = {
            "summary": title_of(answer, body.messages),
            "model": body.model,
            "provider": body.provider,
        }
        return Response(encode(told), media_type="application/json")

    return api
