"""A real server for tests: uvicorn on loopback in the test's own loop, as `app.serving` runs it, and its clients.

`serving` runs it for a block; agents are async generators that tests register by session or by prompt. Every wait is
bounded by `PATIENCE`.
"""

import asyncio
import contextlib
import json
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

import httpx
import uvicorn
from websockets.asyncio.client import ClientConnection, connect

from app import wiring
from app.agents.contract import AgentEvent, Prompt, Scope
from app.agents.driver import Bounds
from app.main import Application
from app.settings import Settings
from app.turns.limits import Limits

PATIENCE = 60.0
SHORT = Bounds(grace=0.1, recancel=0.05, recancels=2, close=0.1, tail=0.1)
HEADERS = {"content-type": "application/json"}
COMPLETED: AgentEvent = {"type": "completed"}

Json = dict[str, Any]
Script = Callable[[Scope, Prompt], AsyncIterator[AgentEvent]]
T = TypeVar("T")


async def soon(awaitable: Awaitable[T]) -> T:
    """What it gives, or a failure after `PATIENCE`."""
    async with asyncio.timeout(PATIENCE):
        return await awaitable


async def until(is_so: Callable[[], bool]) -> None:
    """Look until it is so. For what nobody announces; what has an event is waited for by its event."""
    async with asyncio.timeout(PATIENCE):
        while not is_so():  # noqa: ASYNC110 - nobody sets an event for it
            await asyncio.sleep(0.005)


def said(delta: str) -> AgentEvent:
    return {"type": "text", "delta": delta}


async def greeting(_: Scope, prompt: Prompt) -> AsyncIterator[AgentEvent]:
    """What the agent does when nothing else was agreed."""
    yield said("Hello! ")
    yield said("I'm here to help.")
    yield COMPLETED


def saying(*events: AgentEvent, ends: bool = True) -> Script:
    """An agent that says just this, then completes."""

    async def say(_: Scope, __: Prompt) -> AsyncIterator[AgentEvent]:
        for event in events:
            yield event
        if ends:
            yield COMPLETED

    return say


class Scripted:
    """An agent that does what was agreed for its session, else for its prompt, else greets."""

    name = "scripted"

    def __init__(self) -> None:
        self.in_session: dict[str, Script] = {}
        self.for_prompt: dict[str, Script] = {}

    def invoke(self, scope: Scope, prompt: Prompt, /) -> AsyncIterator[AgentEvent]:
        script = self.in_session.get(scope["session"]) or self.for_prompt.get(prompt["text"], greeting)
        return script(scope, prompt)


class Step:
    """A place in a script where the agent waits until the test lets it go on."""

    def __init__(self) -> None:
        self.reached = asyncio.Event()
        self.passed = asyncio.Event()
        self.left = asyncio.Event()

    async def wait(self) -> None:
        self.reached.set()
        try:
            await self.passed.wait()
        finally:
            self.left.set()


@dataclass(frozen=True)
class Frame:
    """One block of an event stream."""

    id: str | None = None
    event: str | None = None
    data: str | None = None
    retry: str | None = None
    comment: str | None = None

    @property
    def json(self) -> Json:
        assert self.data is not None
        found: Json = json.loads(self.data)
        return found

    @property
    def type(self) -> str:
        return str(self.json["type"])


def parse_block(block: str) -> Frame:
    """One block, read as the HTML standard says, and refused when it has what we never send."""
    fields: dict[str, str] = {}
    for line in block.splitlines():
        name, _, value = line.partition(":")
        name = name or "comment"
        assert name not in fields, f"{name} twice in {block!r}"
        fields[name] = value.removeprefix(" ")
    return Frame(**fields)


