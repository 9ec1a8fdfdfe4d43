"""Anthropic's SDK, here on a transport that answers by itself instead of the network. Leave out `client` for the real one."""

import json
from typing import Any

import anthropic
import httpx2

from app.agents.adapters.frameworks.anthropic import AnthropicAgent


def spelled(text: str) -> bytes:
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": "offline", "content": []}
    usage = {"input_tokens": 1, "output_tokens": 1}
    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": {**message, "stop_reason": None, "usage": usage}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": usage},
        {"type": "message_stop"},
    ]
    return "".join(f"event: {each['type']}\ndata: {json.dumps(each)}\n\n" for each in events).encode()


def answer(_: httpx2.Request) -> httpx2.Response:
    stream = {"content-type": "text/event-stream"}
    return httpx2.Response(200, headers=stream, content=spelled("Hello from no network."))


offline = anthropic.AsyncAnthropic(
    api_key="unset", http_client=httpx2.AsyncClient(transport=httpx2.MockTransport(answer))
)
agent = AnthropicAgent(model="offline", client=offline, system_prompt="You are kind.")
