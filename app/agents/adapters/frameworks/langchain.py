"""A LangChain runnable as an agent: a chat model, or a chain that begins with a prompt or a function.

The conversation comes from the session's log, so any replica runs the next turn. A chat model gets all messages; a
chain gets what it says it takes: its list of messages (`history`, `chat_history` …) the earlier ones, its other input
the prompt's text; a chain that takes messages alone gets all of them. Text is what the runnable itself streams, tools
are those that run within it. What is no text is the structured result, its pieces added up as LangChain adds them.
"""

from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import aclosing
from typing import Any

from langchain_core.language_models import BaseLanguageModel
from langchain_core.messages import BaseMessage, ToolMessage
from langchain_core.runnables import Runnable, RunnableBinding, RunnableSequence
from langchain_core.runnables.utils import AddableDict

from app.agents.adapters.failures import AgentFailure, guarded
from app.agents.adapters.frameworks.langchain_messages import conversation, said
from app.agents.adapters.python_tools import json_of
from app.agents.contract import AgentEvent, Prompt, Scope


class LangChainAgent:
    """`runnable` is never changed; each turn is one run of it."""

    def __init__(self, runnable: Runnable[Any, Any]) -> None:
        self._runnable = runnable
        self._takes_messages = isinstance(_first(runnable), BaseLanguageModel)
        schema = {} if self._takes_messages else runnable.get_input_jsonschema()
        properties: Mapping[str, Any] = schema.get("properties", {})
        # `root` is what a mapping of functions calls its one input without a name.
        self._inputs = {} if set(properties) == {"root"} else properties
        # A function has none.
        self.name = getattr(runnable, "name", None)

    def invoke(self, scope: Scope, prompt: Prompt, /) -> AsyncGenerator[AgentEvent, None]:
        return guarded(self._turn(scope, prompt))

    async def _turn(self, scope: Scope, prompt: Prompt) -> AsyncGenerator[AgentEvent, None]:
        told = _Told()
        given = self._input(await conversation(scope, prompt), prompt["text"])
        async with aclosing(self._runnable.astream_events(given, version="v2")) as events:  # type: ignore[type-var]
            async for event in events:
                for each in told.take(event):
                    yield each
        yield told.completed()

    def _input(self, messages: list[Any], text: str) -> Any:
        if self._takes_messages:
            return messages
        if not self._inputs:
            return text
        lists = [name for name, schema in self._inputs.items() if schema.get("type") == "array"]
        others = [name for name in self._inputs if name not in lists]
        if len(lists) > 1 or len(others) > 1:
            raise AgentFailure(
                f"the chain must take one text, a list of messages, or both, not {', '.join(self._inputs)}; "
                "wrap it in an agent of your own",
                "agent_protocol_error",
            )
        if not others:
            return {lists[0]: messages}
        return {others[0]: text, **dict.fromkeys(lists, messages[:-1])}


class _Told:
    """What the run has told. The run itself is the one without parents."""

    def __init__(self) -> None:
        self._has_streamed = False
        self._result: Any = None

    def take(self, event: Any) -> Iterator[AgentEvent]:
        kind, data = event["event"], event["data"]
        match kind:
            case "on_tool_start":
                args = json_of(data.get("input") or {})
                yield {"type": "tool_started", "id": event["run_id"], "name": event["name"], "args": args}
            case "on_tool_end":
                yield _tool_ended(event["run_id"], data.get("output"))
            case "on_tool_error":
                yield {
                    "type": "tool_ended",
                    "id": event["run_id"],
                    "isError": True,
                    "content": str(data.get("error")),
                }
        if event["parent_ids"]:
            return
        if kind.endswith("_stream"):
            self._has_streamed = True
            yield from self._piece(data["chunk"])
        elif kind.endswith("_end") and not self._has_streamed:
            yield from self._piece(data.get("output"))

    def _piece(self, piece: Any) -> Iterator[AgentEvent]:
        if isinstance(piece, str):
            yield {"type": "text", "delta": piece}
        elif isinstance(piece, BaseMessage):
            yield from said(piece)
        elif isinstance(piece, AddableDict) and isinstance(self._result, AddableDict):
            self._result = self._result + piece
        else:
            # A parser's pieces are each the whole so far.
            self._result = piece

    def completed(self) -> AgentEvent:
        if self._result is None:
            return {"type": "completed"}
        return {"type": "completed", "data": json_of(self._result)}


def _first(runnable: Any) -> Any:
    """What gets the input."""
    while isinstance(runnable, RunnableSequence | RunnableBinding):
        runnable = runnable.first if isinstance(runnable, RunnableSequence) else runnable.bound
    return runnable


def _tool_ended(run_id: str, output: Any) -> AgentEvent:
    is_error = isinstance(output, ToolMessage) and output.status == "error"
    content = output.content if isinstance(output, ToolMessage) else output
    return {"type": "tool_ended", "id": run_id, "isError": is_error, "content": json_of(content)}
