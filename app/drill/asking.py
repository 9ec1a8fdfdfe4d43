"""Asks servers for things and keeps what they answered: a promise that the checker compares with the log."""

import time
from dataclasses import dataclass, field
from typing import Any

import httpx

from app.drill.web import Web

SESSIONS = "/api/v1/sessions"


@dataclass(frozen=True, slots=True)
class Told:
    """One answer. `status` is 0 when none came, and it is unknown what became of the request."""

    what: str
    session_id: str
    status: int
    body: dict[str, Any]
    seconds: float

    @property
    def turn_id(self) -> str | None:
        """The turn it speaks of."""
        found = self.body.get("turnId") or (self.body.get("details") or {}).get("turnId")
        return None if found is None else str(found)

    @property
    def ending(self) -> str | None:
        """How it says that the turn ended."""
        found = self.body.get("status") or (self.body.get("details") or {}).get("status")
        return None if found is None else str(found)


@dataclass(slots=True)
class Asker:
    """Asks, and remembers the answers."""

    web: Web
    told: list[Told] = field(default_factory=list)

    async def create(self, base: str, agent: str | None = None) -> str:
        """A new session. Raises `httpx.HTTPError`."""
        body = {} if agent is None else {"agent": agent}
        answer = await self.web.client.post(f"{base}{SESSIONS}/create", json=body)
        return str(answer.raise_for_status().json()["sessionId"])

    async def query(self, base: str, session_id: str, prompt: str, **options: Any) -> Told:
        return await self._ask("query", base, session_id, query=prompt, **options)

    async def abort(self, base: str, session_id: str, turn_id: str | None = None) -> Told:
        return await self._ask("abort", base, session_id, **({} if turn_id is None else {"turnId": turn_id}))

    async def delete(self, base: str, session_id: str) -> Told:
        return await self._ask("delete", base, session_id)

    async def standing(self, base: str, session_id: str) -> dict[str, Any]:
        """What the server says of a session: its status and its last event. Raises `httpx.HTTPError`."""
        answer = await self.web.client.get(f"{base}{SESSIONS}/details", params={"sessionId": session_id})
        found: dict[str, Any] = answer.raise_for_status().json()["session"]
        return found

    async def _ask(self, what: str, base: str, session_id: str, **fields: Any) -> Told:
        began = time.monotonic()
        try:
            answer = await self.web.client.post(
                f"{base}{SESSIONS}/{what}", json={"sessionId": session_id, **fields}
            )
            status, body = answer.status_code, answer.json()
        except (httpx.HTTPError, ValueError) as error:
            status, body = 0, {"error": f"{type(error).__name__}: {error}"}
        told = Told(what, session_id, status, body, time.monotonic() - began)
        self.told.append(told)
        return told
