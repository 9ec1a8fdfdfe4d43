"""Both clients take a message that is larger than an event of an agent may be, over both transports, and in a page."""

from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest

from app.agents.translate import MAX_EVENT
from tarko_client import AsyncClient
from tarko_client.reading import Transport
from tests.clients.drivers import Job, Run
from tests.conftest import Server, own_database
from tests.server import Json, said, saying, serving

PIECES = [f"{n:02} ".ljust(10**6, "x") for n in range(24)]


@dataclass(frozen=True)
class Told:
    """The session, the message, and a cursor from which it is next."""

    url: str
    session_id: str
    message: Json
    before: str


@pytest.fixture(scope="module")
async def told(embedded_server: Server) -> AsyncIterator[Told]:
    async with own_database(embedded_server) as url, serving(url) as server:
        client = await server.client()
        session_id = await client.session(saying(*map(said, PIECES)))
        answer = (await client.query(session_id)).json()
        message = answer["events"][-2]
        assert len(message["data"]["content"]) > MAX_EVENT
        head, _, place = message["id"].rpartition("_")
        yield Told(server.url, session_id, message, f"{head}_{int(place) - 1}")


@pytest.mark.parametrize("transport", ["sse", "websocket"])
async def test_a_large_message_is_followed(told: Told, run: Run, transport: Transport) -> None:
    job = Job(told.url, told.session_id, transport, after=told.before, stop_at="assistant_message")
    result = await run(job)
    assert result.error is None
    assert result.events == [told.message]


async def test_a_large_message_is_in_the_history(told: Told) -> None:
    async with AsyncClient(told.url) as client:
        page = await client.session(told.session_id).page(after=told.before)
    assert next(iter(page.events)).data == told.message["data"]
