"""What a caller does with the official Python SDK 0.3: `client.py <url>` prints what it saw, as JSON.

It runs in an environment of its own and knows nothing of this project.
"""

import asyncio
import json
import sys
from typing import Any
from uuid import uuid4

import httpx
from a2a.client import ClientConfig, ClientFactory
from a2a.client.card_resolver import A2ACardResolver
from a2a.types import Message, Part, Role, TaskIdParams, TaskQueryParams, TextPart


def message(text: str, **fields: str) -> Message:
    return Message(message_id=str(uuid4()), role=Role.user, parts=[Part(root=TextPart(text=text))], **fields)


def text_of(task: Any) -> str:
    return "".join(part.root.text for artifact in task.artifacts or [] for part in artifact.parts)


async def last(stream: Any) -> Any:
    """The task as it stands when the stream ends."""
    task = None
    async for event in stream:
        task = event[0]
    return task


async def until(stream: Any, text: str) -> Any:
    """The task once it has this text; the stream is cut then."""
    async for event in stream:
        if text_of(event[0]) == text:
            await stream.aclose()
            return event[0]
    raise AssertionError(f"the stream ended without {text!r}")


async def streamed(client: Any) -> dict[str, Any]:
    states = []
    text = ""
    async for task, event in client.send_message(message("Hello")):
        text = text_of(task)
        if event is not None and event.kind == "status-update":
            states.append(event.status.state.value)
    return {"text": text, "states": states}


async def resubscribed(client: Any) -> dict[str, Any]:
    held = await until(client.send_message(message("hold")), "before ")
    async for task, _ in client.resubscribe(TaskIdParams(id=held.id)):
        if task.status.state.value == "working" and text_of(task) == "before ":
            await last(client.send_message(message("release")))
    got = await client.get_task(TaskQueryParams(id=held.id))
    return {"text": text_of(got), "state": got.status.state.value}


async def canceled(client: Any) -> str:
    held = await until(client.send_message(message("hold")), "before ")
    task = await client.cancel_task(TaskIdParams(id=held.id))
    state: str = task.status.state.value
    return state


async def asked(client: Any) -> dict[str, Any]:
    paused = await last(client.send_message(message("ask")))
    question = "".join(part.root.text for part in paused.status.message.parts)
    await last(client.send_message(message("Aarhus", task_id=paused.id, context_id=paused.context_id)))
    got = await client.get_task(TaskQueryParams(id=paused.id))
    return {"asked": question, "text": text_of(got), "state": got.status.state.value}


async def main(url: str) -> dict[str, Any]:
    async with httpx.AsyncClient(trust_env=False, timeout=60) as http:
        card = await A2ACardResolver(http, url).get_agent_card()
        client = ClientFactory(ClientConfig(httpx_client=http, streaming=True)).create(card)
        return {
            "stream": await streamed(client),
            "resubscribe": await resubscribed(client),
            "cancel": await canceled(client),
            "question": await asked(client),
        }


if __name__ == "__main__":
    sys.stdout.write(json.dumps(asyncio.run(main(sys.argv[1]))))
