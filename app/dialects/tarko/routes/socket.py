"""`/ws`: reads commands, does them, says how it went. What they mean is decided in `..socket`."""

import asyncio
import logging
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any

from starlette.routing import WebSocketRoute
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocket, WebSocketDisconnect

from app.access.caller import principal_of, trace_id_of
from app.dialects.parts import Parts
from app.dialects.tarko.nested import spell_each
from app.dialects.tarko.resume import start_of
from app.dialects.tarko.routes.query import REMOVED, abort_turn, key_of, query_of
from app.dialects.tarko.socket import (
    AbortQuery,
    Answers,
    JoinSession,
    LeaveSession,
    Misunderstood,
    OfSession,
    Ping,
    SendQuery,
    error_data,
    refusal,
    understand,
)
from app.errors import TarkoError
from app.events.ids import event_id
from app.sessions.session import Standing
from app.transport.cursor import Start
from app.transport.outlet import Message
from app.transport.websocket import SERVER_STOPS, TOO_SLOW, JoinedSessions, text
from app.transport.wire import wire_of
from app.turns.admission import Admitted

MAX_ASIDE = 32
LAST_WORD = 5.0

_logger = logging.getLogger(__name__)


def route(parts: Parts) -> WebSocketRoute:
    """The route over these parts."""

    class Socket:
        async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
            await _Conversation(parts, WebSocket(scope, receive, send), wire_of(scope, send)).run()

    return WebSocketRoute("/ws", Socket())


