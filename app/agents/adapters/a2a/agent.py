"""The agent: each session here has one conversation (context) on the remote agent, and each turn here is a task there.

A question of the remote agent ends the turn here, and the next prompt answers it: the same task goes on. What the next
turn must know stands in the log (see `known`). Should the process die before it is there, the remote conversation is
lost, never mixed up.
"""

import hashlib
import uuid
from collections.abc import AsyncIterator
from contextlib import aclosing

from app.agents.adapters.a2a.guard import PublicOnly
from app.agents.adapters.a2a.known import NOTHING, REMOTE_TASK, Known, remembered
from app.agents.adapters.a2a.remote import Remote
from app.agents.adapters.a2a.turn import Asked, Turn
from app.agents.adapters.comeback import Patience
from app.agents.adapters.remote_failures import BadRemoteEvent, RemoteFailure
from app.agents.adapters.scope import traceparent
from app.agents.contract import AgentEvent, Prompt, Scope
from app.errors import TarkoError, Unavailable
from app.settings import A2ARemote

PATIENCE = Patience()
DEFAULTS = A2ARemote()


class A2AAgent:
    """`url` is the agent's, its endpoint's or its card's. `strangers` sends to hosts that only a card has named."""

    name = "a2a"

    def __init__(
        self,
        url: str,
        *,
        options: A2ARemote = DEFAULTS,
        patience: Patience = PATIENCE,
        strangers: PublicOnly | None = None,
    ) -> None:
        """Raises `AgentLoadError` for an address, a token or a header that can't be one."""
        self._remote = Remote(url, options, strangers=strangers)
        self._options = options
        self._patience = patience
        self._fingerprint = hashlib.sha256(self._remote.address.encode()).hexdigest()[:16]

    async def aclose(self) -> None:
        """Close the connections to the agent."""
        await self._remote.aclose()

    async def invoke(self, scope: Scope, prompt: Prompt, /) -> AsyncIterator[AgentEvent]:
        try:
            asked = Asked(
                self._fingerprint,
                prompt,
                scope.get("turn") or str(uuid.uuid4()),
                await self._known(scope),
                self._headers(scope),
                self._options.idempotent,
                self._options.silence,
                self._options.deadline,
            )
            async with aclosing(Turn(self._remote, asked, self._patience).events()) as events:
                async for event in events:
                    yield event
        except (RemoteFailure, BadRemoteEvent) as error:
            yield error.event()
        except TarkoError as error:
            is_retryable = isinstance(error, Unavailable)
            yield {"type": "failed", "details": str(error), "retryable": is_retryable, "code": error.code}

    async def _known(self, scope: Scope) -> Known:
        transcript = scope.get("transcript")
        known = NOTHING
        if transcript is not None:
            async with aclosing(transcript.own_events(REMOTE_TASK)) as events:
                async for event in events:
                    if event.get("server") == self._fingerprint:
                        known = remembered(event)
        return known

    def _headers(self, scope: Scope) -> dict[str, str]:
        headers = traceparent(scope)
        if (name := self._options.session_header) is not None:
            # Long enough for agents that ask for a length, and not the session's own id.
            headers[name] = hashlib.sha256(scope["session"].encode()).hexdigest()
        return headers
