"""Plain functions of text: an asynchronous generator that acts the brain's steps."""

import json
from collections.abc import AsyncIterator
from typing import Any

from app.agents.contract import AgentEvent, ImageRef, Message
from tests.adapters.brain import (
    REPORT,
    Call,
    Fail,
    Hang,
    ProviderError,
    Say,
    Seen,
    Think,
    broken,
    gates,
    steps,
    wait,
    weather,
)

TOOLS = {each.__name__: each for each in (weather, wait, broken)}


async def answer(
    text: str, *, messages: list[Message], images: list[ImageRef]
) -> AsyncIterator[str | AgentEvent]:
    seen = [Seen(each["role"], each["content"]) for each in messages if each["content"]]
    seen.append(Seen("user", text, tuple(each["mimeType"] for each in images)))
    while seen[-1].role != "assistant":
        for step in steps(seen):
            match step:
                case Say(delta):
                    yield delta
                    seen.append(Seen("assistant", delta))
                case Think(delta):
                    yield {"type": "thinking", "delta": delta}
                case Call(name, arguments):
                    call_id = f"call_{len(seen)}"
                    yield {"type": "tool_started", "id": call_id, "name": name, "args": arguments}
                    try:
                        content, is_error = await TOOLS[name](**arguments), False
                    except ValueError as error:
                        content, is_error = str(error), True
                    yield {"type": "tool_ended", "id": call_id, "isError": is_error, "content": content}
                    seen.append(Seen("tool", content))
                case Fail(status):
                    raise ProviderError(status)
                case Hang():
                    await gates["text"].hang()


async def structured(_: str) -> dict[str, Any]:
    return dict(json.loads(json.dumps(REPORT)))


async def final_text() -> str:
    return "".join([each async for each in answer("hello", messages=[], images=[]) if isinstance(each, str)])


def make() -> Any:
    return answer
