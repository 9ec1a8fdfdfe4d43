"""Events: the history, the live stream, and events that clients add."""

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Header, Query, Request, Response
from starlette.responses import StreamingResponse

from app.dialects.parts import Parts, principal_of
from app.dialects.strict import StrictRoute
from app.dialects.tarko.messages import Appended, ClientEvent, Events
from app.dialects.tarko.nested import stream_frames
from app.dialects.tarko.paging import (
    DEFAULT_LIMIT,
    MAX_LIMIT,
    HistoryRequest,
    list_closing,
    list_opening,
    list_piece,
    page_body,
)
from app.dialects.tarko.resume import From, start_of
from app.dialects.tarko.routes.sessions import SessionParam
from app.dialects.tarko.schema import STREAM_RESPONSE, event_schema
from app.errors import BadRequest, NotFound, SessionDeleted, StorageUnavailable
from app.events.canonical import encode
from app.events.envelope import Draft, now_ms
from app.events.ids import event_id, is_turn_id
from app.events.metadata import metadata
from app.events.vocabulary import RESERVED, is_event_type
from app.log.history import HistoryQuery
from app.log.store import Dropped
from app.log.writers import append_event
from app.sessions.session import Standing
from app.transport.sse import HEADERS, EventStream, come_back

PIECE_BYTES = 2**20

Place = Annotated[str | None, Query(max_length=200)]
Milliseconds = Annotated[int | None, Query(ge=0, le=2**53)]


def router(parts: Parts) -> APIRouter:
    """The routes over these parts."""
    api = APIRouter(prefix="/api/v1", tags=["events"], route_class=StrictRoute)
    directory = parts.directory

    @api.get("/sessions/events", response_model=Events)
    async def history(
        request: Request,
        session_id: SessionParam,
        limit: Annotated[int, Query(ge=1, le=MAX_LIMIT)] = DEFAULT_LIMIT,
        offset: Annotated[int | None, Query(ge=0, le=2**53)] = None,
        after: Place = None,
        before: Place = None,
        order: Literal["asc", "desc"] = "asc",
        types: Annotated[str | None, Query(max_length=4000, description="Event types, by comma.")] = None,
        since: Milliseconds = None,
        until: Milliseconds = None,
        deltas: Annotated[bool, Query(description="Also deltas, as long as they are kept.")] = False,
        turn_id: Annotated[str | None, Query(alias="turnId", max_length=200)] = None,
    ) -> Response:
        """A page of the session's log: lasting events, oldest first, by `offset`; or by cursor with filters."""
        standing = await directory.find(session_id, principal_of(request))
        asked = HistoryRequest(
            session_id, limit, offset, after, before, order, types, since, until, deltas, turn_id
        )
        if asked.is_plain:
            return _plain_list(parts, standing, offset or 0, limit)
        query = await _within_turn(parts, session_id, asked.query())
        page = await parts.history.history(session_id, query)
        return Response(page_body(session_id, query, page, standing.lasting), media_type="application/json")

    @api.post("/sessions/events", status_code=201, response_model=Appended)
    async def append(request: Request, body: ClientEvent) -> Response:
        """Add an event of the client's own. It belongs to no turn and never enters the conversation."""
        await directory.find(body.sessionId, principal_of(request))
        _check_type(body.type)
        draft = Draft(body.type, now_ms(), encode(body.data), metadata("client"))
        try:
            placed = await append_event(parts.commit, body.sessionId, draft)
        except Dropped as error:
            raise SessionDeleted(f"Session {body.sessionId} was deleted.") from error
        answer = encode({"id": event_id(body.sessionId, placed.last)})
        return Response(answer, 201, media_type="application/json")

    @api.get("/sessions/events/stream", response_class=Response, responses=STREAM_RESPONSE)
    async def stream(
        request: Request,
        session_id: SessionParam,
        after: Place = None,
        beginning: Annotated[From | None, Query(alias="from")] = None,
        last_event_id: Annotated[str | None, Header(max_length=200)] = None,
    ) -> Response:
        """Follow the session: replayed from the start, or after a cursor, or from now on; then live, for ever.

        `Last-Event-ID` beats `after` beats `from`, so `new EventSource(url)` alone is a complete client.
        """
        try:
            standing = await directory.find(session_id, principal_of(request))
            start = start_of(standing, cursor=last_event_id or after, beginning=beginning)
            log = await parts.logs.take(session_id)
        except StorageUnavailable:
            if last_event_id is None:
                raise
            # An EventSource takes any other answer than a stream for final: it would never come back.
            return Response(come_back(), media_type="text/event-stream", headers=HEADERS)
        return EventStream(
            log,
            start,
            spell=stream_frames,
            event_id=lambda place: event_id(session_id, place).encode(),
            readers=parts.readers,
            release=lambda: parts.logs.release(session_id),
            send_timeout=parts.send_timeout,
        )

    @api.get("/events/schema")
    async def schema() -> dict[str, Any]:
        """JSON Schema of the events that this server writes."""
        return event_schema()

    return api


def _plain_list(parts: Parts, standing: Standing, offset: int, limit: int) -> Response:
    session_id, total = standing.session.id, standing.lasting
    upto = min(offset + limit, total)

    async def pieces() -> AsyncIterator[bytes]:
        yield list_opening()
        at, last = offset, None
        while at < upto:
            events = await parts.history.lasting(session_id, at, upto, PIECE_BYTES)
            if not events:
                break
            yield list_piece(events, is_first=at == offset)
            at, last = events[-1].ordinal or upto, events[-1].place
        cursor = None if last is None else event_id(session_id, last)
        yield list_closing(total, has_more=upto < total, next_after=cursor)

    return StreamingResponse(pieces(), media_type="application/json")


async def _within_turn(parts: Parts, session_id: str, query: HistoryQuery) -> HistoryQuery:
    if query.turn_id is None:
        return query
    turn = await parts.turns.get(query.turn_id) if is_turn_id(query.turn_id) else None
    if turn is None or turn.session_id != session_id:
        raise NotFound(f"The session has no turn {query.turn_id[:80]!r}.", code="turn_not_found")
    end = turn.last_place + 1
    return replace(
        query,
        after=max(query.after, turn.first_place - 1),
        before=end if query.before is None else min(query.before, end),
    )


def _check_type(event_type: str) -> None:
    if event_type in RESERVED or event_type.startswith("agent."):
        raise BadRequest(f"{event_type} is a type of the protocol's own.", code="reserved_type")
    if not is_event_type(event_type):
        raise BadRequest("An event type is 1 to 200 printable characters.", code="bad_type")
