"""The tools of MCP servers, beside an agent's own functions.

Servers are connected when a turn begins and left when it ends, in the turn's own task: nothing of a turn outlives it, a
server's process included. A cancelled call is cancelled on the server too. What the user's server sends besides (sampling,
elicitation, roots) is not offered to it.
"""

import shlex
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any

from mcp import Client, MCPError, StdioServerParameters
from mcp_types import CallToolResult, TextContent
from mcp_types import Tool as McpTool
from pydantic_core import from_json

from app.agents.adapters.failures import AgentFailure
from app.agents.adapters.python_tools import ToolResult, json_of
from app.agents.adapters.tool_calls import Tool, Tools
from app.agents.contract import Json


@dataclass(frozen=True, slots=True)
class _RemoteTool:
    name: str
    description: str
    schema: dict[str, Any]


class _AllTools:
    """Tools of several clients, and the functions, by name."""

    def __init__(self, functions: Tools) -> None:
        self._functions = functions
        self._known: dict[str, Tool] = {tool.name: tool for tool in functions}
        self._clients: dict[str, Client] = {}

    def __iter__(self) -> Iterator[Tool]:
        return iter(self._known.values())

    def add(self, tool: McpTool, client: Client) -> None:
        if tool.name in self._known:
            raise AgentFailure(f"there is more than one tool {tool.name!r}", "bad_tools")
        self._known[tool.name] = _RemoteTool(tool.name, tool.description or "", dict(tool.input_schema))
        self._clients[tool.name] = client

    async def call(self, name: str, arguments: str, tell: Callable[[str], None] | None = None) -> ToolResult:
        """Call it where it is. Progress is told as `tell` takes it."""
        client = self._clients.get(name)
        if client is None:
            return await self._functions.call(name, arguments, tell)

        async def progressed(progress: float, total: float | None, message: str | None) -> None:
            if tell is not None:
                tell(message or (f"{progress:g}" if total is None else f"{progress:g} of {total:g}"))

        try:
            given = from_json(arguments or "{}")
            if not isinstance(given, dict):
                return ToolResult("bad arguments: they must be an object", is_error=True)
            result = await client.call_tool(name, given, progress_callback=progressed)
        except (ValueError, MCPError, OSError) as error:
            return ToolResult(f"{type(error).__name__}: {error}"[:2_000], is_error=True)
        return ToolResult(_content(result), is_error=result.is_error)


@asynccontextmanager
async def connected(servers: Iterable[Any], functions: Tools) -> AsyncIterator[Tools]:
    """The functions and the servers' tools, while the servers are connected.

    A server is an `http(s)://` address, a command line, or what `mcp.Client` takes. Raises AgentFailure, retryable,
    for one that can't be reached.
    """
    try:
        async with AsyncExitStack() as stack:
            tools = _AllTools(functions)
            for server in servers:
                client = await _client(server, stack)
                for tool in await _listed(client):
                    tools.add(tool, client)
            yield tools
    except BaseExceptionGroup as group:
        # The clients' task groups wrap what passes through them.
        raise _innermost(group) from group


async def _client(server: Any, stack: AsyncExitStack) -> Client:
    try:
        return await stack.enter_async_context(Client(_target(server)))
    except Exception as error:
        name = server if isinstance(server, str) else type(server).__name__
        reason = _innermost(error)
        details = f"the MCP server {name} can't be reached: {type(reason).__name__}: {reason}"
        raise AgentFailure(details, "tools_unavailable", retryable=True) from error


def _target(server: Any) -> Any:
    if not isinstance(server, str) or "://" in server:
        return server
    command, *arguments = shlex.split(server)
    return StdioServerParameters(command=command, args=arguments)


async def _listed(client: Client) -> list[McpTool]:
    tools: list[McpTool] = []
    cursor: str | None = None
    while True:
        page = await client.list_tools(cursor=cursor)
        tools += page.tools
        cursor = page.next_cursor
        if cursor is None:
            return tools


def _content(result: CallToolResult) -> Json:
    """Structured content as it is, a lone value out of the object that it is wrapped in; texts joined; else all blocks."""
    found = result.structured_content
    if found is not None and not result.is_error:
        is_wrapped = isinstance(found, Mapping) and set(found) == {"result"}
        return json_of(found["result"] if is_wrapped else found)
    texts = [block.text for block in result.content if isinstance(block, TextContent)]
    return "\n".join(texts) if len(texts) == len(result.content) else json_of(result.content)


def _innermost(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
