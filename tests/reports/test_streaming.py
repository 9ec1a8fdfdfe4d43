"""Reports of streams that arrive late, torn, forged or with holes."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, aclosing

import httpx
import pytest
from httpx_sse import EventSource

from app.agents.contract import AgentEvent, Prompt, Scope
from tests.reports.machine import nginx
from tests.server import (
    COMPLETED,
    PATIENCE,
    Client,
    Json,
    Script,
    Stream,
    places,
    said,
    saying,
    soon,
    types,
)

WORDS = 5


class Conversation:
    """An agent that says each word only when the one before has arrived: whoever gathers words waits for ever."""

    def __init__(self) -> None:
        self.heard: asyncio.Queue[None] = asyncio.Queue()

    async def script(self, _: Scope, __: Prompt) -> AsyncIterator[AgentEvent]:
        for number in range(WORDS):
            yield said(f"{number} ")
            await self.heard.get()
        yield COMPLETED

    async def listen(self, stream: Stream) -> list[Json]:
        """All events of the turn; each delta lets the agent go on."""
        events: list[Json] = []
        while not events or events[-1]["type"] != "agent_run_end":
            events.append((await stream.event()).json)
            if events[-1]["type"] == "assistant_message_delta":
                self.heard.put_nowait(None)
        return events


# The first is nginx as Debian ships it; the second gathers what it compresses, unless it is told not to buffer.
PROXIES = {"stock": (), "compresses everything": ("gzip_types *;", "gzip_min_length 0;", "gzip_proxied any;")}


@pytest.mark.parametrize("proxy", PROXIES)
@pytest.mark.parametrize("way", ["query/stream", "events/stream"])
async def test_d01_frames_pass_a_buffering_proxy_one_by_one(client: Client, way: str, proxy: str) -> None:
    """xorbitsai/xagent#1358, nginx/nginx#1505: behind nginx the whole answer came in one lump at its end."""
    conversation = Conversation()
    session_id = await client.session(conversation.script)
    body = {"sessionId": session_id, "query": "x"}
    async with (
        nginx(client.server.url, *PROXIES[proxy]) as path,
        httpx.AsyncClient(
            transport=httpx.AsyncHTTPTransport(uds=path),
            base_url="http://proxied",
            headers={"accept-encoding": "gzip"},
            timeout=PATIENCE,
        ) as proxied,
    ):
        if way == "query/stream":
            streaming = proxied.stream("POST", f"/api/v1/sessions/{way}", json=body)
        else:
            streaming = proxied.stream("GET", f"/api/v1/sessions/{way}", params={"sessionId": session_id})
        async with streaming as response:
            assert response.status_code == 200
            assert response.headers["cache-control"] == "no-cache, no-transform"
            assert ("content-encoding" in response.headers) == (proxy != "stock")
            stream = Stream(response)
            stream._chunks = response.aiter_bytes()
            query = None if way == "query/stream" else asyncio.create_task(client.query(session_id))
            events = await conversation.listen(stream)
            if query is not None:
                await query

    assert types(events).count("assistant_message_delta") == WORDS
    assert events[-1]["data"]["status"] == "completed"


async def test_d01_every_stream_asks_proxies_not_to_buffer(client: Client) -> None:
    """xorbitsai/xagent#1358, nginx/nginx#1505: the header that turns nginx's buffering off was missing."""
    session_id = await client.session()
    async with (
        client.stream(session_id) as live,
        client.query_stream(session_id) as query,
        client.http.stream("POST", "/api/v1/oneshot/query/stream", json={"query": "x"}) as oneshot,
    ):
        for response in (live.response, query.response, oneshot):
            assert response.headers["x-accel-buffering"] == "no"
            assert response.headers["cache-control"] == "no-cache, no-transform"
            assert response.headers["content-type"].startswith("text/event-stream")


async def test_d05_what_comes_while_the_history_is_replayed_comes_too(client: Client) -> None:
    """OpenHands/OpenHands#8818: events that were produced during the replay were never sent."""
    readers, history = 24, 1_200
    all_there = asyncio.Event()

    async def until_all_are_there(_: Scope, __: Prompt) -> AsyncIterator[AgentEvent]:
        while not all_there.is_set():
            yield said("x")
            await asyncio.sleep(0.002)
        yield COMPLETED

    session_id = await client.session(saying(*(said("h") for _ in range(history))))
    await client.query(session_id)
    client.server.agent.in_session[session_id] = until_all_are_there
    query = asyncio.create_task(client.query(session_id))

    async def read(stream: Stream) -> list[Json]:
        return [*(await stream.upto("agent_run_end")), *(await stream.upto("agent_run_end"))]

    async with AsyncExitStack() as stack:
        reading = []
        for number in range(readers):
            stream = await stack.enter_async_context(
                client.stream(session_id, **({"after": "0"} if number % 2 else {}))
            )
            reading.append(asyncio.create_task(read(stream)))
        all_there.set()
        seen = await soon(asyncio.gather(*reading))
        await query

    everything = await client.events(session_id)
    first_turn_end = types(everything).index("agent_run_end")
    replayed = [
        event
        for index, event in enumerate(everything)
        if index > first_turn_end or event["type"] != "assistant_message_delta"
    ]
    assert places(everything) == list(range(1, len(everything) + 1))
    assert all(events == (everything if number % 2 else replayed) for number, events in enumerate(seen))


