"""A PydanticAI agent: `serve my_agent:agent`.

The conversation comes from the session's log, so any replica runs the next turn; an agent's `system_prompt`, which the
log doesn't have, is put in front of it again. Text is what the model says, its first piece included. An output that is
no string is the structured result; output tools are not told as tools, and text that only spells the output
(`NativeOutput`, `PromptedOutput`), or that a `TextOutput` function gets, is not told as text.
"""

from base64 import b64decode
from collections.abc import AsyncGenerator, Iterator, Sequence
from typing import Any

from pydantic_ai import AgentRunResultEvent, BinaryContent, NativeOutput, PromptedOutput, TextOutput
from pydantic_ai.agent import AbstractAgent
from pydantic_ai.capabilities import ReinjectSystemPrompt
from pydantic_ai.messages import (
    FunctionToolCallEvent,
    FunctionToolResultEvent,
    ModelMessage,
    ModelRequest,
    ModelRequestPart,
    ModelResponse,
    ModelResponsePart,
    PartDeltaEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
    ThinkingPart,
    ThinkingPartDelta,
    ToolCallPart,
    ToolReturnPart,
    UserContent,
    UserPromptPart,
)

from app.agents.adapters.failures import guarded
from app.agents.adapters.python_tools import json_of
from app.agents.contract import AgentEvent, ImageRef, Message, Prompt, Scope


class PydanticAIAgent:
    """`deps` are the dependencies of every run, for an agent that has some."""

    def __init__(self, agent: AbstractAgent[Any, Any], *, deps: Any = None) -> None:
        self._agent = agent
        self._deps = deps
        kinds = agent.output_type if isinstance(agent.output_type, Sequence) else [agent.output_type]
        self._spells_its_output = any(
            isinstance(each, NativeOutput | PromptedOutput | TextOutput) for each in kinds
        )
        if agent.name is not None:
            self.name = agent.name

    def invoke(self, scope: Scope, prompt: Prompt, /) -> AsyncGenerator[AgentEvent, None]:
        return guarded(self._turn(scope, prompt))

    async def _turn(self, scope: Scope, prompt: Prompt) -> AsyncGenerator[AgentEvent, None]:
        transcript = scope.get("transcript")
        earlier = await transcript.messages() if transcript is not None else []
        # Leaving the context cancels the run and waits for its tasks.
        async with self._agent.run_stream_events(
            _content(prompt["text"], prompt.get("images")),
            message_history=_history(earlier),
            deps=self._deps,
            capabilities=[ReinjectSystemPrompt()],
        ) as events:
            has_text = False
            async for event in events:
                if isinstance(event, AgentRunResultEvent):
                    for told in _ending(event.result.output, has_text=has_text):
                        yield told
                for told in self._told(event):
                    has_text = has_text or told["type"] == "text"
                    yield told

    def _told(self, event: Any) -> Iterator[AgentEvent]:
        match event:
            case (
                PartStartEvent(part=TextPart(content=text))
                | PartDeltaEvent(delta=TextPartDelta(content_delta=text))
            ) if text and not self._spells_its_output:
                yield {"type": "text", "delta": text}
            case (
                PartStartEvent(part=ThinkingPart(content=text))
                | PartDeltaEvent(delta=ThinkingPartDelta(content_delta=text))
            ) if text:
                yield {"type": "thinking", "delta": text}
            case FunctionToolCallEvent(part=part):
                args = json_of(part.args_as_dict())
                yield {"type": "tool_started", "id": part.tool_call_id, "name": part.tool_name, "args": args}
            case FunctionToolResultEvent(part=part):
                is_return = isinstance(part, ToolReturnPart)
                yield {
                    "type": "tool_ended",
                    "id": part.tool_call_id,
                    "isError": not is_return or part.outcome != "success",
                    "content": json_of(part.content),
                }
            case _:
                pass


def _ending(output: Any, *, has_text: bool) -> Iterator[AgentEvent]:
    """An output function may make a string of what was never streamed."""
    if not isinstance(output, str):
        yield {"type": "completed", "data": json_of(output)}
        return
    if output and not has_text:
        yield {"type": "text", "delta": output}
    yield {"type": "completed"}


def _history(earlier: list[Message]) -> list[ModelMessage]:
    """Requests and responses take turns: neighbours of one side are one message with several parts."""
    history: list[ModelMessage] = []
    names = {call["id"]: call["name"] for message in earlier for call in message.get("toolCalls", [])}
    for message in earlier:
        if message["role"] == "assistant":
            parts: list[ModelResponsePart] = [TextPart(message["content"])] if message["content"] else []
            parts += [
                ToolCallPart(call["name"], call.get("arguments", {}), call["id"])
                for call in message.get("toolCalls", [])
            ]
            _extend(history, ModelResponse(parts))
        else:
            _extend(history, ModelRequest([_request_part(message, names)]))
    return history


def _request_part(message: Message, names: dict[str, str]) -> ModelRequestPart:
    if message["role"] == "user":
        return UserPromptPart(_content(message["content"], message.get("images")))
    call_id = message.get("toolCallId", "")
    return ToolReturnPart(names.get(call_id, "unknown"), message["content"], call_id)


def _extend(history: list[ModelMessage], message: ModelRequest | ModelResponse) -> None:
    match history, message:
        case [*_, ModelRequest(parts=parts) as last], ModelRequest(parts=more):
            last.parts = [*parts, *more]
        case [*_, ModelResponse(parts=parts) as last], ModelResponse(parts=more):
            last.parts = [*parts, *more]
        case _:
            history.append(message)


def _content(text: str, images: list[ImageRef] | None) -> str | Sequence[UserContent]:
    if not images:
        return text
    pictures = [BinaryContent(b64decode(each["data"]), media_type=each["mimeType"]) for each in images]
    return [text, *pictures] if text else pictures
