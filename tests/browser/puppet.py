"""An agent on strings: the test, in another process, says each of its events, so no test has to guess a moment.

The agent's half runs in the server. For each turn it connects to the test's `Stage`, tells the prompt, and yields every
event that comes back, one JSON object a line.
"""

import asyncio
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

ADDRESS = "PUPPET_STAGE"
PATIENCE = 60.0
MAX_LINE = 2**26


async def agent(_: Any, prompt: dict[str, Any]) -> AsyncIterator[dict[str, Any]]:
    """The half that the server hosts."""
    reader, writer = await asyncio.open_unix_connection(os.environ[ADDRESS], limit=MAX_LINE)
    try:
        writer.write(json.dumps(prompt["text"]).encode() + b"\n")
        async for line in reader:
            event = json.loads(line)
            yield event
            if event["type"] in ("completed", "failed"):
                return
    finally:
        writer.close()


class Turn:
    """The test's half of one turn."""

    def __init__(self, prompt: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.prompt = prompt
        self._reader = reader
        self._writer = writer

    async def say(self, event_type: str, **event: Any) -> None:
        """Have the agent yield this event."""
        self._writer.write(json.dumps({"type": event_type, **event}).encode() + b"\n")
        await self._writer.drain()

    async def text(self, *deltas: str) -> None:
        """Have it say these pieces of its answer."""
        for delta in deltas:
            await self.say("text", delta=delta)

    async def complete(self, *deltas: str) -> None:
        """Have it say these and be done."""
        await self.text(*deltas)
        await self.say("completed")
        await self.stopped()

    async def fail(self, details: str, *, code: str, retryable: bool = False) -> None:
        """Have it fail."""
        await self.say("failed", details=details, code=code, retryable=retryable)
        await self.stopped()

    async def stopped(self) -> None:
        """Wait until the agent has stopped, or its process died."""
        async with asyncio.timeout(PATIENCE):
            with suppress(ConnectionError):
                await self._reader.read()


class Stage:
    """Where agents come to get their turns played."""

    def __init__(self, address: Path) -> None:
        self.address = address
        self._turns: asyncio.Queue[Turn] = asyncio.Queue()
        self._open: list[asyncio.StreamWriter] = []

    async def turn(self) -> Turn:
        """The next turn that has begun."""
        async with asyncio.timeout(PATIENCE):
            return await self._turns.get()

    async def clear(self) -> None:
        """Let go of every turn; the agents of those that still run have nothing more to say."""
        while self._open:
            writer = self._open.pop()
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()
        assert self._turns.empty(), "a turn began that the test did not ask for"

    async def _enter(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.append(writer)
        self._turns.put_nowait(Turn(json.loads(await reader.readline()), reader, writer))


@asynccontextmanager
async def open_stage(directory: Path) -> AsyncIterator[Stage]:
    """A stage for as long as the block runs."""
    stage = Stage(directory / "stage")
    listener = await asyncio.start_unix_server(stage._enter, stage.address)
    try:
        yield stage
    finally:
        await stage.clear()
        listener.close()
        await listener.wait_closed()