async def test_d08_a_thousand_events_of_one_instant_have_ids_that_rise(client: Client) -> None:
    """langchain-ai/langgraph#8112: two events of the same millisecond had the same id."""
    session_id = await client.session(saying(*(said(f"{number} ") for number in range(1000))))

    async with client.stream(session_id) as live, client.query_stream(session_id) as stream:
        frames = [frame for frame in await stream.rest() if frame.data is not None]
        by_live = await live.upto("agent_run_end")

    assert [frame.id for frame in frames] == [frame.json["id"] for frame in frames]
    assert len({frame.id for frame in frames}) == len(frames) > 1000
    assert len({frame.json["timestamp"] for frame in frames}) < len(frames), "no two shared an instant"
    assert places(by_live) == list(range(1, len(by_live) + 1))
    assert places(frame.json for frame in frames) == places(by_live)[1:]


@pytest.mark.parametrize(
    "end", ["\u2028", "\u2029", "\u0085", "\r", "\n", "\r\n\r\n", "\x0b", "\x0c", "\x1e"]
)
async def test_d17_no_text_splits_a_frame_in_any_reader_of_lines(client: Client, end: str) -> None:
    """Soju06/codex-lb#1010, florimondmanca/httpx-sse#34: U+2028 in JSON tore a frame in clients that split lines."""
    text = f"{end}a{end}{end}b{end}"
    tool = {"type": "tool_started", "id": end, "name": text, "args": {text: text}}
    session_id = await client.session(saying(said(text), tool, {"type": "note", text: [text]}))
    body = {"sessionId": session_id, "query": text}

    async with client.http.stream("POST", "/api/v1/sessions/query/stream", json=body) as response:
        raw = (await soon(response.aread())).decode()
    request = client.http.stream(
        "GET", "/api/v1/sessions/events/stream", params={"sessionId": session_id, "after": 1}
    )
    by_library: list[Json] = []
    async with request as response, aclosing(EventSource(response).aiter_sse()) as parsed:
        # The library also tells of a bare id, which has no data.
        async for event in parsed:
            by_library += [event.json()] if event.data else []
            if types(by_library[-1:]) == ["agent_run_end"]:
                break
    by_lines = [line for line in raw.splitlines() if line]

    history = (await client.events(session_id))[1:]
    assert by_library == history
    assert raw.splitlines() == raw.removesuffix("\n").split("\n")
    assert all(line.split(":")[0] in ("id", "event", "data", "retry") for line in by_lines)
    assert history[0]["data"]["content"] == text
    assert {event["type"]: event for event in history}["note"]["data"] == {text: [text]}


FORGED = 'x{end}data: {{"type":"fake"}}{end}{end}id: evt_1'


@pytest.mark.parametrize("end", ["\n", "\r", "\r\n", "\x00", "\u2028", "\u0085"])
async def test_d18_no_event_type_forges_a_frame(client: Client, end: str) -> None:
    """fastapi/fastapi#15187: a line's end in an event's name or id began a frame of the sender's own."""
    forged = FORGED.format(end=end)
    refused: Script = saying(said("before"), {"type": forged, "id": forged}, said("after"))
    session_id = await client.session(refused)

    async with client.query_stream(session_id) as stream:
        frames = [frame for frame in await stream.rest() if frame.data is not None]
    by_client = await client.append(session_id, forged)

    assert [frame.event for frame in frames] == [frame.type for frame in frames]
    assert "fake" not in [frame.event for frame in frames]
    assert frames[-2].json["data"]["code"] == "bad_event"
    assert (by_client.status_code, by_client.json()["code"]) == (400, "bad_type")


async def test_d18_a_type_that_only_looks_like_a_frame_is_one_line(client: Client) -> None:
    """fastapi/fastapi#15187: what is printable is kept, as one event."""
    odd = 'x\\ndata: {"type": "fake"}'
    session_id = await client.session(saying({"type": odd, "id": "id: 1"}))

    async with client.query_stream(session_id) as stream, client.socket() as socket:
        frames = [frame for frame in await stream.rest() if frame.data is not None]
        await socket.ask({"type": "join_session", "sessionId": session_id}, "session_start")
        heard = await socket.until("agent_run_end")

    assert [frame.event for frame in frames].count(odd) == 1
    assert [frame.json for frame in frames] == [e for e in heard if e["type"] != "session_joined"]


async def test_d18_no_client_chosen_id_reaches_a_frame(client: Client) -> None:
    """fastapi/fastapi#15187: an id with a line's end is refused wherever one is taken."""
    session_id = await client.session()
    for cursor in ("1\nid: 2", "1\r\n\r\ndata: {}", "1\x00"):
        params = {"sessionId": session_id, "after": cursor}
        refused = await client.get("/api/v1/sessions/events/stream", **params)
        assert (refused.status_code, refused.json()["code"]) == (400, "bad_cursor")
        async with client.socket() as socket:
            error = await socket.ask(
                {"type": "join_session", "sessionId": session_id, "after": cursor}, "error"
            )
        assert error["data"]["code"] == "bad_cursor"
        assert error["id"].isascii()
        assert error["id"].isprintable()
