"""A Google ADK agent or app: `serve my_agent:root_agent`.

Each turn runs in an ADK session of its own, in memory, that begins with the conversation from the session's log; so any
replica runs the next turn, and a call that an abort left without a result is none. State of an ADK session that is
no message lives for one turn. Where a model streams, its partial events are the text and the whole that follows
them is not told again. An agent with an `output_schema` spells its result: that is the structured result, not text.
"""

import json
from base64 import b64decode
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from typing import Any

from google.adk.agents import BaseAgent
from google.adk.agents.run_config import RunConfig, StreamingMode
from google.adk.apps import App
from google.adk.events import Event
from google.adk.runners import Runner
from google.adk.sessions import InMemorySessionService
from google.genai import types

from app.agents.adapters.failures import AgentFailure, guarded, of_status
from app.agents.adapters.python_tools import json_of
from app.agents.contract import AgentEvent, ImageRef, Json, Message, Prompt, Scope

_APP = "tarko"
_NO_RESULT = object()


class GoogleADKAgent:
    """`agent` is an agent or an app; an app's plugins and services are its own."""

    def __init__(self, agent: BaseAgent | App) -> None:
        self._app = agent if isinstance(agent, App) else None
        root = agent.root_agent if isinstance(agent, App) else agent
        self._agent: Any = root
        self.name: str = root.name
        self.description: str = root.description

    def invoke(self, scope: Scope, prompt: Prompt, /) -> AsyncGenerator[AgentEvent, None]:
        return guarded(self._turn(scope, prompt))

    async def _turn(self, scope: Scope, prompt: Prompt) -> AsyncGenerator[AgentEvent, None]:
        user = scope.get("principal") or "user"
        sessions = InMemorySessionService()
        app: dict[str, Any] = {"app": self._app} if self._app else {"agent": self._agent, "app_name": _APP}
        runner = Runner(session_service=sessions, **app)
        session = await sessions.create_session(app_name=runner.app_name, user_id=user)
        transcript = scope.get("transcript")
        for event in _history(await transcript.messages() if transcript else [], self.name):
            await sessions.append_event(session, event)
        told = _Told(self._agent)
        running = runner.run_async(
            user_id=user,
            session_id=session.id,
            new_message=_content("user", prompt["text"], prompt.get("images")),
            run_config=RunConfig(streaming_mode=StreamingMode.SSE),
        )
        async with aclosing(running) as events:
            async for event in events:
                for each in told.take(event):
                    yield each
        yield told.completed()


class _Told:
    """What the run has told: who streams what now, since agents may run side by side, and the result."""

    def __init__(self, root: Any) -> None:
        self._root = root
        self._streaming: set[tuple[str, str]] = set()
        self._result: Json = _NO_RESULT
        self._error: AgentFailure | None = None

    def take(self, event: Event) -> Iterator[AgentEvent]:
        # An exception is told so too, before it is raised; a plugin may have mended the rest.
        self._error = _refused(event) if event.error_code else None
        has_schema = self._has_schema(event.author)
        for part in event.content.parts or [] if event.content else []:
            if part.text and has_schema and not part.thought:
                if not event.partial:
                    self._result = _parsed(part.text)
            elif part.text:
                kind = "thinking" if part.thought else "text"
                if event.partial:
                    self._streaming.add((event.author, kind))
                if event.partial or (event.author, kind) not in self._streaming:
                    yield {"type": kind, "delta": part.text}
            elif not event.partial:
                yield from _tool(part)
        if not event.partial:
            self._streaming -= {(event.author, "text"), (event.author, "thinking")}

    def _has_schema(self, author: str) -> bool:
        agent = self._root.find_agent(author)
        return getattr(agent, "output_schema", None) is not None

    def completed(self) -> AgentEvent:
        """The ending. Raises AgentFailure when the run ended with an error."""
        if self._error is not None:
            raise self._error
        if self._result is _NO_RESULT:
            return {"type": "completed"}
        return {"type": "completed", "data": self._result}


def _tool(part: types.Part) -> Iterator[AgentEvent]:
    if (call := part.function_call) is not None:
        args = json_of(call.args or {})
        yield {"type": "tool_started", "id": call.id or "", "name": call.name or "tool", "args": args}
    if (answer := part.function_response) is not None:
        content = answer.response or {}
        # A function that returns no dict is wrapped in one.
        plain = content["result"] if set(content) == {"result"} else content
        yield {
            "type": "tool_ended",
            "id": answer.id or "",
            "isError": set(content) == {"error"},
            "content": json_of(plain),
        }


def _refused(event: Event) -> AgentFailure:
    code = str(event.error_code)
    meant, is_retryable = (
        of_status(int(code)) if code.isdigit() and int(code) >= 400 else ("agent_failed", False)
    )
    return AgentFailure(f"{code}: {event.error_message or 'no details'}", meant, retryable=is_retryable)


def _parsed(text: str) -> Json:
    try:
        return json_of(json.loads(text))
    except ValueError:
        return text


def _history(earlier: list[Message], agent: str) -> Iterator[Event]:
    names = {call["id"]: call["name"] for message in earlier for call in message.get("toolCalls", [])}
    for message in earlier:
        match message["role"]:
            case "user":
                content = _content("user", message["content"], message.get("images"))
                yield Event(author="user", content=content)
            case "tool":
                call_id = message.get("toolCallId", "")
                answer = types.FunctionResponse(
                    id=call_id, name=names.get(call_id, "tool"), response={"result": message["content"]}
                )
                part = types.Part(function_response=answer)
                yield Event(author=agent, content=types.Content(role="user", parts=[part]))
            case _:
                parts = [types.Part(text=message["content"])] if message["content"] else []
                parts += [
                    types.Part(
                        function_call=types.FunctionCall(
                            id=call["id"], name=call["name"], args=call.get("arguments", {})
                        )
                    )
                    for call in message.get("toolCalls", [])
                ]
                yield Event(author=agent, content=types.Content(role="model", parts=parts))


def _content(role: str, text: str, images: list[ImageRef] | None) -> types.Content:
    parts = [types.Part(text=text)] if text or not images else []
    parts += [
        types.Part.from_bytes(data=b64decode(each["data"]), mime_type=each["mimeType"])
        for each in images or []
    ]
    return types.Content(role=role, parts=parts)
