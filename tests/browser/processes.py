"""The server as a user runs it: a process of its own, on a port of its own."""

import asyncio
import os
import re
import signal
import sys
from pathlib import Path
from typing import Any

import httpx

from tests.browser.puppet import ADDRESS, Stage

ROOT = Path(__file__).parents[2]
START = 30.0
STOP = 15.0


class ServerProcess:
    """`tarko-server serve` with the puppet, or another, for an agent. `settings` are its environment."""

    def __init__(
        self,
        stage: Stage,
        agent: str = "tests.browser.puppet:agent",
        python: str = sys.executable,
        **settings: str,
    ) -> None:
        self._command = (python, "-m", "app.cli", "serve", agent, "--port")
        self._environment = {
            **os.environ,
            **settings,
            ADDRESS: str(stage.address),
            "PYTHONUNBUFFERED": "1",
        }
        self._process: asyncio.subprocess.Process | None = None
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def database_url(self) -> str:
        return self._environment["TARKO_DATABASE_URL"]

    @property
    def is_running(self) -> bool:
        return self._process is not None

    async def start(self) -> None:
        """Start it; a second time on the same port."""
        self._process = await asyncio.create_subprocess_exec(
            *self._command, str(self.port), cwd=ROOT, env=self._environment, stdout=asyncio.subprocess.PIPE
        )
        assert self._process.stdout is not None
        async with asyncio.timeout(START):
            said = await self._process.stdout.readline()
        found = re.search(rb"http://127\.0\.0\.1:([0-9]+)", said)
        assert found is not None, f"the server did not start; it said {said!r}"
        self.port = int(found[1])

    async def kill(self) -> None:
        """End it without a word."""
        await self._end(signal.SIGKILL)

    async def stop(self) -> None:
        """Ask it to stop."""
        await self._end(signal.SIGTERM)

    async def _end(self, number: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(number)
        async with asyncio.timeout(STOP):
            await process.communicate()


class Api:
    """The HTTP routes, as tests ask them past the browser."""

    def __init__(self, url: str, token: str | None = None) -> None:
        headers = {} if token is None else {"authorization": f"Bearer {token}"}
        self._client = httpx.AsyncClient(base_url=url, headers=headers, timeout=60)

    async def close(self) -> None:
        await self._client.aclose()

    async def create(self, name: str = "A session") -> str:
        """A new session's id."""
        return str((await self._post("/api/v1/sessions/create", name=name))["sessionId"])

    async def delete(self, session_id: str) -> None:
        await self._post("/api/v1/sessions/delete", sessionId=session_id)

    async def query(self, session_id: str, query: str) -> None:
        """Start a turn, and do not wait for it."""
        async with self._client.stream(
            "POST", "/api/v1/sessions/query/stream", json={"sessionId": session_id, "query": query}
        ) as response:
            response.raise_for_status()

    async def ended(self, session_id: str, turns: int = 1) -> None:
        """Wait until so many turns of the session have ended."""
        stream = self._client.stream(
            "GET", "/api/v1/sessions/events/stream", params={"sessionId": session_id}
        )
        async with stream as response:
            async for line in response.aiter_lines():
                turns -= '"type":"agent_run_end"' in line
                if turns == 0:
                    return

    async def told(self, session_id: str, words: str) -> None:
        """Wait until an event of the session has these words."""
        stream = self._client.stream(
            "GET", "/api/v1/sessions/events/stream", params={"sessionId": session_id}
        )
        async with stream as response:
            async for line in response.aiter_lines():
                if words in line:
                    return

    async def events(self, session_id: str, *, deltas: bool) -> list[dict[str, Any]]:
        """The session's history."""
        parameters = {"sessionId": session_id, "limit": "1000", "deltas": "true" if deltas else "false"}
        response = await self._client.get("/api/v1/sessions/events", params=parameters)
        page = response.raise_for_status().json()
        assert not page["hasMore"]
        events: list[dict[str, Any]] = page["events"]
        return events

    async def _post(self, path: str, **body: Any) -> dict[str, Any]:
        response = await self._client.post(path, json=body)
        answer: dict[str, Any] = response.raise_for_status().json()
        return answer
