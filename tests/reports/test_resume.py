"""Reports of clients that come back and miss something, or see it twice."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from typing import Any

import pytest

from app.agents.contract import AgentEvent, Prompt, Scope
from tests.reports.machine import cut
from tests.server import (
    COMPLETED,
    PATIENCE,
    Client,
    Json,
    Script,
    Step,
    places,
    said,
    soon,
)

BEFORE, MEANWHILE, AFTER = 40, 30, 40


def in_three_parts(cut_off: Step, back: Step) -> Script:
    """Says something, and goes on when the client is cut off, and again when it is back."""

    async def agent(_: Scope, __: Prompt) -> AsyncIterator[AgentEvent]:
        for number in range(BEFORE):
            yield said(f"{number} ")
        await cut_off.wait()
        for number in range(MEANWHILE):
            yield said(f"{number} ")
        yield {"type": "note", "text": "nobody is here"}
        await back.wait()
        for number in range(AFTER):
            yield said(f"{number} ")
        yield COMPLETED

    return agent


class Phone:
    """A client on a bare TCP connection that is cut without a word."""

    def __init__(self, client: Client) -> None:
        self.raw = socket.create_connection(("127.0.0.1", int(client.server.url.rpartition(":")[2])))
        self.raw.settimeout(0)

    async def request(self, method: str, path: str, body: Json | None = None) -> None:
        content = b"" if body is None else json.dumps(body).encode()
        head = (
            f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(content)}\r\n\r\n"
        )
        await soon(asyncio.get_running_loop().sock_sendall(self.raw, head.encode() + content))

    async def read_until(self, words: bytes) -> list[Json]:
        """The events that came, up to the one with these words."""
        received = b""
        async with asyncio.timeout(PATIENCE):
            while words not in received or not received.endswith(b"\n\n\r\n"):
                received += await asyncio.get_running_loop().sock_recv(self.raw, 2**16)
        return [json.loads(line[6:]) for line in received.split(b"\n") if line.startswith(b"data: {")]


LAST_WORD = f'"delta":"{BEFORE - 1} '.encode()


async def cut_off(client: Client, session_id: str, way: str) -> tuple[list[Json], "asyncio.Task[Any] | None"]:
    """Read the turn's first part, then lose the connection; what was seen."""
    if way == "/ws":
        async with client.socket() as ws:
            await ws.ask({"type": "join_session", "sessionId": session_id}, "session_joined")
            await ws.say({"type": "send_query", "sessionId": session_id, "query": "x"})
            seen = [await ws.hear()]
            while seen[-1]["data"].get("delta") != f"{BEFORE - 1} ":
                seen.append(await ws.hear())
            cut(ws.connection.transport.get_extra_info("socket").dup())
            ws.connection.transport.abort()
        return seen, None
    phone, query = Phone(client), None
    if way == "query/stream":
        await phone.request("POST", f"/api/v1/sessions/{way}", {"sessionId": session_id, "query": "x"})
    else:
        await phone.request("GET", f"/api/v1/sessions/{way}?sessionId={session_id}")
        query = asyncio.create_task(client.query(session_id))
    seen = await phone.read_until(LAST_WORD)
    cut(phone.raw)
    return seen, query


async def come_back(client: Client, session_id: str, cursor: str, way: str) -> list[Json]:
    """What is told after the cursor, up to the turn's end."""
    if way == "/ws":
        async with client.socket() as ws:
            joined = await ws.ask(
                {"type": "join_session", "sessionId": session_id, "after": cursor}, "session_joined"
            )
            assert joined["data"]["sessionId"] == session_id
            return await ws.until("agent_run_end")
    if way == "Last-Event-ID":
        async with client.stream(session_id, last=cursor) as stream:
            return await stream.upto("agent_run_end")
    async with client.stream(session_id, after=cursor) as stream:
        return await stream.upto("agent_run_end")


async def seen_before_and_after(
    client: Client, way: str, back: str
) -> tuple[list[Json], list[Json], list[Json]]:
    """A turn whose reader was cut off in the middle: what it saw before, after, and what the log has."""
    is_gone, is_back = Step(), Step()
    session_id = await client.session(in_three_parts(is_gone, is_back))
    before, query = await cut_off(client, session_id, way)
    await soon(is_gone.reached.wait())
    is_gone.passed.set()
    await soon(is_back.reached.wait())
    coming = asyncio.create_task(come_back(client, session_id, before[-1]["id"], back))
    is_back.passed.set()
    after = await coming
    if query is not None:
        await query
    return before, after, await client.events(session_id)


@pytest.mark.parametrize("back", ["Last-Event-ID", "after", "/ws"])
@pytest.mark.parametrize("way", ["events/stream", "query/stream", "/ws"])
async def test_d06_what_was_said_while_nobody_was_there_is_told(client: Client, way: str, back: str) -> None:
    """anomalyco/opencode#13947: after a reconnect the events in between never came."""
    before, after, everything = await seen_before_and_after(client, way, back)

    from_the_turn_on = [event for event in everything if event["id"] in {e["id"] for e in before + after}]
    assert before + after == from_the_turn_on
    assert places(before + after)[-1] == len(everything)
    assert places(after) == list(range(places(before)[-1] + 1, len(everything) + 1))
    assert [event["data"]["text"] for event in after if event["type"] == "note"] == ["nobody is here"]


@pytest.mark.parametrize("back", ["Last-Event-ID", "after", "/ws"])
async def test_d07_only_events_after_the_cursor_come_again(client: Client, back: str) -> None:
    """OpenHands/OpenHands#12197: a reconnect sent everything again, and clients showed it twice."""
    before, after, everything = await seen_before_and_after(client, "events/stream", back)

    cursor = places(before)[-1]
    assert min(places(after)) == cursor + 1
    assert len({event["id"] for event in before + after}) == len(before + after)
    for place in (1, cursor, len(everything) - 1):
        again = await come_back(client, everything[0]["sessionId"], str(place), back)
        assert again == everything[place:]
    page = await client.page(everything[0]["sessionId"], after=before[-1]["id"], deltas="true", limit=1000)
    assert page["events"] == after


async def test_d07_a_reader_that_has_seen_all_is_told_nothing_twice(client: Client) -> None:
    """OpenHands/OpenHands#12197: neither at the end of the log, nor after a query's stream has ended."""
    session_id = await client.session()
    async with client.query_stream(session_id) as stream:
        frames = [frame for frame in await stream.rest() if frame.id is not None]
    assert places(f.json for f in frames if f.data) == list(range(2, len(frames) + 1))

    async with client.stream(session_id, last=frames[-1].id) as stream:
        opening = await stream.next()
        await client.append(session_id, "note")
        event = await stream.event()

    assert opening is not None
    assert (opening.id, opening.data) == (frames[-1].id, None)
    assert places([event.json]) == [places([frames[-1].json])[0] + 1]
