"""An agent of the OpenAI Agents SDK: `serve my_agent:agent`.

The conversation comes from the session's log as the run's input list, so no `Session` is needed and any replica runs the
next turn. Text and reasoning are told as the model streams them, whole where it doesn't. An agent with an
`output_type` spells its result: that is the structured result, not text. The SDK turns a tool's exception into
a text for the model, so its tools never end with `isError`.

When a turn is stopped the run is cancelled, and its task is waited for: the SDK leaves it to itself. The tasks of tools
are cancelled with it and can't be waited for, since the SDK shows them to nobody.
"""

import asyncio
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from typing import Any

from agents import Agent, ItemHelpers, RunConfig, Runner, RunResultStreaming
from agents.exceptions import (
    InputGuardrailTripwireTriggered,
    MaxTurnsExceeded,
    OutputGuardrailTripwireTriggered,
)
from pydantic_core import from_json, to_json

from app.agents.adapters.failures import AgentFailure, guarded
from app.agents.adapters.python_tools import json_of
from app.agents.contract import AgentEvent, ImageRef, Json, Message, Prompt, Scope

_THINKING = frozenset({"response.reasoning_text.delta", "response.reasoning_summary_text.delta"})
_TEXT = frozenset({"response.output_text.delta", "response.refusal.delta"})
_PATIENCE = 5.0  # seconds for the tasks of a cancelled run, which are cancelled too


class OpenAIAgentsAgent:
    """`context` is the run context of every turn, `run_config` the SDK's own settings."""

    def __init__(
        self, agent: Agent[Any], *, context: Any = None, run_config: RunConfig | None = None
    ) -> None:
        self._agent = agent
        self._context = context
        self._run_config = run_config
        self.name = agent.name

    def invoke(self, scope: Scope, prompt: Prompt, /) -> AsyncGenerator[AgentEvent, None]:
        return guarded(self._turn(scope, prompt))

    async def _turn(self, scope: Scope, prompt: Prompt) -> AsyncGenerator[AgentEvent, None]:
        transcript = scope.get("transcript")
        earlier = await transcript.messages() if transcript is not None else []
        items = [item for message in earlier for item in _items(message)]
        items.append({"role": "user", "content": _content(prompt["text"], prompt.get("images"))})
        result = Runner.run_streamed(self._agent, items, context=self._context, run_config=self._run_config)  # type: ignore[arg-type]
        told = _Told(self._agent)
        try:
            async with aclosing(result.stream_events()) as events:  # type: ignore[type-var]
                try:
                    async for event in events:
                        for each in told.take(event):
                            yield each
                finally:
                    # Before the stream is closed: that would raise the cancel of the run.
                    await _stopped(result)
        except MaxTurnsExceeded as error:
            raise AgentFailure(str(error), "too_many_rounds") from error
        except (InputGuardrailTripwireTriggered, OutputGuardrailTripwireTriggered) as error:
            raise AgentFailure(str(error), "content_filtered") from error
        output = result.final_output
        is_text = output is None or isinstance(output, str)
        yield {"type": "completed"} if is_text else {"type": "completed", "data": json_of(output)}


async def _stopped(result: RunResultStreaming) -> None:
    task = result.run_loop_task
    if task is not None and not task.done():
        result.cancel()
        await asyncio.wait({task}, timeout=_PATIENCE)


class _Told:
    """What was told of the item that the model is at."""

    def __init__(self, agent: Agent[Any]) -> None:
        self._active = agent
        self._has_text = False

    def take(self, event: Any) -> Iterator[AgentEvent]:
        match event.type:
            case "raw_response_event" if event.data.type in _TEXT and self._speaks:
                self._has_text = True
                yield {"type": "text", "delta": event.data.delta}
            case "raw_response_event" if event.data.type in _THINKING:
                yield {"type": "thinking", "delta": event.data.delta}
            case "agent_updated_stream_event":
                self._active = event.new_agent
            case "run_item_stream_event":
                yield from self._item(event.item)
            case _:
                pass

    @property
    def _speaks(self) -> bool:
        return self._active.output_type in (None, str)

    def _item(self, item: Any) -> Iterator[AgentEvent]:
        match item.type:
            case "message_output_item":
                if self._speaks and not self._has_text and (text := ItemHelpers.text_message_output(item)):
                    yield {"type": "text", "delta": text}
                self._has_text = False
            case "tool_call_item":
                call_id = _field(item.raw_item, "call_id") or _field(item.raw_item, "id") or ""
                name = _field(item.raw_item, "name") or _field(item.raw_item, "type") or "tool"
                args = _parsed(_field(item.raw_item, "arguments"))
                yield {"type": "tool_started", "id": call_id, "name": name, "args": args}
            case "tool_call_output_item":
                call_id = _field(item.raw_item, "call_id") or ""
                yield {
                    "type": "tool_ended",
                    "id": call_id,
                    "isError": False,
                    "content": json_of(item.output),
                }
            case _:
                pass


def _field(raw: Any, name: str) -> Any:
    """A raw item is an object in one place and a dict in another."""
    return raw.get(name) if isinstance(raw, dict) else getattr(raw, name, None)


def _parsed(arguments: Any) -> Json:
    """Tools that the provider runs itself have none."""
    if not isinstance(arguments, str):
        return {}
    try:
        return from_json(arguments or "{}", allow_inf_nan=False)
    except ValueError:
        return arguments


def _items(message: Message) -> Iterator[dict[str, Any]]:
    if message["role"] == "tool":
        call_id = message.get("toolCallId", "")
        yield {"type": "function_call_output", "call_id": call_id, "output": message["content"]}
        return
    if message["content"] or message.get("images"):
        content = _content(message["content"], message.get("images"))
        yield {"role": message["role"], "content": content}
    for call in message.get("toolCalls", []):
        arguments = to_json(call.get("arguments", {})).decode()
        yield {"type": "function_call", "call_id": call["id"], "name": call["name"], "arguments": arguments}


def _content(text: str, images: list[ImageRef] | None) -> str | list[dict[str, Any]]:
    if not images:
        return text
    parts: list[dict[str, Any]] = [{"type": "input_text", "text": text}] if text else []
    for image in images:
        url = f"data:{image['mimeType']};base64,{image['data']}"
        parts.append({"type": "input_image", "image_url": url, "detail": "auto"})
    return parts