class Stream:
    """An open event stream: its response, and its frames one by one."""

    def __init__(self, response: httpx.Response) -> None:
        self.response = response
        self.raw = bytearray()
        self._chunks = response.aiter_raw()
        self._rest = bytearray()

    @property
    def read(self) -> str:
        """All that was read, frame by frame."""
        return self.raw[: len(self.raw) - len(self._rest)].decode()

    async def next(self) -> Frame | None:
        """The next block, comments and bare ids included; None at the end."""
        async with asyncio.timeout(PATIENCE):
            searched = 0
            while (end := self._rest.find(b"\n\n", searched)) < 0:
                searched = max(0, len(self._rest) - 1)
                try:
                    chunk = await anext(self._chunks)
                except StopAsyncIteration:
                    assert not self._rest, f"the stream ended inside of a frame: {self._rest!r}"
                    return None
                self.raw += chunk
                self._rest += chunk
        block = self._rest[:end].decode()
        del self._rest[: end + 2]
        return parse_block(block)

    async def event(self) -> Frame:
        """The next frame that dispatches."""
        while True:
            frame = await self.next()
            assert frame is not None, "the stream has ended"
            if frame.data is not None:
                return frame

    async def upto(self, event_type: str) -> list[Json]:
        """The events up to the first of this type."""
        events: list[Json] = []
        while not events or events[-1]["type"] != event_type:
            events.append((await self.event()).json)
        return events

    async def rest(self) -> list[Frame]:
        """All frames to the end."""
        frames = []
        while (frame := await self.next()) is not None:
            frames.append(frame)
        return frames


class Socket:
    """A client on `/ws`."""

    def __init__(self, connection: ClientConnection) -> None:
        self.connection = connection

    async def say(self, message: Json | str | bytes) -> None:
        await soon(self.connection.send(json.dumps(message) if isinstance(message, dict) else message))

    async def hear(self) -> Json:
        received: Json = json.loads(await self.hear_text())
        return received

    async def hear_text(self) -> str:
        message = await soon(self.connection.recv())
        assert isinstance(message, str)
        return message

    async def until(self, event_type: str) -> list[Json]:
        """What is heard up to the first message of this type."""
        heard: list[Json] = []
        while not heard or heard[-1]["type"] != event_type:
            heard.append(await self.hear())
        return heard

    async def ask(self, message: Json | str | bytes, answer: str) -> Json:
        """The first message of this type after saying something."""
        await self.say(message)
        return (await self.until(answer))[-1]


@dataclass
class Client:
    """What a test does to a server, as one principal."""

    server: "Serving"
    http: httpx.AsyncClient
    headers: dict[str, str] = field(default_factory=dict)

    async def get(self, path: str, **params: Any) -> httpx.Response:
        return await soon(self.http.get(path, params=params))

    async def post(self, path: str, body: Any = None, **headers: str) -> httpx.Response:
        content = body if isinstance(body, str | bytes) else json.dumps(body)
        dashed = {name.replace("_", "-"): value for name, value in headers.items()}
        return await soon(self.http.post(path, content=content, headers=HEADERS | dashed))

    async def session(self, script: Script | None = None, **fields: Any) -> str:
        """A new session, in which the agent follows the script."""
        response = await self.post("/api/v1/sessions/create", fields)
        assert response.status_code == 201, response.text
        session_id = str(response.json()["sessionId"])
        if script is not None:
            self.server.agent.in_session[session_id] = script
        return session_id

    async def query(self, session_id: str, query: Any = "Hello", **fields: Any) -> httpx.Response:
        return await self.post("/api/v1/sessions/query", {"sessionId": session_id, "query": query, **fields})

    async def abort(self, session_id: str, **fields: Any) -> Json:
        response = await self.post("/api/v1/sessions/abort", {"sessionId": session_id, **fields})
        assert response.status_code == 200, response.text
        receipt: Json = response.json()
        return receipt

    async def delete(self, session_id: str) -> httpx.Response:
        return await self.post("/api/v1/sessions/delete", {"sessionId": session_id})

    async def status(self, session_id: str) -> Json:
        found: Json = (await self.get("/api/v1/sessions/status", sessionId=session_id)).json()["status"]
        return found

    async def append(self, session_id: str, event_type: str, data: Any = None) -> httpx.Response:
        return await self.post(
            "/api/v1/sessions/events", {"sessionId": session_id, "type": event_type, "data": data}
        )

    async def page(self, session_id: str, **params: Any) -> Json:
        response = await self.get("/api/v1/sessions/events", sessionId=session_id, **params)
        assert response.status_code == 200, response.text
        found: Json = response.json()
        return found

    async def events(self, session_id: str, *, deltas: bool = True) -> list[Json]:
        """All events of the session, read by cursor."""
        events: list[Json] = []
        after = "0"
        while True:
            page = await self.page(session_id, limit=1000, deltas=str(deltas).lower(), after=after)
            events += page["events"]
            if not page["hasMore"]:
                return events
            after = page["nextAfter"]

    @asynccontextmanager
    async def stream(
        self, session_id: str, *, last: str | None = None, **params: Any
    ) -> AsyncIterator[Stream]:
        """The session's live stream."""
        headers = {} if last is None else {"last-event-id": last}
        params = {name.rstrip("_"): value for name, value in params.items()}
        async with self.http.stream(
            "GET",
            "/api/v1/sessions/events/stream",
            params={"sessionId": session_id, **params},
            headers=headers,
        ) as response:
            assert response.status_code == 200, await response.aread()
            yield Stream(response)

    @asynccontextmanager
    async def query_stream(
        self, session_id: str, query: Any = "Hello", **fields: Any
    ) -> AsyncIterator[Stream]:
        """A query whose events are streamed."""
        body = {"sessionId": session_id, "query": query, **fields}
        async with self.http.stream(
            "POST",
            "/api/v1/sessions/query/stream",
            content=json.dumps(body),
            headers=HEADERS | {"accept": "text/event-stream"},
        ) as response:
            assert response.status_code == 200, await response.aread()
            yield Stream(response)

    @asynccontextmanager
    async def socket(self, **options: Any) -> AsyncIterator[Socket]:
        """A connection to `/ws`."""
        options.setdefault("max_size", None)
        options.setdefault("open_timeout", PATIENCE)
        async with connect(
            f"{self.server.url.replace('http', 'ws', 1)}/ws",
            proxy=None,
            additional_headers=self.headers | options.pop("headers", {}),
            **options,
        ) as connection:
            yield Socket(connection)


