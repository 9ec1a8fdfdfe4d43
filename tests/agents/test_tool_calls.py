"""The calls of one step: at the same time, told as they go on, none left behind."""

import asyncio
from collections.abc import Callable, Iterator

import pytest

from app.agents.adapters.python_tools import ToolResult
from app.agents.adapters.tool_calls import Tool, ToolCall, run_calls
from tests.agents.driving import nothing_left
from tests.server import soon


class Scripted:
    """Tools that tell, and wait for each other."""

    def __init__(self) -> None:
        self.second_ended = asyncio.Event()

    def __iter__(self) -> Iterator[Tool]:
        return iter(())

    async def call(self, name: str, arguments: str, tell: Callable[[str], None] | None = None) -> ToolResult:
        match name:
            case "first":
                assert tell is not None
                tell("half")
                await self.second_ended.wait()
                return ToolResult({"a": 1})
            case "second":
                self.second_ended.set()
                return ToolResult("no", is_error=True)
            case "hangs":
                await asyncio.Event().wait()
        raise ValueError(name)


async def test_calls_run_together_and_tell_what_happens() -> None:
    calls = [ToolCall("1", "first", '{"b": 2}'), ToolCall("2", "second", "{bad")]
    async with nothing_left():
        events = [event async for event in run_calls(calls, Scripted())]
    assert events[:2] == [
        {"type": "tool_started", "id": "1", "name": "first", "args": {"b": 2}},
        {"type": "tool_started", "id": "2", "name": "second", "args": "{bad"},
    ]
    assert events[2:] == [
        {"type": "tool_progress", "id": "1", "text": "half"},
        {"type": "tool_ended", "id": "2", "isError": True, "content": "no"},
        {"type": "tool_ended", "id": "1", "isError": False, "content": {"a": 1}},
    ]
    assert [call.result for call in calls] == [ToolResult({"a": 1}), ToolResult("no", is_error=True)]


async def test_a_call_that_breaks_stops_the_others() -> None:
    async def run() -> None:
        async for _ in run_calls([ToolCall("1", "hangs"), ToolCall("2", "breaks")], Scripted()):
            pass

    async with nothing_left():
        with pytest.raises(ValueError, match="breaks"):
            await soon(run())
