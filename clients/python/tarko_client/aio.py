"""The asynchronous client: the blocking one with `async` and `await`. What both decide lies in modules without I/O."""

import asyncio
import uuid
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager, suppress
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack

import httpx
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosedOK

from tarko_client import request
from tarko_client.answer import Answer, Answering
from tarko_client.errors import ClientError
from tarko_client.event import Event
from tarko_client.exchange import (
    STREAM_HEADERS,
    Address,
    ended,
    event_source,
    frame_of,
    frame_on_socket,
    options_of,
    refusal,
    told,
)
from tarko_client.history import Filter, Paging, Where, params_of
from tarko_client.link import Backoff, Link, OnState, unobserved
from tarko_client.pages import EventPage, SessionPage
from tarko_client.reading import Asking, Following, Frame, Join, Reading, Transport
from tarko_client.request import Call, Request
from tarko_client.shapes import AbortReceipt, Queue, SessionItem, TurnOptions, TurnStatus

T = TypeVar("T")


class AsyncClient:
    """A Tarko server. Use as an async context manager, in one event loop.

    `token` says who asks, where the server wants to know. `backoff` is how readers come back. Every call raises
    `ConnectionLost`, `Refused` or `NotTarko`; only what can be repeated without harm is.
    """

    def __init__(self, url: str, token: str | None = None, *, backoff: Backoff | None = None) -> None:
        """Raises ValueError for what is no address or no token."""
        self._address = Address(url, token)
        self._http = httpx.AsyncClient(**self._address.http_options)
        self._backoff = backoff or Backoff()
        self.url = self._address.url

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections."""
        await self._http.aclose()

    async def create(
        self, name: str | None = None, *, tags: list[str] | None = None, agent: str | None = None
    ) -> "AsyncSession":
        """A new session."""
        return self.session((await self.call(request.create(name, tags, agent)))["sessionId"])

    def session(self, session_id: str) -> "AsyncSession":
        """The session of that id; nothing is asked of the server."""
        return AsyncSession(self, session_id)

    async def sessions(self, *, limit: int = 100, after: str | None = None) -> SessionPage:
        """A page of sessions, newest first."""
        return await self.call(request.sessions(limit, after))

    async def call(self, call: Call[T]) -> T:
        """Ask once, and read the answer."""
        asked = call.request
        with told(self.url):
            answer = await self._http.request(asked.method, asked.path, **options_of(asked))
        if not answer.is_success:
            raise refusal(self.url, answer.status_code, answer.headers, answer.content)
        return call.read(answer.text)

    async def patiently(self, call: Call[T], link: Link) -> T:
        """Ask until there is an answer, or no hope of one."""
        while True:
            try:
                answer = await self.call(call)
            except ClientError as error:
                await asyncio.sleep(link.lost(error))
            else:
                link.heard()
                return answer

    async def read(self, reading: Reading, link: Link) -> AsyncGenerator[Event, None]:
        """The events of a reading, over as many connections as it takes."""
        end: ClientError | None = None
        try:
            while True:
                link.connecting()
                loss: ClientError = ended(self.url)
                try:
                    async with (
                        self._open(reading.opening()) as frames,
                        aclosing(_new(reading, frames, link)) as events,
                    ):
                        async for event in events:
                            yield event
                    if reading.is_over:
                        return
                except ClientError as error:
                    loss = error
                await asyncio.sleep(link.lost(loss))
        except ClientError as error:
            end = error
            raise
        finally:
            link.closed(end)

    def link(self, backoff: Backoff | None = None, on_state: OnState = unobserved) -> Link:
        """A link that comes back as this client does, or as said."""
        return Link(backoff or self._backoff, on_state)

    @asynccontextmanager
    async def _open(self, opening: Request | Join) -> AsyncIterator[AsyncIterator[Frame]]:
        with told(self.url):
            if isinstance(opening, Join):
                async with connect(self._address.socket_url, **self._address.socket_options) as socket:
                    await socket.send(opening.message)
                    async with aclosing(_on_socket(socket)) as frames:
                        yield frames
                return
            options = options_of(opening, **STREAM_HEADERS)
            async with self._http.stream(opening.method, opening.path, **options) as answer:
                if not answer.is_success:
                    raise refusal(self.url, answer.status_code, answer.headers, await answer.aread())
                async with aclosing(_on_stream(answer)) as frames:
                    yield frames


async def _on_stream(answer: httpx.Response) -> AsyncGenerator[Frame, None]:
    async with aclosing(event_source(answer).aiter_sse()) as blocks:
        async for block in blocks:
            yield frame_of(block)


async def _on_socket(socket: ClientConnection) -> AsyncGenerator[Frame, None]:
    with suppress(ConnectionClosedOK):
        while True:
            yield frame_on_socket(await socket.recv())


async def _new(reading: Reading, frames: AsyncIterator[Frame], link: Link) -> AsyncGenerator[Event, None]:
    """The events of one connection that are new, up to the last."""
    async for frame in frames:
        link.take(frame)
        event = reading.take(frame)
        if event is not None:
            yield event
        if reading.is_over:
            return


class AsyncSession:
    """One session of a server."""

    def __init__(self, client: AsyncClient, session_id: str) -> None:
        self.id = session_id
        self._client = client

    async def details(self) -> SessionItem:
        """What the server knows of it."""
        return await self._client.call(request.details(self.id))

    async def status(self) -> TurnStatus:
        """Whether a turn runs, and how many wait."""
        return await self._client.call(request.status(self.id))

    async def queue(self) -> Queue:
        """The turns that wait."""
        return await self._client.call(request.queue(self.id))

    async def update(
        self,
        *,
        name: str | None = None,
        tags: list[str] | None = None,
        metadata: dict[str, Any] | None = None,
    ) -> SessionItem:
        """Change what is given; `metadata` is merged."""
        return await self._client.call(request.update(self.id, name, tags, metadata))

    async def delete(self) -> None:
        """Delete it: its turn is aborted, its readers are told."""
        await self._client.call(request.delete(self.id))

    async def abort(self, turn_id: str | None = None) -> AbortReceipt:
        """End the running turn, or only the one named; returns when its ending is stored."""
        return await self._client.call(request.abort(self.id, turn_id))

    async def append(self, event_type: str, data: Any = None) -> str:
        """Add an event of one's own; returns its id."""
        return await self._client.call(request.append(self.id, event_type, data))

    async def page(self, **where: Unpack[Where]) -> EventPage:
        """One page of the history."""
        return await self._client.call(request.events(self.id, params_of(where)))

    async def pages(
        self,
        *,
        after: str | int = 0,
        limit: int = 1000,
        backoff: Backoff | None = None,
        on_state: OnState = unobserved,
        **which: Unpack[Filter],
    ) -> AsyncGenerator[EventPage, None]:
        """Every page of the history after a cursor, oldest first; a page that was lost is asked for again."""
        paging = Paging(self.id, which, after=after, limit=limit)
        link = self._client.link(backoff, on_state)
        while not paging.is_over:
            page = await self._client.patiently(paging.call(), link)
            yield page
            paging.take(page)

    async def events(self, **which: Unpack[Filter]) -> AsyncGenerator[Event, None]:
        """Every event of the history, oldest first."""
        async with aclosing(self.pages(**which)) as pages:
            async for page in pages:
                for event in page.events:
                    yield event

    def follow(
        self,
        *,
        after: str | int | None = None,
        from_now: bool = False,
        transport: Transport = "sse",
        backoff: Backoff | None = None,
        on_state: OnState = unobserved,
    ) -> AsyncGenerator[Event, None]:
        """Every event once, in order, as it happens, over as many connections as it takes; ends with the session.

        Begins after the cursor; else now; else at the start, where ended turns are told without their deltas. Close the
        generator to stop (`contextlib.aclosing`). Raises what coming back won't mend, such as Refused (404) for a session that is gone.
        """
        reading = Following(self.id, after=after, from_now=from_now, transport=transport)
        return self._client.read(reading, self._client.link(backoff, on_state))

    def stream(
        self,
        query: str | list[dict[str, Any]],
        *,
        key: str | None = None,
        options: TurnOptions | None = None,
        backoff: Backoff | None = None,
        on_state: OnState = unobserved,
    ) -> AsyncGenerator[Event, None]:
        """Start a turn; its events, each once, up to its ending, over as many connections as it takes.

        `key` makes queries with the same key the same turn; without one, each call is a turn of its own. Raises
        `Refused` when the turn is not accepted.
        """
        reading = Asking(self.id, {**(options or {}), "query": query}, key or str(uuid.uuid4()))
        return self._client.read(reading, self._client.link(backoff, on_state))

    async def query(
        self,
        query: str | list[dict[str, Any]],
        *,
        key: str | None = None,
        options: TurnOptions | None = None,
        backoff: Backoff | None = None,
        on_state: OnState = unobserved,
    ) -> Answer:
        """Start a turn and return its answer. It is read from the turn's stream, so a lost connection loses nothing.

        Raises TurnFailed for a turn that failed, was interrupted, or was removed before it started.
        """
        answering = Answering()
        stream = self.stream(query, key=key, options=options, backoff=backoff, on_state=on_state)
        async with aclosing(stream) as events:
            async for event in events:
                answering.take(event)
        return answering.answer()
