"""Turns: query, stream, abort, the queue, and both queries in a session of their own."""

from collections.abc import Callable, Set
from dataclasses import dataclass
from hashlib import sha256
from typing import Annotated, Any

from fastapi import APIRouter, Header, Request, Response
from pydantic import BaseModel

from app.access.caller import principal_of, trace_id_of
from app.agents.prompt import prompt_of
from app.dialects.asking import until_ended
from app.dialects.parts import Parts
from app.dialects.strict import StrictRoute
from app.dialects.tarko.answer import TurnAnswer
from app.dialects.tarko.messages import (
    AbortQuery,
    AbortReceipt,
    Answer,
    OneShot,
    OneShotAnswer,
    QueryContent,
    QuerySession,
    Queue,
    Refusal,
    TurnOptions,
)
from app.dialects.tarko.nested import control_frame, query_frames
from app.dialects.tarko.routes.sessions import SessionParam, agent_for
from app.dialects.tarko.schema import STREAM_RESPONSE
from app.events.canonical import encode
from app.events.ids import event_id
from app.log.session_log import Page
from app.sessions.session import Session
from app.transport.cursor import Start
from app.transport.sse import EventStream, TurnStream
from app.turns.admission import Admitted, Key, Query, TurnRemoved

IdempotencyKey = Annotated[
    str | None,
    Header(
        min_length=1,
        max_length=200,
        pattern=r"^[\x21-\x7e]+$",
        description="Requests with the same key are the same turn: a repeat joins it, or gets its outcome.",
    ),
]
FAILED_TURN: dict[int | str, dict[str, Any]] = {
    422: {"model": Refusal, "description": "The Idempotency-Key was used for another request."},
    429: {"model": Refusal, "description": "Too many turns wait in the session."},
    502: {"model": Refusal, "description": "The turn failed."},
    504: {"model": Refusal, "description": "The turn ran out of time."},
}


@dataclass(frozen=True, slots=True)
class _Asked:
    """A turn that was asked for: the session, what became of it, and what to do when the asker hangs up."""

    session: Session
    admitted: Admitted
    aborts_on_disconnect: bool


def router(parts: Parts) -> APIRouter:
    """The routes over these parts."""
    api = APIRouter(prefix="/api/v1", tags=["queries"], route_class=StrictRoute)

    async def ask(request: Request, body: QuerySession, idempotency_key: str | None) -> _Asked:
        standing = await parts.directory.find(body.sessionId, principal_of(request))
        return await admit(request, standing.session, body.query, body, key_of(idempotency_key, body))

    async def ask_alone(request: Request, body: OneShot, idempotency_key: str | None) -> _Asked:
        prompt_of(body.query)
        session = await parts.directory.create(
            principal_of(request),
            agent_for(parts, body.agent),
            name=body.sessionName,
            tags=body.sessionTags,
            once=idempotency_key,
        )
        return await admit(request, session, body.query, body, key_of(idempotency_key, body))

    async def admit(
        request: Request, session: Session, content: QueryContent, options: TurnOptions, key: Key | None
    ) -> _Asked:
        query = query_of(content, options, trace_id_of(request.headers.get("traceparent")))
        admitted = await parts.supervisor.admit(
            session, query, on_busy=options.onBusy or parts.on_busy, key=key
        )
        return _Asked(session, admitted, options.onDisconnect == "abort")

    @api.post("/sessions/query", response_model=Answer, responses=FAILED_TURN)
    async def query(request: Request, body: QuerySession, idempotency_key: IdempotencyKey = None) -> Response:
        """Start a turn and wait for its ending. A client that goes away stops nothing, unless it asked to."""
        asked = await ask(request, body, idempotency_key)
        answer = await _answer(parts, request, asked)
        return Response(answer.body(), answer.http_status, media_type="application/json")

    @api.post("/sessions/query/stream", response_class=Response, responses=STREAM_RESPONSE | FAILED_TURN)
    async def query_stream(
        request: Request, body: QuerySession, idempotency_key: IdempotencyKey = None
    ) -> Response:
        """Start a turn and stream its events; the stream ends after `agent_run_end`.

        A turn that waits is told by a `query_queued` frame, one that is removed by an `error` frame.
        """
        asked = await ask(request, body, idempotency_key)
        return await _stream(parts, asked, Start(asked.admitted.after))

    @api.post("/sessions/abort", response_model=AbortReceipt, response_model_exclude_none=True)
    async def abort(request: Request, body: AbortQuery) -> Response:
        """Stop the running turn. The answer comes when its ending is durable; late aborts are harmless."""
        await parts.directory.find(body.sessionId, principal_of(request))
        return Response(
            encode(await abort_turn(parts, body.sessionId, body.turnId)), media_type="application/json"
        )

    @api.get("/sessions/queue", response_model=Queue)
    async def queue(request: Request, session_id: SessionParam) -> Response:
        """The turns that wait, next one first. Abort one by its `turnId` to remove it."""
        standing = await parts.directory.find(session_id, principal_of(request))
        waiting = [
            {
                "turnId": turn.turn_id,
                "position": n,
                "acceptedAt": turn.accepted_at,
                "query": turn.query.content,
            }
            for n, turn in enumerate(await parts.supervisor.queue.waiting(session_id), 1)
        ]
        body = {"sessionId": session_id, "running": standing.running_turn, "queue": waiting}
        return Response(encode(body), media_type="application/json")

    @api.post("/oneshot/query", response_model=OneShotAnswer, responses=FAILED_TURN)
    async def oneshot(request: Request, body: OneShot, idempotency_key: IdempotencyKey = None) -> Response:
        """Create a session, start a turn in it and wait for its ending."""
        asked = await ask_alone(request, body, idempotency_key)
        answer = await _answer(parts, request, asked)
        return Response(answer.body(asked.session.id), answer.http_status, media_type="application/json")

    @api.post("/oneshot/query/stream", response_class=Response, responses=STREAM_RESPONSE | FAILED_TURN)
    async def oneshot_stream(
        request: Request, body: OneShot, idempotency_key: IdempotencyKey = None
    ) -> Response:
        """Create a session and stream its first turn, from `session_start` on."""
        asked = await ask_alone(request, body, idempotency_key)
        return await _stream(parts, asked, Start(0))

    return api


