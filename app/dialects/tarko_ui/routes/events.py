"""Events: all of a session at once, since the UI asks for no pages."""

from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from starlette.responses import StreamingResponse

from app.access.caller import principal_of
from app.dialects.parts import Parts
from app.dialects.strict import StrictRoute
from app.dialects.tarko_ui.flat import spell
from app.dialects.tarko_ui.messages import PREFIX, FlatEvents, LatestSession, SessionParam
from app.dialects.tarko_ui.routes.sessions import by_change
from app.dialects.tarko_ui.session_info import session_info
from app.dialects.tarko_ui.snapshot import Snapshot
from app.errors import BadRequest, SessionNotFound
from app.events.canonical import encode
from app.events.ids import BadCursor, place_of
from app.log.history import event_at
from app.log.store import Slice
from app.sessions.session import Standing


def router(parts: Parts) -> APIRouter:
    """The routes over these parts."""
    api = APIRouter(prefix=f"{PREFIX}/sessions/events", tags=["ui: events"], route_class=StrictRoute)

    @api.get("", response_model=FlatEvents)
    async def events(request: Request, session_id: SessionParam) -> Response:
        """All events of the session, and what the running turn has said so far."""
        standing = await parts.directory.find(session_id, principal_of(request))
        return _list(parts, standing, b"{")

    @api.get("/latest", response_model=LatestSession)
    async def latest(request: Request) -> Response:
        """The events of the caller's session that was changed last."""
        found = await by_change(parts, request)
        if not found:
            raise SessionNotFound("There is no session yet.")
        info = session_info(found[0].session, parts.supervisor.options)
        opening = encode({"sessionId": info["id"], "sessionInfo": info})
        return _list(parts, found[0], opening[:-1] + b",")

    @api.get("/spelling", response_model=FlatEvents)
    async def spelling(
        request: Request,
        session_id: SessionParam,
        cursor: Annotated[str, Query(alias="eventId", max_length=200)],
    ) -> Response:
        """One event of the log, by its documented id, as this dialect spells it: one event, two, or none."""
        await parts.directory.find(session_id, principal_of(request))
        event = await event_at(parts.history, session_id, _place(session_id, cursor))
        flat = [] if event is None else spell(event)
        return Response(b'{"events":[%b]}' % b",".join(flat), media_type="application/json")

    return api


def _place(session_id: str, cursor: str) -> int:
    try:
        return place_of(session_id, cursor)
    except BadCursor as error:
        raise BadRequest(f"{error}.", code="bad_cursor") from error


async def flat_events(parts: Parts, standing: Standing) -> AsyncIterator[list[bytes]]:
    """The session's flat events as JSON, page by page: those that were there when its standing was looked up."""
    snapshot, at = Snapshot(), 0
    async with parts.logs.open(standing.session.id) as log:
        while at < standing.last_place:
            page = await log.read(Slice(at, standing.last_place, standing.running_turn or ""))
            at = page.upto
            yield snapshot.take(page.events)
    yield snapshot.rest()


def _list(parts: Parts, standing: Standing, opening: bytes) -> Response:
    async def pieces() -> AsyncIterator[bytes]:
        before = opening + b'"events":['
        async for events in flat_events(parts, standing):
            if events:
                yield before + b",".join(events)
                before = b","
        yield b"]}" if before == b"," else before + b"]}"

    return StreamingResponse(pieces(), media_type="application/json")
