"""A server's agent as an agent, over the documented protocol: sessions, `query/stream`, `abort`.

It reads the protocol as a client does and says again what the agent there had said. A turn that is left is aborted, and
the abort waited for: it answers once the turn has ended, so an agent there that goes on is noticed here.

Not the adapter that serves a remote agent: that one comes back over lost connections, waits while a session is busy and
takes an abort for done, and the kit is here to see just that.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import aclosing
from typing import Any, Literal

import httpx
from httpx_sse import EventSource, SSEError

from app.agents.adapters.failures import AgentFailure, guarded
from app.agents.adapters.fastagent import FastAgent
from app.agents.contract import TERMINAL_TYPES, Agent, AgentEvent, Prompt, Scope
from app.events.canonical import NotJson, decode

Over = Literal["tarko", "invoke"]

_NOT_THE_AGENTS = frozenset(
    {
        "session_start",
        "user_message",
        "agent_run_start",
        "assistant_message_start",
        "assistant_message",
        "assistant_thinking_message",
        "tool_execution_start",
        "query_queued",
    }
)


_BUSY_STATUS = 429
_SERVER_ERRORS = 500
_DETAILS_LIMIT = 500
_TIMES = httpx.Timeout(90.0, connect=10.0)


class NotStopped(Exception):
    """The server did not end a turn that it was told to abort."""


def served_at(url: str, *, token: str | None = None, over: Over = "tarko") -> Callable[[], Agent]:
    """How to make agents that stand for the one that is served there. They share their conversations."""
    if over == "invoke":
        return lambda: InvokedAgent(url, token)
    sessions: dict[str, str] = {}
    return lambda: TarkoAgent(url, token, sessions)


class InvokedAgent:
    """The served agent over `/invoke`. A turn closes its connections, so that none of them looks like a leak."""

    def __init__(self, url: str, token: str | None) -> None:
        self._url = url
        self._token = token

    async def invoke(self, scope: Scope, prompt: Prompt, /) -> AsyncIterator[AgentEvent]:
        agent = FastAgent(self._url, token=self._token)
        try:
            async with aclosing(agent.invoke(scope, prompt)) as events:
                async for event in events:
                    yield event
        finally:
            await agent.aclose()


class TarkoAgent:
    """The served agent. `sessions` has the server's id of each session that was used."""

    def __init__(self, url: str, token: str | None, sessions: dict[str, str]) -> None:
        self._url = url.rstrip("/")
        self._headers = {"authorization": f"Bearer {token}"} if token else {}
        self._sessions = sessions

    def invoke(self, scope: Scope, prompt: Prompt, /) -> AsyncGenerator[AgentEvent, None]:
        return guarded(self._turn(scope, prompt))

    async def _turn(self, scope: Scope, prompt: Prompt) -> AsyncGenerator[AgentEvent, None]:
        try:
            async with httpx.AsyncClient(
                base_url=f"{self._url}/api/v1/sessions",
                headers=self._headers,
                timeout=_TIMES,
                trust_env=False,
            ) as client:
                session_id = await self._session(client, scope["session"])
                async with aclosing(_turn(client, session_id, prompt)) as events:
                    async for event in events:
                        yield event
        except (SSEError, LookupError, TypeError, ValueError) as error:
            raise AgentFailure(f"{self._url} does not speak the protocol: {error}", "not_tarko") from error

    async def _session(self, client: httpx.AsyncClient, name: str) -> str:
        if name not in self._sessions:
            response = await client.post("/create", json={"name": name})
            if response.is_error:
                raise _refusal(response.status_code, response.content)
            self._sessions[name] = response.json()["sessionId"]
        return self._sessions[name]


async def _turn(
    client: httpx.AsyncClient, session_id: str, prompt: Prompt
) -> AsyncGenerator[AgentEvent, None]:
    body = {"sessionId": session_id, "query": _content(prompt), "onDisconnect": "abort", "onBusy": "reject"}
    is_running = False
    try:
        async with client.stream("POST", "/query/stream", json=body) as response:
            if response.status_code != httpx.codes.OK:
                raise _refusal(response.status_code, await response.aread())
            is_running = True
            async with aclosing(EventSource(response).aiter_sse()) as frames:
                async for frame in frames:
                    event = agent_event(decode(frame.data.encode())) if frame.data else None
                    if event is None:
                        continue
                    is_running = event["type"] not in TERMINAL_TYPES
                    yield event
                    if not is_running:
                        return
        raise AgentFailure("the connection was cut before the turn had ended", "stream_cut", retryable=True)
    except Exception:
        is_running = False  # as far as anybody here can tell
        raise
    finally:
        if is_running:
            await _abort(client, session_id)


def _refusal(status: int, body: bytes) -> AgentFailure:
    """What an HTTP answer says; its code where it tells one."""
    try:
        told = decode(body)
    except NotJson:
        told = None
    said, code = (told.get("error"), told.get("code")) if isinstance(told, Mapping) else (None, None)
    is_retryable = status == _BUSY_STATUS or status >= _SERVER_ERRORS or code == "session_busy"
    details = said if isinstance(said, str) else body.decode(errors="replace")
    code = code if isinstance(code, str) else "refused"
    return AgentFailure(f"{status}: {details[:_DETAILS_LIMIT]}", code, retryable=is_retryable)


async def _abort(client: httpx.AsyncClient, session_id: str) -> None:
    response = await client.post("/abort", json={"sessionId": session_id})
    if response.is_error:
        raise NotStopped(f"the server answered an abort with {response.status_code}")


def _content(prompt: Prompt) -> Any:
    images = prompt.get("images") or []
    if not images:
        return prompt["text"]
    parts = [
        {"type": "image_url", "image_url": {"url": f"data:{image['mimeType']};base64,{image['data']}"}}
        for image in images
    ]
    return [{"type": "text", "text": prompt["text"]}, *parts]


def agent_event(envelope: dict[str, Any]) -> AgentEvent | None:
    """What the agent said, of an event of the protocol; None for what is not the agent's."""
    kind, data = envelope["type"], envelope["data"]
    if kind in _NOT_THE_AGENTS:
        return None
    agents_id = envelope.get("metadata", {}).get("toolCallId")
    match kind:
        case "assistant_message_delta":
            return {"type": "text", "delta": data["delta"]}
        case "assistant_thinking_delta":
            return {"type": "thinking", "delta": data["delta"]}
        case "tool_call":
            return {
                "type": "tool_started",
                "id": agents_id or data["id"],
                "name": data["name"],
                "args": data["arguments"],
            }
        case "tool_result":
            return {
                "type": "tool_ended",
                "id": agents_id or data["toolCallId"],
                "isError": not data["success"],
                "content": data.get("rawContent", data["content"]),
            }
        case "error":
            return {
                "type": "failed",
                "details": data["error"],
                "retryable": data["recoverable"],
                "code": data["code"],
            }
        case "agent_run_end":
            return _completed(data)
        case _:
            return {"type": kind, **data}


def _completed(data: dict[str, Any]) -> AgentEvent | None:
    if data["status"] != "completed":
        return None
    return {"type": "completed", "data": data["data"]} if "data" in data else {"type": "completed"}
