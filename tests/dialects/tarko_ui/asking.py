"""The flat dialect's routes, as tests ask them."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx

from tests.server import Client, Json, Script, Stream, soon

BASE = "/ui/api/v1"


class Ui:
    """What a test does to the dialect as one client."""

    def __init__(self, client: Client) -> None:
        self.client = client

    async def get(self, path: str, **params: Any) -> httpx.Response:
        return await self.client.get(f"{BASE}/{path}", **params)

    async def post(self, path: str, body: Any = None) -> httpx.Response:
        return await self.client.post(f"{BASE}/{path}", body)

    async def session(self, script: Script | None = None) -> str:
        """A new session, in which the agent follows the script."""
        created = await self.post("sessions/create", "")
        assert created.status_code == 201, created.text
        session_id = str(created.json()["sessionId"])
        if script is not None:
            self.client.server.agent.in_session[session_id] = script
        return session_id

    async def body(self, method: str, path: str, **fields: Any) -> Json:
        """The body of an answer that is fine."""
        answer = await (self.get(path, **fields) if method == "GET" else self.post(path, fields))
        assert answer.status_code == 200, answer.text
        found: Json = answer.json()
        return found

    async def events(self, session_id: str) -> list[Json]:
        found: list[Json] = (await self.body("GET", "sessions/events", sessionId=session_id))["events"]
        return found

    async def is_processing(self, session_id: str) -> bool:
        status = (await self.body("GET", "sessions/status", sessionId=session_id))["status"]
        return bool(status["isProcessing"])

    @asynccontextmanager
    async def opened(self, session_id: str, query: Any = "Hello", path: str = "") -> AsyncIterator[Stream]:
        """A query's open stream."""
        body = {"sessionId": session_id, "query": query}
        url = f"{BASE}/{path or 'sessions/query/stream'}"
        async with self.client.http.stream("POST", url, json=body) as response:
            assert response.status_code == 200, await response.aread()
            assert response.headers["content-type"].startswith("text/event-stream")
            yield Stream(response)

    async def stream(self, session_id: str, query: Any = "Hello", path: str = "") -> list[Json]:
        """The events of a query's stream, read as the UI reads them: frames that begin with `data: ` and have one line."""
        async with self.opened(session_id, query, path) as stream:
            sent = b""
            async for chunk in stream.response.aiter_raw():
                sent += chunk
        frames = sent.decode().split("\n\n")
        assert frames.pop() == ""
        assert all(frame.startswith(("data: ", ": ")) and "\n" not in frame for frame in frames)
        return [json.loads(frame[6:]) for frame in frames if frame.startswith("data: ")]


async def ended(client: Client, session_id: str) -> None:
    """Wait until the session's running turn has ended, by the documented stream."""
    async with client.stream(session_id) as stream:
        await soon(stream.upto("agent_run_end"))
