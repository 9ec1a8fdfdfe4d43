"""`POST /invoke`: one turn, streamed; whoever hangs up has cancelled it.

The caller's name for a conversation stands for one session of its principal, which is made when it is first used; so
the turn is in the log like any other, and can be read, followed and aborted through every other dialect. A busy session
is not an HTTP error but the stream's first and only event, as the wire has it.
"""

from typing import Any

from fastapi import APIRouter, Request, Response

from app.access.caller import principal_of, trace_id_of
from app.dialects.invoke.messages import Invoke
from app.dialects.invoke.wire import frame, frames
from app.dialects.parts import Parts
from app.dialects.strict import StrictRoute
from app.errors import SessionBusy
from app.sessions.session import Session
from app.transport.cursor import Start
from app.transport.sse import HEADERS, EventStream, TurnStream
from app.turns.admission import Admitted, Query

_STREAM: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "Server-sent events without names and ids; the data of each is an event of the agent as JSON. "
        "The last one is `completed` or `failed`.",
        "content": {
            "text/event-stream": {
                "schema": {"type": "string"},
                "example": 'data: {"type":"text","delta":"Hello!"}\n\ndata: {"type":"completed"}\n\n',
            }
        },
    }
}


def router(parts: Parts, agent: str) -> APIRouter:
    """The route over these parts. `agent` is who is invoked."""
    api = APIRouter(tags=["agent handler"], route_class=StrictRoute)

    @api.post("/invoke", response_class=Response, responses=_STREAM)
    async def invoke(request: Request, body: Invoke) -> Response:
        """Run one turn of the agent and stream its events. Hanging up cancels the turn."""
        session = await _session_of(parts, principal_of(request), agent, body)
        query = Query(body.text, {"text": body.text}, trace_id_of(request.headers.get("traceparent")))
        try:
            admitted = await parts.supervisor.admit(session, query)
        except SessionBusy as error:
            busy = {"type": "failed", "details": str(error), "retryable": True, "code": error.code}
            return Response(frame(busy), headers=HEADERS, media_type="text/event-stream")
        return await _stream(parts, session.id, admitted)

    return api


async def _session_of(parts: Parts, principal: str, agent: str, body: Invoke) -> Session:
    attributes = {"session": body.session}
    if body.parentSession is not None:
        attributes["parentSession"] = body.parentSession
    return await parts.directory.create(
        principal,
        agent,
        name=body.session,
        attributes={"invoke": attributes},
        once=f"invoke\n{body.session}",  # a key that came over HTTP has no line end in it
    )


async def _stream(parts: Parts, session_id: str, admitted: Admitted) -> Response:
    def cancel() -> None:
        parts.supervisor.stops.abandon(session_id, admitted.turn_id)

    try:
        log = await parts.logs.take(session_id)
    except BaseException:
        cancel()  # nobody will see it
        raise
    return EventStream(
        log,
        Start(admitted.after),
        spell=frames,
        event_id=None,
        readers=parts.readers,
        release=lambda: parts.logs.release(session_id),
        send_timeout=parts.send_timeout,
        turn=TurnStream(admitted.turn_id, is_alone=True, gone=cancel),
    )
