"""A message that closes 24 MB of deltas is larger than an event of an agent may be; every dialect and page carries it."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest

from app.agents.translate import MAX_EVENT
from tests.a2a.calling import Caller, state_of, texts_of
from tests.conftest import Server, own_database
from tests.dialects.tarko_ui.asking import Ui
from tests.server import Client, Json, said, saying, serving

PIECES = [f"{n:02} ".ljust(10**6, "x") for n in range(24)]
TEXT = "".join(PIECES)
KEY = {"idempotency_key": "once"}


@dataclass(frozen=True)
class Told:
    """The session in which it was said, and the events that the query's own stream told."""

    client: Client
    session_id: str
    events: list[Json]

    @property
    def closing(self) -> Json:
        [message] = [event for event in self.events if event["type"] == "assistant_message"]
        return message

    @property
    def before(self) -> str:
        """A cursor from which the message is next."""
        return str(self.events[-3]["id"])


@pytest.fixture(scope="module")
async def told(embedded_server: Server) -> AsyncIterator[Told]:
    async with own_database(embedded_server) as url, serving(url) as server:
        client = await server.client()
        session_id = await client.session(saying(*map(said, PIECES)))
        body = {"sessionId": session_id, "query": "Much"}
        answer = asyncio.create_task(client.post("/api/v1/sessions/query", body, **KEY))
        async with client.stream(session_id) as stream:
            events = await stream.upto("agent_run_end")
        assert (await answer).json()["response"] == TEXT
        yield Told(client, session_id, events)


async def test_it_is_told_live(told: Told) -> None:
    assert len(TEXT) > MAX_EVENT
    assert told.closing["data"]["content"] == TEXT


async def test_an_answer_has_it(told: Told) -> None:
    body = {"sessionId": told.session_id, "query": "Much"}
    answer = (await told.client.post("/api/v1/sessions/query", body, **KEY)).json()
    assert answer["response"] == TEXT
    assert told.closing in answer["events"]


async def test_streams_and_sockets_resume_before_it(told: Told) -> None:
    async with told.client.stream(told.session_id, last=told.before) as stream:
        assert (await stream.event()).json == told.closing
    async with told.client.socket() as socket:
        await socket.say({"type": "join_session", "sessionId": told.session_id, "after": told.before})
        assert (await socket.until("assistant_message"))[-1] == told.closing


async def test_pages_have_it_by_offset_and_by_cursor(told: Told) -> None:
    ends = told.events[-1]
    page = await told.client.page(told.session_id, limit=50, offset=0)
    assert page["events"][-2:] == [told.closing, ends]
    page = await told.client.page(told.session_id, limit=50, after=told.before)
    assert (page["events"], page["hasMore"]) == ([told.closing], True), "a page ends behind what is large"


async def test_the_flat_dialect_has_it(told: Told) -> None:
    events = await Ui(told.client).events(told.session_id)
    assert TEXT in [event.get("content") for event in events if event["type"] == "assistant_message"]


@pytest.mark.parametrize("version", ["1.0", "0.3"])
async def test_an_a2a_task_has_it(told: Told, version: str) -> None:
    task = await Caller(told.client, version).get(told.events[-1]["data"]["turnId"])
    assert state_of(task) == "completed"
    assert texts_of(task) == [TEXT]
