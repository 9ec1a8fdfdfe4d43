"""Anthropic: its SDK over a transport that spells the brain's steps as the Messages API does."""

import json
import uuid
from collections.abc import AsyncGenerator, Callable, Iterator
from typing import Any

import anthropic
import httpx2
from pydantic import BaseModel

from app.agents.adapters.frameworks.anthropic import AnthropicAgent
from app.agents.contract import Agent
from tests.adapters.brain import (
    REPORT,
    Call,
    Fail,
    Hang,
    ProviderError,
    Say,
    Seen,
    Step,
    Think,
    broken,
    gates,
    steps,
    wait,
    weather,
)
from tests.adapters.subjects.fake_http import Provider

START = {
    "type": "message_start",
    "message": {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "brain",
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {"input_tokens": 1, "output_tokens": 1},
    },
}


def sse(event: dict[str, Any]) -> bytes:
    return f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode()


async def answer(body: dict[str, Any]) -> AsyncGenerator[bytes, None]:
    async for each in spelled([*steps(_seen(body["messages"]))]):
        yield each


async def spelled(script: list[Step]) -> AsyncGenerator[bytes, None]:
    if isinstance(script[0], Fail):
        raise ProviderError(script[0].status)
    yield sse(START)
    kind, index, reason = "", -1, "end_turn"
    for step in script:
        match step:
            case Fail():
                error = {"type": "overloaded_error", "message": "Overloaded"}
                yield sse({"type": "error", "error": error})
                return
            case Hang():
                await gates["text"].hang()
            case Call():
                reason = "tool_use"
        if type(step).__name__ != kind:
            if kind:
                yield sse({"type": "content_block_stop", "index": index})
            kind, index = type(step).__name__, index + 1
            yield sse({"type": "content_block_start", "index": index, "content_block": _block(step)})
        for delta in _deltas(step):
            yield sse({"type": "content_block_delta", "index": index, "delta": delta})
    yield sse({"type": "content_block_stop", "index": index})
    ending = {"stop_reason": reason, "stop_sequence": None}
    yield sse({"type": "message_delta", "delta": ending, "usage": {"output_tokens": 2}})
    yield sse({"type": "message_stop"})


def _block(step: Step) -> dict[str, Any]:
    match step:
        case Call(name, _):
            return {"type": "tool_use", "id": f"toolu_{uuid.uuid4().hex}", "name": name, "input": {}}
        case Think():
            return {"type": "thinking", "thinking": "", "signature": ""}
        case _:
            return {"type": "text", "text": ""}


def _deltas(step: Step) -> Iterator[dict[str, Any]]:
    match step:
        case Say(text):
            yield {"type": "text_delta", "text": text}
        case Think(text):
            yield {"type": "thinking_delta", "thinking": text}
        case Call(_, arguments):
            written = json.dumps(arguments)
            yield {"type": "input_json_delta", "partial_json": written[:4]}
            yield {"type": "input_json_delta", "partial_json": written[4:]}
        case _:
            pass


def _seen(messages: list[dict[str, Any]]) -> list[Seen]:
    seen = []
    for message in messages:
        blocks = message["content"]
        images = tuple(block["source"]["media_type"] for block in blocks if block["type"] == "image")
        for block in blocks:
            if block["type"] == "text":
                seen.append(Seen(message["role"], block["text"], images))
            elif block["type"] == "tool_result":
                seen.append(Seen("tool", block["content"]))
    return seen


def client(transport: Provider) -> anthropic.AsyncAnthropic:
    http = httpx2.AsyncClient(transport=transport)
    return anthropic.AsyncAnthropic(api_key="unset", http_client=http, max_retries=0)


def make() -> Agent:
    tools: list[Callable[..., Any]] = [weather, wait, broken]
    return AnthropicAgent(
        model="brain", client=client(Provider(answer)), tools=tools, system_prompt="Be brief."
    )


class Report(BaseModel):
    city: str
    celsius: int


async def report(_: dict[str, Any]) -> AsyncGenerator[bytes, None]:
    async for each in spelled([Say('{"city": "Aarhus", '), Say('"celsius": 11}')]):
        yield each


def structured() -> Agent:
    assert Report(**REPORT)
    return AnthropicAgent(model="brain", client=client(Provider(report)), output_type=Report)


async def final_text() -> str:
    """What the SDK itself calls the answer to `hello`."""
    message: dict[str, Any] = {"role": "user", "content": [{"type": "text", "text": "hello"}]}
    async with client(Provider(answer)).messages.stream(
        model="brain",
        max_tokens=100,
        messages=[message],  # type: ignore[list-item]
    ) as stream:
        return await stream.get_final_text()
