"""Python functions as tools: their schema, their arguments, and results that are always JSON."""

import asyncio
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, Field

from app.agents.adapters.python_tools import PythonTool, PythonTools, ToolResult


class Place(BaseModel):
    city: str


def plan(
    place: Place, day: date, json: Annotated[int, Field(description="How many.")] = 1, *, schema: Any = None
) -> str:
    """Plan a visit."""
    return f"{place.city} {day.year} {json} {schema}"


def test_the_schema_comes_from_the_signature_whatever_the_parameters_are_called() -> None:
    tool = PythonTool(plan)
    assert (tool.name, tool.description) == ("plan", "Plan a visit.")
    properties = tool.schema["properties"]
    assert list(properties) == ["place", "day", "json", "schema"]
    assert properties["json"] == {"type": "integer", "default": 1, "description": "How many."}
    assert tool.schema["required"] == ["place", "day"]


async def test_arguments_arrive_as_the_types_of_the_signature() -> None:
    arguments = '{"place": {"city": "X"}, "day": "2026-11-30", "schema": [1]}'
    assert await PythonTool(plan).call(arguments) == ToolResult("X 2026 1 [1]")


async def test_arguments_that_do_not_fit_are_told_by_name() -> None:
    result = await PythonTool(plan).call('{"place": {}, "more": 1, "day": "2026-11-30"}')
    assert result.is_error
    assert "place.city: Field required" in result.content
    assert "more: Extra inputs are not permitted" in result.content


async def test_no_text_is_no_arguments() -> None:
    def ping() -> str:
        return "pong"

    assert PythonTool(ping).schema["properties"] == {}
    assert await PythonTool(ping).call("") == ToolResult("pong")


def test_parameters_without_a_name_are_refused() -> None:
    def some(*values: int) -> None: ...

    with pytest.raises(TypeError, match=r"tool 'some': \*values: int can't be passed by name"):
        PythonTools([some])


@dataclass
class Point:
    x: float


@pytest.mark.parametrize(
    ("value", "content", "text"),
    [
        (None, None, "null"),
        ("word", "word", "word"),
        (Point(float("nan")), {"x": None}, '{"x":null}'),
        (Place(city="X"), {"city": "X"}, '{"city":"X"}'),
        (datetime(2026, 11, 30, tzinfo=UTC), "2026-11-30T00:00:00Z", "2026-11-30T00:00:00Z"),
        (b"\xff", "_w==", "_w=="),
        (2**70, 2**70, str(2**70)),
        (int, "<class 'int'>", "<class 'int'>"),
    ],
)
async def test_a_result_is_json_whatever_it_was(value: Any, content: Any, text: str) -> None:
    def give() -> Any:
        return value

    result = await PythonTool(give).call("{}")
    assert result == ToolResult(content)
    assert result.text == text


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (ValueError("no"), "ValueError: no"),
        (StopIteration("no"), "StopIteration: no"),
        (SystemExit(3), "SystemExit: 3"),
    ],
)
async def test_an_exception_is_a_result_in_a_thread_too(error: BaseException, told: str) -> None:
    def plain() -> None:
        raise error

    async def awaited() -> None:
        raise error

    expected = ToolResult(told, is_error=True)
    assert await PythonTool(plain).call("{}") == expected
    if not isinstance(error, StopIteration):
        assert await PythonTool(awaited).call("{}") == expected


async def test_a_result_that_can_not_be_json_is_an_error() -> None:
    def loop() -> Any:
        endless: list[Any] = []
        endless.append(endless)
        return endless

    assert (await PythonTool(loop).call("{}")).is_error


async def test_a_cancel_that_a_tool_leaks_is_an_error_and_a_real_one_passes() -> None:
    waits = asyncio.Event()

    async def leaks() -> None:
        raise asyncio.CancelledError

    async def sits() -> None:
        waits.set()
        await asyncio.Event().wait()

    assert await PythonTool(leaks).call("{}") == ToolResult("CancelledError", is_error=True)
    call = asyncio.create_task(PythonTool(sits).call("{}"))
    await waits.wait()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