class Serving:
    """A server that runs, its scripted agent, and clients for it."""

    def __init__(self, application: Application, agent: Scripted, port: int, stack: AsyncExitStack) -> None:
        self.application = application
        self.agent = agent
        self.url = f"http://127.0.0.1:{port}"
        self._stack = stack

    @property
    def parts(self) -> wiring.Server:
        assert self.application.server is not None
        return self.application.server

    async def client(self, token: str | None = None) -> Client:
        """A client with this token."""
        headers = {} if token is None else {"authorization": f"Bearer {token}"}
        http = httpx.AsyncClient(
            base_url=self.url,
            headers=headers,
            trust_env=False,
            timeout=PATIENCE,
            limits=httpx.Limits(max_connections=500, max_keepalive_connections=10),
        )
        await self._stack.enter_async_context(http)
        return Client(self, http, headers)


class _Uvicorn(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@asynccontextmanager
async def serving(database: str, agent: Scripted | None = None, **settings: Any) -> AsyncIterator[Serving]:
    """A server over a database of its own, until the block ends; then drained as `app.serving` does."""
    agent = agent or Scripted()
    settings.setdefault("drain_grace", 2)
    application = Application(Settings(database_url=database, port=0, **settings), agent)
    listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
    # Inherited by connections: asyncio (not uvloop) sets it only where a socket tells its protocol's number.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    config = uvicorn.Config(
        application,
        lifespan="off",
        http="httptools",
        ws="websockets-sansio",
        ws_max_size=application.settings.max_body,
        ws_per_message_deflate=False,
        access_log=False,
        server_header=False,
        log_config=None,
        timeout_graceful_shutdown=1,
    )
    server = _Uvicorn(config)
    async with AsyncExitStack() as stack, application.started() as running:
        task = asyncio.create_task(server.serve(sockets=[listener]), name="uvicorn of a test")
        await until(lambda: server.started)
        try:
            yield Serving(application, agent, listener.getsockname()[1], stack)
        finally:
            await stack.aclose()
            await running.drain()
            server.should_exit = True
            await soon(task)


def short_bounds(limits: type[Limits] = Limits) -> Callable[..., Limits]:
    """For `monkeypatch.setattr("app.wiring.Limits", …)`: agents that don't stop are given up on soon."""
    return lambda **sizes: limits(**sizes, bounds=SHORT)


def types(events: Iterable[Json]) -> list[str]:
    return [event["type"] for event in events]


def places(events: Iterable[Json]) -> list[int]:
    return [int(event["id"].rpartition("_")[2]) for event in events]


def elapsed(since: float) -> float:
    return time.monotonic() - since
