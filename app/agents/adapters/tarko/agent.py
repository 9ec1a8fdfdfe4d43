"""The agent: each session here has one session on the remote server, and each turn here is one there.

Which one it is stands in the log, as an event of the agent's own: any replica finds it, no client can forge it, and it
names the server by a fingerprint only. Should the process die between the two, the remote conversation is lost, never
mixed up. A remote session that is gone fails the turn: its memory can't be made again.
"""

import hashlib
from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Literal

from app.agents.adapters.tarko.remote import (
    ConnectionLost,
    NotTarko,
    Refused,
    Remote,
    RemoteFailure,
)
from app.agents.adapters.tarko.told import REMOTE_SESSION, BadRemoteEvent
from app.agents.adapters.tarko.turn import Asked, Comeback, FlatTurn, NestedTurn, Patience
from app.agents.contract import AgentEvent, Prompt, Scope
from app.errors import TarkoError, Unavailable

Dialect = Literal["documented", "runtime"]
PATIENCE = Patience()


@dataclass(frozen=True, slots=True)
class _Session:
    id: str
    has_cursors: bool = False
    is_new: bool = False


class TarkoAgent:
    """`url` is what the server's `/api/v1` is under; `silence` (seconds) without a byte is a lost connection."""

    name = "tarko"

    def __init__(
        self,
        url: str,
        *,
        dialect: Dialect = "documented",
        token: str | None = None,
        patience: Patience = PATIENCE,
        silence: float = 60.0,
    ) -> None:
        """Raises `AgentLoadError` for an address or a token that can't be one."""
        self._remote = Remote(url, token, silence=silence)
        self._dialect = dialect
        self._patience = patience
        self._fingerprint = hashlib.sha256(f"{dialect} {self._remote.url}".encode()).hexdigest()[:16]

    async def aclose(self) -> None:
        """Close the connections to the server."""
        await self._remote.aclose()

    async def invoke(self, scope: Scope, prompt: Prompt, /) -> AsyncIterator[AgentEvent]:
        try:
            session = await self._remembered(scope)
            if session is None:
                session = await self._created(scope)
                yield {
                    "type": REMOTE_SESSION,
                    "server": self._fingerprint,
                    "sessionId": session.id,
                    "hasCursors": session.has_cursors,
                }
            async with aclosing(self._turn(session, scope, prompt).events()) as events:
                async for event in events:
                    yield event
        except RemoteFailure as error:
            yield error.event()
        except BadRemoteEvent as error:
            details = f"The remote server sent what is no event: {error}."
            yield {"type": "failed", "details": details, "retryable": False, "code": "bad_remote_event"}
        except TarkoError as error:
            is_retryable = isinstance(error, Unavailable)
            yield {"type": "failed", "details": str(error), "retryable": is_retryable, "code": error.code}

    def _turn(self, session: _Session, scope: Scope, prompt: Prompt) -> NestedTurn | FlatTurn:
        asked = Asked(session.id, _content(prompt), _headers(scope))
        if self._dialect == "runtime":
            return FlatTurn(self._remote, asked, self._patience, is_first=session.is_new)
        return NestedTurn(self._remote, asked, self._patience, has_cursors=session.has_cursors)

    async def _remembered(self, scope: Scope) -> _Session | None:
        transcript = scope.get("transcript")
        if transcript is None:
            return None
        async with aclosing(transcript.own_events(REMOTE_SESSION)) as known:
            async for event in known:
                if event.get("server") == self._fingerprint:
                    return _Session(event["sessionId"], has_cursors=event["hasCursors"])
        return None

    async def _created(self, scope: Scope) -> _Session:
        comeback = Comeback(self._patience.losses)
        while True:
            try:
                return await self._create(scope["session"])
            except (ConnectionLost, Refused) as loss:
                # A session that was made all the same is empty and does no harm.
                if isinstance(loss, Refused) and not loss.is_temporary:
                    raise
                await comeback.wait(loss)

    async def _create(self, name: str) -> _Session:
        is_flat = self._dialect == "runtime"
        try:
            created = await self._remote.post("sessions/create", {} if is_flat else {"name": name})
        except Refused as refused:
            if refused.status == 404:
                raise NotTarko(f"{self._remote.url} has no sessions: is the address right?") from refused
            raise
        session_id = created.get("sessionId")
        if not isinstance(session_id, str):
            raise NotTarko(f"{self._remote.url} made a session without an id.")
        return _Session(
            session_id, has_cursors=not is_flat and await self._has_cursors(session_id), is_new=True
        )

    async def _has_cursors(self, session_id: str) -> bool:
        """Whether the server tells where a session's log stands, which the protocol page does not ask for."""
        try:
            details = await self._remote.get("sessions/details", sessionId=session_id)
        except (Refused, NotTarko):
            return False
        session: Any = details.get("session")
        return isinstance(session, dict) and isinstance(session.get("lastEventId"), str)


def _content(prompt: Prompt) -> str | list[dict[str, Any]]:
    images = prompt.get("images")
    if not images:
        return prompt["text"]
    parts: list[dict[str, Any]] = [{"type": "text", "text": prompt["text"]}] if prompt["text"] else []
    for image in images:
        url = f"data:{image['mimeType']};base64,{image['data']}"
        parts.append({"type": "image_url", "image_url": {"url": url}})
    return parts


def _headers(scope: Scope) -> dict[str, str]:
    """The turn's id makes a repeated request the same turn, where the server knows idempotency keys."""
    headers: dict[str, str] = {}
    if (turn := scope.get("turn")) is not None:
        headers["idempotency-key"] = turn
    if (trace := scope.get("trace")) is not None:
        headers["traceparent"] = (
            f"00-{trace}-{hashlib.sha256(turn.encode() if turn else b'').hexdigest()[:16]}-01"
        )
    return headers
