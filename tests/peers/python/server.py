"""An agent on the official Python SDK, of either generation: `server.py` prints its address and serves until killed.

It runs in an environment of its own and knows nothing of this project. What it does is chosen by the message's text.
"""

import asyncio
import socket
import sys
from typing import Any
from uuid import uuid4

import uvicorn
from a2a.server.agent_execution import AgentExecutor
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.tasks import InMemoryTaskStore, TaskUpdater
from a2a.types import AgentCapabilities, AgentCard, AgentSkill, Part
from starlette.applications import Starlette

try:
    from a2a.server.apps import A2AStarletteApplication
    from a2a.types import TextPart
    from a2a.utils import new_task

    IS_OLD = True
except ImportError:
    from a2a.helpers import new_task_from_user_message as new_task
    from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes
    from a2a.types import AgentInterface

    IS_OLD = False


def text(said: str) -> Any:
    return Part(root=TextPart(text=said)) if IS_OLD else Part(text=said)


class Executor(AgentExecutor):
    """`release` lets go what `hold` holds."""

    def __init__(self) -> None:
        self.released = asyncio.Event()

    async def execute(self, context: Any, event_queue: Any) -> None:
        said = context.get_user_input()
        task = context.current_task
        if task is None:
            task = new_task(context.message)
            await event_queue.enqueue_event(task)
        updater = TaskUpdater(event_queue, task.id, task.context_id)
        await updater.start_work(updater.new_agent_message([text("On it")]))
        doing = getattr(self, f"do_{said.partition(' ')[0]}", self.answer)
        await doing(updater, said)

    async def say(self, updater: Any, *pieces: str, append: bool = False, name: str = "answer") -> None:
        for number, piece in enumerate(pieces):
            await updater.add_artifact([text(piece)], artifact_id=name, append=append or number > 0)

    async def do_count(self, updater: Any, said: str) -> None:
        for number in range(int(said.split()[1])):
            await self.say(updater, f"{number} ", append=number > 0)
            await asyncio.sleep(0)
        await updater.complete()

    async def do_hold(self, updater: Any, said: str) -> None:
        await self.say(updater, "before ")
        await self.released.wait()
        self.released.clear()
        await self.say(updater, "after", append=True)
        await updater.complete()

    async def do_release(self, updater: Any, said: str) -> None:
        self.released.set()
        await updater.complete(updater.new_agent_message([text("released")]))

    async def do_ask(self, updater: Any, said: str) -> None:
        await self.say(updater, "Let me see.")
        await updater.requires_input(updater.new_agent_message([text("Which city?")]))

    async def do_Aarhus(self, updater: Any, said: str) -> None:  # noqa: N802
        await self.say(updater, "It rains in Aarhus.", name=f"answer-{uuid4()}")
        await updater.complete()

    async def do_fail(self, updater: Any, said: str) -> None:
        await self.say(updater, "half")
        await updater.failed(updater.new_agent_message([text("no luck")]))

    async def do_raise(self, updater: Any, said: str) -> None:
        await self.say(updater, "half")
        raise RuntimeError("broken")

    async def answer(self, updater: Any, said: str) -> None:
        await self.say(updater, "You said ", said)
        await updater.complete()

    async def cancel(self, context: Any, event_queue: Any) -> None:
        await TaskUpdater(event_queue, context.task_id, context.context_id).cancel()


def application(url: str, streaming: bool) -> Any:
    skill = AgentSkill(id="all", name="all", description="all", tags=["all"])
    fields: dict[str, Any] = {
        "name": "peer",
        "description": "a peer",
        "version": "1",
        "capabilities": AgentCapabilities(streaming=streaming),
        "default_input_modes": ["text"],
        "default_output_modes": ["text"],
        "skills": [skill],
    }
    if IS_OLD:
        card = AgentCard(url=url, **fields)
        handler = DefaultRequestHandler(agent_executor=Executor(), task_store=InMemoryTaskStore())
        return A2AStarletteApplication(agent_card=card, http_handler=handler).build()
    interface = AgentInterface(url=url, protocol_binding="JSONRPC", protocol_version="1.0")
    card = AgentCard(supported_interfaces=[interface], **fields)
    handler = DefaultRequestHandler(
        agent_executor=Executor(), task_store=InMemoryTaskStore(), agent_card=card
    )
    return Starlette(routes=[*create_agent_card_routes(card), *create_jsonrpc_routes(handler, "/")])


def main() -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    url = f"http://127.0.0.1:{listener.getsockname()[1]}/"
    server = uvicorn.Server(
        uvicorn.Config(application(url, streaming="--no-stream" not in sys.argv), log_level="error")
    )
    sys.stdout.write(f"{url}\n")
    sys.stdout.flush()
    asyncio.run(server.serve(sockets=[listener]))


if __name__ == "__main__":
    main()
