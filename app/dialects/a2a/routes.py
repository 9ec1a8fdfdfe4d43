"""The endpoint and the cards. Every path is served as it is written, with and without a slash at its end.

Plain routes rather than a mount or a router of the framework's: a caller follows no redirect, and calls have no shape
that an OpenAPI document could tell.
"""

from collections.abc import Awaitable, Callable, Sequence

from a2a.utils.errors import (
    A2AError,
    ContentTypeNotSupportedError,
    TaskNotFoundError,
    UnsupportedOperationError,
)
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from app.access.caller import principal_of, trace_id_of
from app.dialects.a2a import card
from app.dialects.a2a.faults import error_body, fault_of
from app.dialects.a2a.frames import Frames
from app.dialects.a2a.parts import Parts
from app.dialects.a2a.reading import task_of
from app.dialects.a2a.requests import (
    Call,
    Cancel,
    Get,
    ListTasks,
    NoCall,
    Operation,
    Send,
    Subscribe,
    call_of,
    operation_of,
)
from app.dialects.a2a.spelling import FINAL, Json, Version, json_of, pieces_of, result, streamed_task
from app.dialects.a2a.stream import FaultStream, Follow, TaskSent, TaskStream
from app.dialects.a2a.tasks import Caller, Sent, Tasks
from app.errors import BadRequest, NotFound, StorageUnavailable, TarkoError
from app.events.ids import BadCursor, place_of
from app.log.history import event_at

_TRACE_HEADERS = ("traceparent", "tracestate")
_MAX_TRACE_HEADER = 512


def routes(parts: Parts) -> list[BaseRoute]:
    """The routes over these parts."""
    endpoint = _Endpoint(parts)
    calls = ("/a2a", "/a2a/", "/agents/{agent}/a2a", "/agents/{agent}/a2a/")
    cards = (card.PATH, f"/a2a{card.PATH}", f"/agents/{{agent}}/a2a{card.PATH}")
    return [
        *(Route(path, endpoint.call, methods=["POST"]) for path in calls),
        *(Route(path + slash, endpoint.card, methods=["GET"]) for path in cards for slash in ("", "/")),
        Route("/a2a/spelling", endpoint.spelling, methods=["GET"]),
    ]


def is_card(path: str) -> bool:
    """Whether the path is that of a card, which anybody may read: it says how to be let in."""
    return path.removesuffix("/").endswith(card.PATH)


