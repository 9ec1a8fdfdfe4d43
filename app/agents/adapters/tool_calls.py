"""The tool calls of one step of a model, run at the same time and told as events. No task outlives the generator."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from pydantic_core import from_json

from app.agents.adapters.python_tools import ToolResult
from app.agents.contract import AgentEvent, Json


class Tool(Protocol):
    """What a model is told of a tool. `schema` is the JSON Schema of its arguments."""

    @property
    def name(self) -> str: ...
    @property
    def description(self) -> str: ...
    @property
    def schema(self) -> dict[str, Any]: ...


class Tools(Protocol):
    """Tools by name. A call never raises: what goes wrong is a result with `is_error`."""

    def __iter__(self) -> Iterator[Tool]: ...
    async def call(self, name: str, arguments: str, tell: Callable[[str], None] | None = None) -> ToolResult:
        """Call it with arguments in JSON. `tell` takes lines about its progress."""
        ...


@dataclass(slots=True)
class ToolCall:
    """A call as the model wrote it; `arguments` are its JSON."""

    id: str
    name: str = ""
    arguments: str = ""
    result: ToolResult | None = None

    def parsed(self) -> Json:
        """The arguments as JSON; as the model wrote them, if they are none."""
        try:
            return from_json(self.arguments or "{}", allow_inf_nan=False)
        except ValueError:
            return self.arguments


async def run_calls(calls: Sequence[ToolCall], tools: Tools) -> AsyncGenerator[AgentEvent, None]:
    """Run them; each gets its `result`. `tool_progress` replaces what was told of that call before."""
    for call in calls:
        yield {"type": "tool_started", "id": call.id, "name": call.name, "args": call.parsed()}
    events: asyncio.Queue[AgentEvent | asyncio.Task[None]] = asyncio.Queue()

    async def run(call: ToolCall) -> None:
        def tell(text: str) -> None:
            events.put_nowait({"type": "tool_progress", "id": call.id, "text": text})

        call.result = await tools.call(call.name, call.arguments, tell)
        is_error, content = call.result.is_error, call.result.content
        events.put_nowait({"type": "tool_ended", "id": call.id, "isError": is_error, "content": content})

    tasks = [asyncio.create_task(run(call), name=f"tool {call.name}") for call in calls]
    for task in tasks:
        task.add_done_callback(events.put_nowait)
    running = len(tasks)
    try:
        while running:
            event = await events.get()
            if isinstance(event, asyncio.Task):
                running -= 1
                event.result()
            else:
                yield event
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
