"""PydanticAI: its `FunctionModel`, streaming."""

import json
import uuid
from collections.abc import AsyncIterator
from typing import Any

from pydantic import BaseModel
from pydantic_ai import Agent, BinaryContent, ModelHTTPError, ModelRetry, ToolOutput
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    SystemPromptPart,
    TextPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.function import AgentInfo, DeltaThinkingPart, DeltaToolCall, FunctionModel

from tests.adapters.brain import (
    REPORT,
    Call,
    Fail,
    Hang,
    Say,
    Seen,
    Think,
    gates,
    steps,
    wait,
    weather,
)

Delta = str | dict[int, DeltaToolCall] | dict[int, DeltaThinkingPart]


async def act(messages: list[ModelMessage], _: AgentInfo) -> AsyncIterator[Delta]:
    for step in steps(_seen(messages)):
        match step:
            case Say(text):
                yield text
            case Think(text):
                yield {0: DeltaThinkingPart(content=text)}
            case Call(name, arguments):
                call_id = f"call_{uuid.uuid4().hex}"
                yield {9: DeltaToolCall(name, json.dumps(arguments), tool_call_id=call_id)}
            case Fail(status):
                raise ModelHTTPError(status, "brain")
            case Hang():
                await gates["text"].hang()


def _seen(messages: list[ModelMessage]) -> list[Seen]:
    seen = []
    for message in messages:
        for part in message.parts:
            match part:
                case UserPromptPart(content=str(text)):
                    seen.append(Seen("user", text))
                case UserPromptPart(content=content):
                    texts = [each for each in content if isinstance(each, str)]
                    images = [each.media_type for each in content if isinstance(each, BinaryContent)]
                    seen.append(Seen("user", "".join(texts), tuple(images)))
                case ToolReturnPart(content=text):
                    seen.append(Seen("tool", str(text)))
                case TextPart(content=text):
                    seen.append(Seen("assistant", text))
                case SystemPromptPart(content=text):
                    assert isinstance(message, ModelRequest)
                    seen.append(Seen("system", text))
                case _ if isinstance(message, ModelRequest):
                    seen.append(Seen("tool", str(part.content)))  # type: ignore[union-attr]
                case _:
                    pass
    return seen


async def broken() -> str:
    """A tool that doesn't work."""
    raise ModelRetry("out of order")


agent = Agent(FunctionModel(stream_function=act), tools=[weather, wait, broken], system_prompt="Be brief.")


class Report(BaseModel):
    city: str
    celsius: int


async def report(_: list[ModelMessage], info: AgentInfo) -> AsyncIterator[Delta]:
    yield {0: DeltaToolCall(info.output_tools[0].name, json.dumps(REPORT), tool_call_id="call_1")}


structured = Agent(FunctionModel(stream_function=report), output_type=ToolOutput(Report))


async def final_text() -> str:
    """What PydanticAI itself calls the answer to `hello`."""
    async with agent.run_stream("hello") as result:
        return str(await result.get_output())


def make() -> Any:
    return agent
