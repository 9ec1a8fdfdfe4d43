"""Python functions as tools of a model: their JSON schema, and calling them with what the model wrote.

A call never raises: whatever goes wrong (no such tool, arguments that are not JSON or don't fit, an
exception) is a result with `is_error`, which the model reads and may mend. Results are JSON. Synchronous
functions run in a thread; when a turn is cancelled, the thread runs on to its end, for Python can't stop it.
"""

import asyncio
import inspect
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model
from pydantic_core import from_json, to_json

from app.agents.contract import Json


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What a tool returned, or why it didn't."""

    content: Json
    is_error: bool = False

    @property
    def text(self) -> str:
        """As the model reads it."""
        return self.content if isinstance(self.content, str) else to_json(self.content).decode()


class PythonTool:
    """One function: its name, what it says of itself, and the schema of its arguments."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.name = function.__name__
        self.description = inspect.getdoc(function) or ""
        self._function = function
        self._arguments = _arguments_model(function)
        self.schema = _schema(self._arguments)

    async def call(self, arguments: str) -> ToolResult:
        """Call it with arguments in JSON; no text is no arguments."""
        try:
            values = self._arguments.model_validate_json(arguments or "{}")
        except ValidationError as error:
            return ToolResult(f"bad arguments: {_complaint(error)}", is_error=True)
        given = {
            field.alias or "": getattr(values, key) for key, field in self._arguments.model_fields.items()
        }
        if inspect.iscoroutinefunction(self._function):
            return await self._awaited(given)
        return await asyncio.to_thread(self._returned, given)

    async def _awaited(self, given: dict[str, Any]) -> ToolResult:
        try:
            return ToolResult(json_of(await self._function(**given)))
        except asyncio.CancelledError:
            if _is_being_cancelled():
                raise
            return ToolResult("CancelledError", is_error=True)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - the tool's code may raise anything
            return _raised(error)

    def _returned(self, given: dict[str, Any]) -> ToolResult:
        """Caught here, in the thread: a StopIteration can't cross into a future and would never arrive."""
        try:
            return ToolResult(json_of(self._function(**given)))
        except (Exception, SystemExit) as error:  # noqa: BLE001 - the tool's code may raise anything
            return _raised(error)


class PythonTools:
    """The tools of one agent, by name."""

    def __init__(self, functions: Iterable[Callable[..., Any]] = ()) -> None:
        self._tools: dict[str, PythonTool] = {}
        for function in functions:
            self.add(function)

    def __iter__(self) -> Iterator[PythonTool]:
        return iter(self._tools.values())

    def add(self, function: Callable[..., Any]) -> None:
        """Raises ValueError for a second tool of a name, TypeError for parameters that have no name."""
        tool = PythonTool(function)
        if tool.name in self._tools:
            raise ValueError(f"there is a tool {tool.name!r} already")
        self._tools[tool.name] = tool

    async def call(self, name: str, arguments: str, tell: Callable[[str], None] | None = None) -> ToolResult:
        """Functions have nothing to tell before they return."""
        tool = self._tools.get(name)
        if tool is None:
            return ToolResult(f"there is no tool {name!r}", is_error=True)
        return await tool.call(arguments)


def _arguments_model(function: Callable[..., Any]) -> type[BaseModel]:
    """A model of the parameters. Its fields have neutral names, so that none can hide a method."""
    hints = get_type_hints(function, include_extras=True)
    fields: dict[str, Any] = {}
    for number, parameter in enumerate(inspect.signature(function).parameters.values()):
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise TypeError(f"tool {function.__name__!r}: {parameter} can't be passed by name")
        default = ... if parameter.default is parameter.empty else parameter.default
        fields[f"p{number}"] = (hints.get(parameter.name, Any), Field(default, alias=parameter.name))
    return create_model(function.__name__, __config__=ConfigDict(extra="forbid"), **fields)


def _schema(arguments: type[BaseModel]) -> dict[str, Any]:
    schema = arguments.model_json_schema()
    del schema["title"]
    for described in schema.setdefault("properties", {}).values():
        described.pop("title", None)
    return schema


def _complaint(error: ValidationError) -> str:
    return "; ".join(
        f"{'.'.join(map(str, each['loc'])) or 'arguments'}: {each['msg']}"
        for each in error.errors(include_url=False, include_context=False, include_input=False)
    )


def json_of(value: object) -> Json:
    """Strict JSON of anything: models and dates as pydantic writes them, NaN as null, else its text."""
    return from_json(to_json(value, bytes_mode="base64", inf_nan_mode="null", fallback=str))


def _raised(error: BaseException) -> ToolResult:
    return ToolResult(f"{type(error).__name__}: {error}"[:2_000], is_error=True)


def _is_being_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
