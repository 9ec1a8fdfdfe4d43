"""What clients are told while the database is away, or their session goes."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import pytest

from app.errors import StorageUnavailable
from app.log.session_log import Page, SessionLog
from tests.dialects.test_query import refusal
from tests.dialects.test_stream import in_two_halves
from tests.server import Client, Step, soon, until

STREAM = "/api/v1/sessions/events/stream"
QUERY = "/api/v1/sessions/query"


async def test_an_event_source_that_comes_back_in_an_outage_is_told_to_try_again(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    session_id = await client.session()

    async def away(*_: Any) -> Any:
        raise StorageUnavailable("away")

    monkeypatch.setattr(client.server.parts.parts.directory, "find", away)
    again = await client.http.get(STREAM, params={"sessionId": session_id}, headers={"last-event-id": "1"})
    assert (again.status_code, again.headers["content-type"]) == (200, "text/event-stream; charset=utf-8")
    assert again.text.startswith("retry: ")
    assert again.text.endswith("\n\n")
    assert "id:" not in again.text
    first = await client.http.get(STREAM, params={"sessionId": session_id})
    assert refusal(first) == (503, "storage_unavailable")


async def test_a_waiting_query_of_a_session_that_is_deleted_is_told(client: Client) -> None:
    session_id = await client.session()
    client.server.agent.in_session[session_id] = in_two_halves(Step())
    asked = {"sessionId": session_id, "query": "x"}
    running = asyncio.create_task(client.post(QUERY, asked))
    supervisor = client.server.parts.parts.supervisor
    await until(lambda: supervisor.running == 1)
    waiting = asyncio.create_task(client.post(QUERY, asked | {"onBusy": "queue"}))

    async def waits() -> bool:
        return len(await supervisor.queue.waiting(session_id)) == 1

    while not await soon(waits()):  # noqa: ASYNC110 - it asks the store
        await asyncio.sleep(0)
    await client.post("/api/v1/sessions/delete", {"sessionId": session_id})
    # The end of the log and the queue's being dropped are told one after the other, and either says it.
    assert refusal(await soon(waiting)) in ((404, "session_deleted"), (409, "turn_removed"))
    assert (await soon(running)).json()["status"] == "aborted"


async def test_a_blocking_query_reads_on_after_an_outage(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    follow = SessionLog.follow
    outages: list[int] = []

    async def away_at_first(log: SessionLog, after: int) -> AsyncIterator[Page]:
        if not outages:
            outages.append(after)
            raise StorageUnavailable("away")
        async with aclosing(follow(log, after)) as pages:
            async for page in pages:
                yield page

    monkeypatch.setattr(SessionLog, "follow", away_at_first)
    answer = await client.post(QUERY, {"sessionId": await client.session(), "query": "x"})
    assert answer.json()["status"] == "completed"
    assert len(outages) == 1