async def abort_turn(parts: Parts, session_id: str, turn_id: str | None) -> dict[str, Any]:
    """Abort, and the receipt as the protocol has it."""
    receipt = await parts.supervisor.stops.abort(session_id, turn_id)
    if receipt is None:
        return {"success": False}
    told = {
        "success": receipt.is_new and receipt.status in ("aborted", "removed"),
        "turnId": receipt.turn_id,
        "status": receipt.status,
    }
    return told | ({"lastEventId": event_id(session_id, receipt.last_place)} if receipt.last_place else {})


def query_of(content: QueryContent, options: TurnOptions, trace_id: str | None) -> Query:
    """The query that was asked. Raises `BadRequest` (`bad_query`)."""
    return Query(
        content, prompt_of(content), trace_id, _seconds(options.timeoutMs), _seconds(options.silenceTimeoutMs)
    )


def _seconds(milliseconds: int | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1000


def key_of(
    idempotency_key: str | None, request: BaseModel, *, ignoring: Set[str] = frozenset()
) -> Key | None:
    """The key, if there is one, with what the request asks for: the same over HTTP and on a socket."""
    if idempotency_key is None:
        return None
    asked = dict(sorted(request.model_dump(exclude=set(ignoring)).items()))
    return Key(idempotency_key, sha256(encode(asked)).hexdigest())


async def _answer(parts: Parts, request: Request, asked: _Asked) -> TurnAnswer:
    answer = TurnAnswer(asked.admitted.turn_id)

    def take(page: Page) -> bool:
        answer.take(page)
        return bool(answer.status)

    await until_ended(
        parts,
        request,
        asked.session.id,
        asked.admitted,
        take,
        aborts_on_disconnect=asked.aborts_on_disconnect,
    )
    return answer


async def _stream(parts: Parts, asked: _Asked, start: Start) -> Response:
    session_id, admitted = asked.session.id, asked.admitted
    log = await parts.logs.take(session_id)

    def abort() -> None:
        parts.supervisor.stops.abandon(session_id, admitted.turn_id)

    return EventStream(
        log,
        start,
        spell=query_frames,
        event_id=lambda place: event_id(session_id, place).encode(),
        readers=parts.readers,
        release=lambda: parts.logs.release(session_id),
        send_timeout=parts.send_timeout,
        turn=TurnStream(
            admitted.turn_id,
            is_alone=admitted.is_waiting or admitted.is_repeat,
            notice=_queued_frame(session_id, admitted) if admitted.is_waiting else None,
            removed=admitted.removed,
            farewell=lambda place: control_frame("error", REMOVED, session_id, place, 2),
            gone=abort if asked.aborts_on_disconnect else lambda: None,
        ),
    )


REMOVED = {
    "error": "The turn was removed before it started.",
    "code": TurnRemoved.code,
    "recoverable": True,
}


def _queued_frame(session_id: str, admitted: Admitted) -> Callable[[int], bytes]:
    data = {"turnId": admitted.turn_id, "position": admitted.position}
    return lambda place: control_frame("query_queued", data, session_id, place, 1)