class _Conversation:
    """One connection. Aborts are done aside, so that the socket stays awake while they wait.

    What was asked on it is done, also when it closes before the answer.
    """

    def __init__(self, parts: Parts, websocket: WebSocket, send: Send) -> None:
        self._parts = parts
        self._websocket = websocket
        self._send = send
        self._answers = Answers()
        self._aside: set[asyncio.Task[None]] = set()
        self._watching: set[asyncio.Task[None]] = set()
        self._own: dict[str, set[str]] = {}
        self._is_over = False
        self._principal = principal_of(websocket)
        self._trace_id = trace_id_of(websocket.headers.get("traceparent"))
        self._joined = JoinedSessions(
            send, parts.logs, parts.readers, spell=spell_each, send_timeout=parts.send_timeout
        )

    async def run(self) -> None:
        await self._websocket.accept()
        self._parts.readers.on_drain(self._drain)
        listening = asyncio.create_task(self._listen(), name="socket")
        try:
            ends: set[asyncio.Future[Any]] = {listening, self._joined.broken}
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._is_over = True
            self._parts.readers.forget(self._drain)
            self._joined.leave_all()
            for task in (listening, *self._watching):
                task.cancel()
            self._abandon()
            await asyncio.gather(listening, return_exceptions=True)
        if self._joined.broken.done():
            await self._close(self._joined.broken.result())
        await asyncio.gather(*self._aside, return_exceptions=True)

    def _abandon(self) -> None:
        """Abort the turns that are to end with their client, unless it is this server that goes."""
        own, self._own = self._own, {}
        if self._joined.broken.done() and self._joined.broken.result() == SERVER_STOPS:
            return
        for session_id, turns in own.items():
            for turn_id in turns:
                self._parts.supervisor.stops.abandon(session_id, turn_id)

    def _owns(self, session_id: str, admitting: "asyncio.Future[Admitted]") -> None:
        """Note that a turn ends with its client, who may have gone while it was admitted."""
        if admitting.cancelled() or admitting.exception() is not None:
            return
        admitted = admitting.result()
        own = self._own.setdefault(session_id, set())
        if not (admitted.is_waiting or admitted.is_repeat):
            own.clear()  # nothing ran and nothing waited: those before have ended
        own.add(admitted.turn_id)
        if self._is_over:
            self._abandon()

    async def _close(self, code: int) -> None:
        # A reader that still takes nothing, or has gone, does not learn why.
        with suppress(TimeoutError, WebSocketDisconnect):
            async with asyncio.timeout(LAST_WORD):
                await self._websocket.close(code)

    def _drain(self) -> None:
        self._joined.give_up(SERVER_STOPS)

    async def _listen(self) -> None:
        while True:
            message = await self._websocket.receive()
            if message["type"] == "websocket.disconnect":
                return
            received = message.get("text")
            await self._take(message["bytes"] if received is None else received)

    async def _take(self, received: str | bytes) -> None:
        command = understand(received)
        match command:
            case Misunderstood():
                await self._say_error(command)
            case Ping():
                await self._say("pong", _request(command.requestId))
            case LeaveSession():
                self._joined.leave(command.sessionId)
                await self._say(
                    "session_left", {"sessionId": command.sessionId} | _request(command.requestId)
                )
            case JoinSession():
                await self._attempt(command, self._join(command))
            case SendQuery():
                await self._attempt(command, self._query(command))
            case _:
                await self._spawn(self._attempt(command, self._abort(command)))

    async def _attempt(self, command: OfSession, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except TarkoError as error:
            await self._say_error(refusal(command, error))
        except Exception:
            _logger.exception("a socket's %s failed", command.type)
            problem = TarkoError("The server failed to do this.")
            await self._say_error(refusal(command, problem))

    async def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        if len(self._aside) >= MAX_ASIDE:
            await work
            return
        task = asyncio.create_task(work, name="socket aside")
        self._aside.add(task)
        task.add_done_callback(self._aside.discard)

    async def _join(self, command: JoinSession) -> None:
        standing = await self._find(command.sessionId)
        cursor = None if command.after is None else str(command.after)
        start = start_of(standing, cursor=cursor, beginning=command.from_)
        log = await self._parts.logs.take(command.sessionId)
        data = {
            "sessionId": command.sessionId,
            "lastSeq": standing.last_place,
            "lastEventId": event_id(command.sessionId, standing.last_place),
            "processing": standing.running_turn is not None,
        } | _request(command.requestId)
        self._joined.join(
            log, start, lambda place: self._message("session_joined", data, command.sessionId, place)
        )

    async def _query(self, command: SendQuery) -> None:
        query = query_of(command.query, command, self._trace_id)
        standing = await self._find(command.sessionId)
        admit = self._parts.supervisor.admit(
            standing.session,
            query,
            on_busy=command.onBusy or self._parts.on_busy,
            key=key_of(command.idempotencyKey, command, ignoring={"type", "requestId", "idempotencyKey"}),
        )
        admitting = asyncio.create_task(admit, name="socket admits")
        if command.onDisconnect == "abort":
            admitting.add_done_callback(lambda admitting: self._owns(command.sessionId, admitting))
        admitted = await asyncio.shield(admitting)
        if command.sessionId not in self._joined:
            log = await self._parts.logs.take(command.sessionId)
            self._joined.join(log, Start(admitted.after))
        if admitted.removed is not None:
            self._tell_removal(command.sessionId, admitted.turn_id, admitted.removed)
            data = {"turnId": admitted.turn_id, "position": admitted.position}
            await self._say("query_queued", data | _request(command.requestId), command.sessionId)

    def _tell_removal(self, session_id: str, turn_id: str, removed: "asyncio.Future[bool]") -> None:
        async def tell() -> None:
            if not await asyncio.shield(removed):
                return
            details = {"requestType": "send_query", "turnId": turn_id}
            await self._say("error", REMOVED | {"details": details}, session_id)

        task = asyncio.create_task(tell(), name=f"queue of {session_id}")
        self._watching.add(task)
        task.add_done_callback(self._watching.discard)

    async def _abort(self, command: AbortQuery) -> None:
        await self._find(command.sessionId)
        receipt = await abort_turn(self._parts, command.sessionId, command.turnId)
        await self._say("abort_result", receipt | _request(command.requestId), command.sessionId)

    async def _find(self, session_id: str) -> Standing:
        return await self._parts.directory.find(session_id, self._principal)

    async def _say_error(self, problem: Misunderstood) -> None:
        session_id = problem.session_id if problem.session_id in self._joined else None
        await self._say("error", error_data(problem), session_id)

    async def _say(self, event_type: str, data: dict[str, Any], session_id: str | None = None) -> None:
        """Answer; about a joined session in order with its events."""
        if session_id is None or not self._joined.say(
            session_id, lambda place: self._message(event_type, data, session_id, place)
        ):
            # No cursor: of a session that is not followed here, the client has been sent nothing.
            await self._send_soon(self._message(event_type, data, None, 0))

    async def _send_soon(self, message: Message) -> None:
        if self._is_over:
            return
        try:
            async with asyncio.timeout(self._parts.send_timeout):
                await self._send(message)
        except TimeoutError:
            self._joined.give_up(TOO_SLOW)
        except OSError:
            _logger.debug("a socket was gone before its answer")  # listening ends with it

    def _message(self, event_type: str, data: dict[str, Any], session_id: str | None, place: int) -> Message:
        return text(self._answers.spell(event_type, data, session_id, place))


def _request(request_id: str | None) -> dict[str, Any]:
    return {} if request_id is None else {"requestId": request_id}