class _Endpoint:
    """Answers requests."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._tasks = Tasks(parts)

    async def card(self, request: Request) -> Response:
        """The agent's card, or 304 for one who has it."""
        agent = self._agent(request)
        base = self._parts.public_url or str(request.base_url)
        path = f"/agents/{agent}/a2a" if "agent" in request.path_params else "/a2a"
        body = card.card(
            agent,
            self._parts.agents[agent],
            base.rstrip("/") + path,
            asks_for_tokens=self._parts.asks_for_tokens,
        )
        tag = card.etag(body)
        headers = {"etag": tag, "cache-control": card.CACHE_CONTROL, "vary": "Host"}
        if card.is_known(request.headers.get("if-none-match", ""), tag):
            return Response(status_code=304, headers=headers)
        return Response(body, headers=headers, media_type="application/json")

    async def spelling(self, request: Request) -> Response:
        """One event of the log, by its documented id, as a 1.0 stream of its task tells it: any number of results."""
        session_id = request.query_params.get("sessionId", "")
        await self._parts.directory.find(session_id, principal_of(request))
        try:
            place = place_of(session_id, request.query_params.get("eventId", ""))
        except BadCursor as error:
            raise BadRequest(f"{error}.", code="bad_cursor") from error
        event = await event_at(self._parts.history, session_id, place)
        task_id = None if event is None else task_of(event)
        if event is None or task_id is None:
            return _json(b'{"events":[]}')
        told = Frames("1.0", session_id, task_id, until_question=False)([event])
        return _json(b'{"events":[%b]}' % b",".join(told.results))

    async def call(self, request: Request) -> Response:
        """A JSON-RPC call. What the server cannot do now is no answer to the call, but an HTTP status."""
        caller = Caller(principal_of(request), self._agent(request))
        try:
            _check_media_type(request)
            call = call_of(await request.body(), request.headers.get("a2a-version", ""))
        except NoCall as error:
            return _json(error_body(error.fault, error.id, error.version))
        except ContentTypeNotSupportedError as fault:
            return _json(error_body(fault, None, "1.0"), 415)
        try:
            return await self._answer(request, caller, call)
        except A2AError as fault:
            return _refused(fault, call)
        except TarkoError as error:
            found = fault_of(error)
            if found is None:
                raise
            return _refused(found, call)

    def _agent(self, request: Request) -> str:
        agent = request.path_params.get("agent") or next(iter(self._parts.agents))
        if agent not in self._parts.agents:
            raise NotFound(f"There is no agent {agent[:80]!r} here.", code="agent_not_found")
        return str(agent)

    async def _answer(self, request: Request, caller: Caller, call: Call) -> Response:
        trace = {
            name: value
            for name in _TRACE_HEADERS
            if (value := request.headers.get(name)) and len(value) <= _MAX_TRACE_HEADER
        }
        operation: Operation = operation_of(call, trace)
        match operation:
            case Send(streams=True):
                sent = await self._tasks.send(caller, operation, trace_id_of(trace.get("traceparent")))
                return await self._stream_of(caller, call, sent)
            case Send():
                return await self._send(caller, call, operation, trace_id_of(trace.get("traceparent")))
            case Get():
                task = await self._tasks.get(caller, operation)
                return _result(call, result(task, call.version, history=operation.history))
            case Cancel():
                return _result(call, result(await self._tasks.cancel(caller, operation), call.version))
            case Subscribe():
                return await self._subscribe(caller, call, operation)
            case ListTasks():
                return await self._list(caller, call, operation)
            case _:
                raise operation.fault

    async def _send(self, caller: Caller, call: Call, send: Send, trace_id: str | None) -> Response:
        sent = await self._tasks.send(caller, send, trace_id)
        task = await (self._tasks.settled(sent) if send.waits else self._tasks.standing(sent))
        told = result(task, call.version, history=send.history)
        return _result(call, told if call.version == "0.3" else {"task": told})

    async def _stream_of(self, caller: Caller, call: Call, sent: Sent) -> Response:
        """The stream of a message: to the end of its turn, so also when the agent asks."""
        opening = None if sent.task is None else pieces_of(streamed_task(sent.task, call.version))
        if sent.task is not None and opening is not None and sent.task.status.state != "working":
            return TaskSent(call.id, opening, send_timeout=self._parts.send_timeout)
        frames = Frames(call.version, sent.context_id, sent.task_id, until_question=True)
        return await self._stream(caller, call, frames, sent.session_id, sent.after, opening)

    async def _subscribe(self, caller: Caller, call: Call, subscribe: Subscribe) -> Response:
        """The stream of a task: from where it stands to its end, over all its questions."""
        followed = await self._tasks.follow(caller, subscribe.task_id)
        task = followed.task_now
        if task.status.state in FINAL:
            raise UnsupportedOperationError(f"The task is over: it is {task.status.state}. Get it instead.")
        frames = Frames(call.version, followed.context_id, task.id, until_question=False)
        opening = pieces_of(streamed_task(task, call.version))
        is_asking = task.status.state == "input-required"
        return await self._stream(
            caller, call, frames, followed.session_id, task.place, opening, is_asking=is_asking
        )

    async def _stream(
        self,
        caller: Caller,
        call: Call,
        frames: Frames,
        session_id: str,
        after: int,
        opening: Sequence[bytes] | None,
        *,
        is_asking: bool = False,
    ) -> Response:
        parts = self._parts
        log = await parts.logs.take(session_id)
        follow = Follow(
            log,
            frames,
            after,
            opening,
            "input-required" if is_asking else "working",
            self._closing(caller, frames) if self._ends_with_task(caller, call.version) else None,
        )
        return TaskStream(
            call.id,
            follow,
            readers=parts.readers,
            release=lambda: parts.logs.release(session_id),
            send_timeout=parts.send_timeout,
            heartbeat=parts.heartbeat,
        )

    def _ends_with_task(self, caller: Caller, version: Version) -> bool:
        wanted = self._parts.final_task_for
        return version == "1.0" or "*" in wanted or caller.principal in wanted

    def _closing(self, caller: Caller, frames: Frames) -> Callable[[], Awaitable[Sequence[bytes] | None]]:
        async def closing() -> Sequence[bytes] | None:
            try:
                task = (await self._tasks.follow(caller, frames.task_id)).task_now
            except (StorageUnavailable, TaskNotFoundError):
                return None  # the status was told; who wants the task can get it
            return pieces_of(streamed_task(task, frames.version))

        return closing

    async def _list(self, caller: Caller, call: Call, asked: ListTasks) -> Response:
        listed = await self._tasks.list(caller, asked)
        tasks = [
            result(task, call.version, history=asked.history, artifacts=asked.artifacts)
            for task in listed.tasks
        ]
        return _result(
            call,
            {
                "tasks": tasks,
                "nextPageToken": listed.next_token,
                "pageSize": asked.size,
                "totalSize": listed.total,
            },
        )


def _check_media_type(request: Request) -> None:
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type != "application/json":
        raise ContentTypeNotSupportedError(f"Send the call as application/json, not {media_type[:80]!r}.")


def _refused(fault: A2AError, call: Call) -> Response:
    error = error_body(fault, call.id, call.version)
    return FaultStream(error) if call.is_stream and call.version == "0.3" else _json(error)


def _result(call: Call, told: Json) -> Response:
    return _json(json_of({"jsonrpc": "2.0", "id": call.id, "result": told}))


def _json(body: bytes, status: int = 200) -> Response:
    return Response(body, status, media_type="application/json")
