"""Between a transcript's messages and LangChain's, which LangGraph speaks too."""

from collections.abc import Iterator
from typing import Any

from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    AnyMessage,
    BaseMessage,
    HumanMessage,
    ToolCall,
    ToolMessage,
)

from app.agents.contract import AgentEvent, ImageRef, Message, Prompt, Scope


async def conversation(scope: Scope, prompt: Prompt) -> list[AnyMessage]:
    """All earlier messages and the prompt."""
    transcript = scope.get("transcript")
    earlier = await transcript.messages() if transcript is not None else []
    return [*map(_message, earlier), _human(prompt["text"], prompt.get("images"))]


def said(message: BaseMessage) -> Iterator[AgentEvent]:
    """The `thinking` and `text` of a model's message, or of a piece of one."""
    if not isinstance(message, AIMessage | AIMessageChunk):
        return
    for block in message.content_blocks:
        if block["type"] == "text" and (text := block.get("text")):
            yield {"type": "text", "delta": text}
        elif block["type"] == "reasoning" and (reasoning := block.get("reasoning")):
            yield {"type": "thinking", "delta": reasoning}


def _message(message: Message) -> AnyMessage:
    match message["role"]:
        case "user":
            return _human(message["content"], message.get("images"))
        case "tool":
            return ToolMessage(message["content"], tool_call_id=message.get("toolCallId", ""))
        case _:
            calls = [
                ToolCall(name=call["name"], args=call.get("arguments", {}), id=call["id"])
                for call in message.get("toolCalls", [])
            ]
            return AIMessage(message["content"], tool_calls=calls)


def _human(text: str, images: list[ImageRef] | None) -> HumanMessage:
    if not images:
        return HumanMessage(text)
    parts: list[str | dict[str, Any]] = [{"type": "text", "text": text}] if text else []
    parts += [{"type": "image", "base64": each["data"], "mime_type": each["mimeType"]} for each in images]
    return HumanMessage(parts)
