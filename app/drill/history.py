"""A session's whole log as the bytes that were sent, deltas included."""

import json
from collections.abc import Mapping
from typing import Any

from app.drill.web import Web

EVENTS = "/api/v1/sessions/events"
LIMIT = 1000


async def read_page(
    web: Web, base: str, session_id: str, after: str
) -> tuple[list[bytes], Mapping[str, Any]]:
    """The events after a cursor, and the page around them. Raises `httpx.HTTPError`."""
    params: dict[str, str | int] = {"sessionId": session_id, "after": after, "deltas": "true", "limit": LIMIT}
    answer = (await web.client.get(base + EVENTS, params=params)).raise_for_status()
    page: dict[str, Any] = json.loads(answer.content)
    return split(answer.content), page


async def whole_log(web: Web, base: str, session_id: str) -> list[bytes]:
    """Every event of the session. Raises `httpx.HTTPError`."""
    events: list[bytes] = []
    after = "0"
    while True:
        found, page = await read_page(web, base, session_id, after)
        events += found
        if not page["hasMore"]:
            return events
        after = page["nextAfter"]


def split(page: bytes) -> list[bytes]:
    """The envelopes of a page: every one begins with its id, and no string can hold an unescaped quote."""
    start = b'{"id":"evt_'
    inner = page[page.index(b"[") + 1 : page.rindex(b"]")]
    return [start + part.rstrip(b",") for part in inner.split(start)[1:]]
