"""Turns: query, stream, abort, and both in a session of their own."""

import re
from contextlib import aclosing
from typing import Annotated, Any

from fastapi import APIRouter, Header, Request, Response

from app.agents.prompt import prompt_of
from app.dialects.tarko.answer import TurnAnswer
from app.dialects.tarko.messages import (
    AbortQuery,
    AbortReceipt,
    Answer,
    OneShot,
    OneShotAnswer,
    QueryContent,
    QuerySession,
    Refusal,
)
from app.dialects.tarko.nested import query_frame
from app.dialects.tarko.parts import Parts, principal_of
from app.dialects.tarko.routes.sessions import agent_for
from app.dialects.tarko.routes.strict import StrictRoute
from app.dialects.tarko.schema import STREAM_RESPONSE
from app.errors import BadRequest
from app.events.canonical import encode
from app.events.ids import event_id
from app.sessions.session import Session
from app.transport.cursor import Start
from app.transport.sse import EventStream
from app.turns.supervisor import Query, Started

_TRACEPARENT = re.compile(
    r"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(?:-.*)?"
)

IdempotencyKey = Annotated[str | None, Header(max_length=200, description="Not supported yet.")]
FAILED_TURN: dict[int | str, dict[str, Any]] = {
    502: {"model": Refusal, "description": "The turn failed."},
    504: {"model": Refusal, "description": "The turn ran out of time."},
}


def router(parts: Parts) -> APIRouter:
    """The routes over these parts."""
    api = APIRouter(prefix="/api/v1", tags=["queries"], route_class=StrictRoute)

    async def begin(request: Request, body: QuerySession, idempotency_key: str | None) -> Started:
        refuse_unsupported(body.onBusy, body.onDisconnect, idempotency_key)
        standing = await parts.directory.find(body.sessionId, principal_of(request))
        return await parts.supervisor.start(standing.session, _query(request, body.query))

    async def begin_alone(
        request: Request, body: OneShot, idempotency_key: str | None
    ) -> tuple[Session, Started]:
        refuse_unsupported(idempotency_key=idempotency_key)
        query = _query(request, body.query)
        session = await parts.directory.create(
            principal_of(request), agent_for(parts, body.agent), name=body.sessionName, tags=body.sessionTags
        )
        return session, await parts.supervisor.start(session, query)

    @api.post("/sessions/query", response_model=Answer, responses=FAILED_TURN)
    async def query(request: Request, body: QuerySession, idempotency_key: IdempotencyKey = None) -> Response:
        """Start a turn and wait for its ending. A client that goes away stops nothing."""
        started = await begin(request, body, idempotency_key)
        answer = await _answer(parts, body.sessionId, started)
        return Response(answer.body(), answer.http_status, media_type="application/json")

    @api.post("/sessions/query/stream", response_class=Response, responses=STREAM_RESPONSE)
    async def query_stream(
        request: Request, body: QuerySession, idempotency_key: IdempotencyKey = None
    ) -> Response:
        """Start a turn and stream its events; the stream ends after `agent_run_end`."""
        started = await begin(request, body, idempotency_key)
        return await _stream(parts, body.sessionId, Start(started.after), started)

    @api.post("/sessions/abort", response_model=AbortReceipt, response_model_exclude_none=True)
    async def abort(request: Request, body: AbortQuery) -> Response:
        """Stop the running turn. The answer comes when its ending is durable; late aborts are harmless."""
        await parts.directory.find(body.sessionId, principal_of(request))
        return Response(
            encode(await abort_turn(parts, body.sessionId, body.turnId)), media_type="application/json"
        )

    @api.post("/oneshot/query", response_model=OneShotAnswer, responses=FAILED_TURN)
    async def oneshot(request: Request, body: OneShot, idempotency_key: IdempotencyKey = None) -> Response:
        """Create a session, start a turn in it and wait for its ending."""
        session, started = await begin_alone(request, body, idempotency_key)
        answer = await _answer(parts, session.id, started)
        return Response(answer.body(session.id), answer.http_status, media_type="application/json")

    @api.post("/oneshot/query/stream", response_class=Response, responses=STREAM_RESPONSE)
    async def oneshot_stream(
        request: Request, body: OneShot, idempotency_key: IdempotencyKey = None
    ) -> Response:
        """Create a session and stream its first turn, from `session_start` on."""
        session, started = await begin_alone(request, body, idempotency_key)
        return await _stream(parts, session.id, Start(0), started)

    return api


def refuse_unsupported(
    on_busy: str = "reject", on_disconnect: str = "continue", idempotency_key: str | None = None
) -> None:
    """Raise `BadRequest` (`not_supported`) for what is not built yet, so that nobody relies on it unawares."""
    asked = {
        f"onBusy={on_busy}": on_busy != "reject",
        f"onDisconnect={on_disconnect}": on_disconnect != "continue",
        "Idempotency-Key": idempotency_key is not None,
    }
    for name, is_asked in asked.items():
        if is_asked:
            raise BadRequest(f"{name} is not supported yet.", code="not_supported")


async def abort_turn(parts: Parts, session_id: str, turn_id: str | None) -> dict[str, Any]:
    """Abort, and the receipt as the protocol has it."""
    receipt = await parts.supervisor.abort(session_id, turn_id)
    if receipt is None:
        return {"success": False}
    return {
        "success": receipt.is_new and receipt.status == "aborted",
        "turnId": receipt.turn_id,
        "status": receipt.status,
        "lastEventId": event_id(session_id, receipt.last_place),
    }


def query_of(content: QueryContent, trace_id: str | None) -> Query:
    """The query that the content is. Raises `BadRequest` (`bad_query`)."""
    return Query(content, prompt_of(content), trace_id)


def _query(request: Request, content: QueryContent) -> Query:
    return query_of(content, trace_id_of(request.headers.get("traceparent")))


def trace_id_of(traceparent: str | None) -> str | None:
    """The trace id of a W3C `traceparent`; None when there is none or it is malformed, as the specification asks."""
    match = _TRACEPARENT.fullmatch(traceparent or "")
    return match[1] if match else None


async def _answer(parts: Parts, session_id: str, started: Started) -> TurnAnswer:
    answer = TurnAnswer(started.turn_id)
    async with parts.logs.open(session_id) as log, aclosing(log.follow(started.after)) as pages:
        async for page in pages:
            answer.take(page)
            if answer.status:
                break
    return answer


async def _stream(parts: Parts, session_id: str, start: Start, started: Started) -> Response:
    log = await parts.logs.take(session_id)
    return EventStream(
        log,
        start,
        spell=query_frame,
        event_id=lambda place: event_id(session_id, place).encode(),
        readers=parts.readers,
        release=lambda: parts.logs.release(session_id),
        send_timeout=parts.send_timeout,
        turn_id=started.turn_id,
    )
