"""Starts turns, and tells them to one who waits or one who streams.

A refusal after the session was found is told on the stream, as an error event before `agent_run_end`: the UI shows its
user nothing of any other status than 200, and locks its input until a turn ends. Such events are not in the log.
"""

import re
from collections.abc import Awaitable, Callable

from fastapi import Request, Response
from starlette.types import Message, Receive, Scope, Send

from app.access.caller import trace_id_of
from app.agents.prompt import prompt_of
from app.dialects.asking import until_ended
from app.dialects.parts import Parts
from app.dialects.tarko_ui.answer import TurnAnswer
from app.dialects.tarko_ui.flat import frames, refused
from app.dialects.tarko_ui.messages import QueryContent
from app.dialects.tarko_ui.settling import Answers
from app.errors import SessionDeleted, ShuttingDown, TarkoError
from app.sessions.session import Session
from app.transport.cursor import Start
from app.transport.sse import HEADERS, EventStream, TurnStream
from app.transport.wire import mark, wire_of
from app.turns.admission import Admitted, Query, TurnRemoved

_END = re.compile(rb'data: \{"id":"[^"]*","type":"agent_run_end"')


class Turns:
    """The turns of this dialect's askers. A busy session does what the server's settings say."""

    def __init__(self, parts: Parts, answers: Answers) -> None:
        self._parts = parts
        self._answers = answers

    async def answer(self, request: Request, session: Session, content: QueryContent) -> bytes:
        """Start a turn and wait for its last message, flat. Raises what `Supervisor.admit` and `until_ended` raise."""
        admitted = await self._admit(request, session, content)
        found = TurnAnswer(admitted.turn_id)
        await until_ended(self._parts, request, session.id, admitted, found.take)
        return found.result()

    async def stream(
        self, request: Request, session: Session, place: int, content: QueryContent, opening: bytes = b""
    ) -> Response:
        """Start a turn and stream it, after `opening`. `place` is where the session's log is now.

        Raises `SessionDeleted`; any other refusal is a stream that tells it.
        """
        parts = self._parts
        try:
            admitted = await self._admit(request, session, content)
        except SessionDeleted:
            raise
        except TarkoError as error:
            body = opening + refused(session.id, place, error.code, str(error))
            return Response(body, headers=HEADERS, media_type=EventStream.media_type)
        log = await parts.logs.take(session.id)
        stream = EventStream(
            log,
            Start(admitted.after),
            spell=frames,
            event_id=None,
            readers=parts.readers,
            release=lambda: parts.logs.release(session.id),
            send_timeout=parts.send_timeout,
            turn=TurnStream(
                admitted.turn_id,
                is_alone=admitted.is_waiting,
                notice=(lambda _: opening) if opening else None,
                removed=admitted.removed,
                farewell=lambda at: refused(
                    session.id, at, TurnRemoved.code, "The turn was removed before it started."
                ),
            ),
        )
        return _SettledStream(
            stream,
            before_start=lambda: self._answers.before_start(session.principal, session.id),
            before_end=lambda: self._answers.before_end(session.principal, session.id),
            otherwise=refused(
                session.id, admitted.after, ShuttingDown.code, "The server stops; the turn waits."
            ),
        )

    async def _admit(self, request: Request, session: Session, content: QueryContent) -> Admitted:
        query = Query(content, prompt_of(content), trace_id_of(request.headers.get("traceparent")))
        return await self._parts.supervisor.admit(session, query, on_busy=self._parts.on_busy)


class _SettledStream(Response):
    """A turn's stream whose first and last frames wait. One that ends without the last has `otherwise` for its end."""

    def __init__(
        self,
        stream: EventStream,
        *,
        before_start: Callable[[], Awaitable[None]],
        before_end: Callable[[], Awaitable[None]],
        otherwise: bytes,
    ) -> None:
        super().__init__()
        self._stream = stream
        self._before_start = before_start
        self._before_end = before_end
        self._otherwise = otherwise
        self._has_begun = False
        self._has_ended = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        wire = wire_of(scope, send)

        async def settled(message: Message) -> None:
            if not self._has_begun:
                self._has_begun = True
                await self._before_start()
            body = message.get("body", b"")
            # The end is the last frame. Elsewhere its name may be in what somebody else said.
            before = body.rfind(b"\n\n", 0, -2)
            last = 0 if before < 0 else before + 2
            if _END.match(body, last):
                self._has_ended = True
                await wire({**message, "body": body[:last]})
                await self._before_end()
                message = {**message, "body": body[last:]}
            elif not message["more_body"] and not self._has_ended:
                message = {**message, "body": self._otherwise}
            await wire(message)

        mark(scope, settled)
        await self._stream(scope, receive, send)
