"""A reader of the drill: follows a session as a browser would, and notes every event it was shown."""

import asyncio
import hashlib
import json
from dataclasses import dataclass, field

import httpx

GIVE_UP = 60.0


@dataclass(slots=True)
class Record:
    """What one reader saw of a session: each event's id and the hash of its bytes, in the order of arrival."""

    session_id: str
    seen: list[tuple[str, str]] = field(default_factory=list)
    cursor: str | None = None
    connections: int = 0


async def follow(base: str, record: Record) -> None:
    """Read until the session's turn has ended; come back after every cut with the last id."""
    async with asyncio.timeout(GIVE_UP), httpx.AsyncClient(base_url=base, timeout=None) as client:  # noqa: S113 - bounded above
        while True:
            try:
                if await _read(client, record):
                    return
            except httpx.HTTPError:
                await asyncio.sleep(0.02)


async def _read(client: httpx.AsyncClient, record: Record) -> bool:
    headers = {} if record.cursor is None else {"last-event-id": record.cursor}
    url = f"/api/v1/sessions/events/stream?sessionId={record.session_id}"
    async with client.stream("GET", url, headers=headers) as answer:
        answer.raise_for_status()
        record.connections += 1
        event_id = ""
        async for line in answer.aiter_lines():
            if line.startswith("id: "):
                event_id = line[4:]
            elif line.startswith("data: "):
                data = line[6:]
                record.seen.append((event_id, hashlib.sha256(data.encode()).hexdigest()))
                record.cursor = event_id
                if json.loads(data)["type"] == "agent_run_end":
                    return True
            elif not line and event_id:
                record.cursor = event_id
    return False
