"""A server's agent as an agent, over the documented protocol: sessions, `query/stream`, `abort`.

It reads the protocol as a client does and says again what the agent there had said. A turn that is left is aborted, and
the abort waited for: it answers once the turn has ended, so an agent there that goes on is noticed here.
"""

import json
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from typing import Any, Literal

import httpx

from app.agents.adapters.invoke_client import (
    CONNECT,
    SILENCE,
    InvokeAgent,
    bearer,
    failure,
    messages,
    refusal,
)
from app.agents.contract import TERMINAL_TYPES, Agent, AgentEvent, Prompt, Scope

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


class NotStopped(Exception):
    """The server did not end a turn that it was told to abort."""


def served_at(url: str, *, token: str | None = None, over: Over = "tarko") -> Callable[[], Agent]:
    """How to make agents that stand for the one that is served there. They share their conversations."""
    if over == "invoke":
        return lambda: InvokeAgent(url, token=token)
    sessions: dict[str, str] = {}
    return lambda: TarkoAgent(url, token, sessions)


class TarkoAgent:
    """The served agent. `sessions` has the server's id of each session that was used."""

    def __init__(self, url: str, token: str | None, sessions: dict[str, str]) -> None:
        self._url = url.rstrip("/")
        self._headers = bearer(token)
        self._sessions = sessions

    async def invoke(self, scope: Scope, prompt: Prompt, /) -> AsyncIterator[AgentEvent]:
        try:
            async with httpx.AsyncClient(
                base_url=f"{self._url}/api/v1/sessions",
                headers=self._headers,
                timeout=httpx.Timeout(CONNECT, read=SILENCE),
                trust_env=False,
            ) as client:
                session_id = await self._session(client, scope["session"])
                async with aclosing(_turn(client, session_id, prompt)) as events:  # type: ignore[type-var]
                    async for event in events:
                        yield event
        except httpx.HTTPStatusError as error:
            yield refusal(error.response.status_code, error.response.content)
        except httpx.HTTPError as error:
            yield failure(f"{type(error).__name__}: {error}", retryable=True)

    async def _session(self, client: httpx.AsyncClient, name: str) -> str:
        if name not in self._sessions:
            response = await client.post("/create", json={"name": name})
            self._sessions[name] = response.raise_for_status().json()["sessionId"]
        return self._sessions[name]


async def _turn(client: httpx.AsyncClient, session_id: str, prompt: Prompt) -> AsyncIterator[AgentEvent]:
    body = {"sessionId": session_id, "query": _content(prompt), "onDisconnect": "abort", "onBusy": "reject"}
    is_running = False
    try:
        async with client.stream("POST", "/query/stream", json=body) as response:
            if response.status_code != httpx.codes.OK:
                yield refusal(response.status_code, await response.aread())
                return
            is_running = True
            async with aclosing(messages(response)) as found:
                async for message in found:
                    event = agent_event(json.loads(message))
                    if event is None:
                        continue
                    is_running = event["type"] not in TERMINAL_TYPES
                    yield event
                    if not is_running:
                        return
        is_running = False
        yield failure("the connection was cut before the turn had ended", retryable=True)
    finally:
        if is_running:
            await _abort(client, session_id)


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
            return failure(data["error"], retryable=data["recoverable"], code=data["code"])
        case "agent_run_end":
            return _completed(data)
        case _:
            return {"type": kind, **data}


def _completed(data: dict[str, Any]) -> AgentEvent | None:
    if data["status"] != "completed":
        return None
    return {"type": "completed", "data": data["data"]} if "data" in data else {"type": "completed"}
