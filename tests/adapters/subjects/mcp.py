"""The built-in chat agent with the tools of an MCP server in this process."""

import json
import uuid
from collections.abc import AsyncGenerator
from typing import Any

import httpx2
import openai
from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ToolError

from app.agents.adapters.openai_chat import OpenAIChatAgent
from app.agents.contract import Agent
from tests.adapters.brain import (
    Call,
    Fail,
    Hang,
    ProviderError,
    Say,
    Seen,
    Step,
    Think,
    gates,
    steps,
    wait,
    weather,
)
from tests.adapters.subjects.fake_http import Provider


async def broken() -> str:
    """A tool that doesn't work."""
    raise ToolError("out of order")


server = MCPServer("brain")
for function in (weather, wait, broken):
    server.add_tool(function)


def sse(choice: dict[str, Any]) -> bytes:
    chunk = {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "brain",
        "choices": [{"index": 0, "delta": {}, "finish_reason": None, **choice}],
    }
    return f"data: {json.dumps(chunk)}\n\n".encode()


async def answer(body: dict[str, Any]) -> AsyncGenerator[bytes, None]:
    script = [*steps(_seen(body["messages"]))]
    if isinstance(script[0], Fail):
        raise ProviderError(script[0].status)
    for step in script:
        match step:
            case Fail(status):
                error = {"message": "down", "code": "server_error", "status": status}
                yield f"data: {json.dumps({'error': error})}\n\n".encode()
                return
            case Hang():
                await gates["text"].hang()
            case _:
                yield sse({"delta": _delta(step)})
    yield sse({"finish_reason": "stop"})
    yield b"data: [DONE]\n\n"


def _delta(step: Step) -> dict[str, Any]:
    match step:
        case Say(text):
            return {"content": text}
        case Think(text):
            return {"reasoning_content": text}
        case Call(name, arguments):
            function = {"name": name, "arguments": json.dumps(arguments)}
            call = {"index": 0, "id": f"call_{uuid.uuid4().hex}", "type": "function", "function": function}
            return {"tool_calls": [call]}
        case _:
            raise AssertionError(step)


def _seen(messages: list[dict[str, Any]]) -> list[Seen]:
    seen = []
    for message in messages:
        content = message["content"] or []
        parts: list[dict[str, Any]] = [{"text": content}] if isinstance(content, str) else content
        text = "".join(part["text"] for part in parts if "text" in part)
        images = [part["image_url"]["url"].split(";")[0][5:] for part in parts if "image_url" in part]
        if parts:
            seen.append(Seen(message["role"], text, tuple(images)))
    return seen


def client() -> openai.AsyncOpenAI:
    http = httpx2.AsyncClient(transport=Provider(answer))
    return openai.AsyncOpenAI(api_key="unset", http_client=http, max_retries=0)


def make() -> Agent:
    return OpenAIChatAgent(model="brain", client=client(), mcp_servers=[server], system_prompt="Be brief.")


async def final_text() -> str:
    """What the SDK itself calls the answer to `hello`."""
    text = ""
    async for chunk in await client().chat.completions.create(
        model="brain", messages=[{"role": "user", "content": "hello"}], stream=True
    ):
        text += chunk.choices[0].delta.content or ""
    return text
