"""OpenAI Agents SDK: a model at its `Model` boundary, with the items of its own `agents.testing`."""

import json
import uuid
from collections.abc import AsyncIterator
from typing import Any

from agents import Agent, Model, ModelResponse, Runner, function_tool
from agents.testing import assistant_message, function_call
from openai.types.responses import (
    Response,
    ResponseCompletedEvent,
    ResponseReasoningTextDeltaEvent,
    ResponseTextDeltaEvent,
)
from pydantic import BaseModel

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

PLACE: dict[str, Any] = {"content_index": 0, "item_id": "item_1", "output_index": 0, "sequence_number": 0}


class BrainModel(Model):
    async def get_response(self, *_: Any, **__: Any) -> ModelResponse:
        raise NotImplementedError

    async def stream_response(self, _: str | None, input: Any, *__: Any, **___: Any) -> AsyncIterator[Any]:
        text, output = "", []
        for step in steps(_seen(input)):
            match step:
                case Say(delta):
                    text += delta
                    yield streamed(delta)
                case Think(delta):
                    yield ResponseReasoningTextDeltaEvent(
                        **PLACE, delta=delta, type="response.reasoning_text.delta"
                    )
                case Call(name, arguments):
                    output.append(
                        function_call(name, json.dumps(arguments), call_id=f"call_{uuid.uuid4().hex}")
                    )
                case Fail(status):
                    raise ProviderError(status)
                case Hang():
                    await gates["text"].hang()
        yield _completed([*([assistant_message(text)] if text else []), *output])


def streamed(delta: str) -> ResponseTextDeltaEvent:
    return ResponseTextDeltaEvent(**PLACE, delta=delta, logprobs=[], type="response.output_text.delta")


def _completed(output: list[Any]) -> ResponseCompletedEvent:
    response = Response(
        id="resp_1",
        created_at=0,
        model="brain",
        object="response",
        output=output,
        tool_choice="auto",
        tools=[],
        parallel_tool_calls=False,
    )
    return ResponseCompletedEvent(response=response, sequence_number=0, type="response.completed")


def _seen(items: Any) -> list[Seen]:
    seen = []
    for item in [{"role": "user", "content": items}] if isinstance(items, str) else items:
        if item.get("type") == "function_call_output":
            seen.append(Seen("tool", str(item["output"])))
        elif item.get("type") != "function_call":
            content = item["content"]
            parts = [{"text": content}] if isinstance(content, str) else content
            images = [part["image_url"].split(";")[0][5:] for part in parts if "image_url" in part]
            text = "".join(part["text"] for part in parts if "text" in part)
            seen.append(Seen(item["role"], text, tuple(images)))
    return seen


agent = Agent("brain", model=BrainModel(), tools=[function_tool(each) for each in (weather, wait, broken)])


class Report(BaseModel):
    city: str
    celsius: int


class ReportModel(BrainModel):
    async def stream_response(self, *_: Any, **__: Any) -> AsyncIterator[Any]:
        text = json.dumps(REPORT)
        yield streamed(text)
        yield _completed([assistant_message(text)])


structured = Agent("report", model=ReportModel(), output_type=Report)


async def final_text() -> str:
    """What the SDK itself calls the answer to `hello`."""
    result = Runner.run_streamed(agent, "hello")
    async for _ in result.stream_events():
        pass
    return str(result.final_output)


def make() -> Any:
    return agent
