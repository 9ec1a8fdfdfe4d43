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


async def main(url: str) -> dict[str, Any]:
    seen: dict[str, Any] = {}
    async with httpx.AsyncClient(trust_env=False, timeout=15) as http:
        card = await A2ACardResolver(http, url).get_agent_card()
        client = ClientFactory(ClientConfig(httpx_client=http, streaming=True)).create(card)

        states = []
        async for task, event in client.send_message(message("Hello")):
            if event is not None and event.kind == "status-update":
                states.append(event.status.state.value)
        seen["stream"] = {"text": text_of(task), "states": states}

        stream = client.send_message(message("hold"))
        async for task, _ in stream:
            if text_of(task) == "before ":
                break
        await stream.aclose()
        async for task, _ in client.resubscribe(TaskIdParams(id=task.id)):
            if task.status.state.value == "working" and text_of(task) == "before ":
                async for _ in client.send_message(message("release")):
                    pass
        got = await client.get_task(TaskQueryParams(id=task.id))
        seen["resubscribe"] = {"text": text_of(got), "state": got.status.state.value}

        stream = client.send_message(message("hold"))
        async for task, _ in stream:
            break
        canceled = await client.cancel_task(TaskIdParams(id=task.id))
        await stream.aclose()
        seen["cancel"] = canceled.status.state.value

        async for task, _ in client.send_message(message("ask")):
            pass
        question = "".join(part.root.text for part in task.status.message.parts)
        async for task, _ in client.send_message(
            message("Aarhus", task_id=task.id, context_id=task.context_id)
        ):
            pass
        got = await client.get_task(TaskQueryParams(id=task.id))
        seen["question"] = {"asked": question, "text": text_of(got), "state": got.status.state.value}
    return seen


if __name__ == "__main__":
    sys.stdout.write(json.dumps(asyncio.run(main(sys.argv[1]))))
