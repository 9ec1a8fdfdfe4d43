"""A LangGraph graph as an agent: `serve my_graph:graph`, compiled or not.

The conversation comes from the session's log, so the graph needs no checkpointer and any replica runs the next turn. A
checkpointer that it has serves one turn: each is a thread of its own, deleted at its end. Only a thread that an
`interrupt` stopped is kept: the next prompt is the answer that it waits for, on any replica that shares the
checkpointer; on one that doesn't, and after the thread is gone, it is an ordinary prompt.

Text is what the models of the graph and of its subgraphs say, whole messages of models that don't stream included, each
message once. The structured result is `structured_response` where `create_agent` made one, and the graph's output where
that has no messages. Asynchronous nodes and tools are cancelled with the turn; synchronous ones run on in their thread.
"""

import uuid
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.runnables import RunnableConfig
from langgraph.graph import StateGraph
from langgraph.pregel import Pregel
from langgraph.types import Command

from app.agents.adapters.failures import AgentFailure, guarded
from app.agents.adapters.frameworks.langchain_messages import conversation, said
from app.agents.adapters.python_tools import json_of
from app.agents.contract import AgentEvent, Prompt, Scope

INTERRUPT = "langgraph_interrupt"
"""The event by which a turn tells, and the session remembers, what the graph waits for: `thread` and `interrupts`."""


class LangGraphAgent:
    """`graph` takes `messages`, or one input, which gets the prompt's text; so does an `entrypoint` function."""

    def __init__(self, graph: Any) -> None:
        self._graph: Pregel[Any, Any, Any, Any] = graph.compile() if isinstance(graph, StateGraph) else graph
        if self._graph.name != "LangGraph":
            self.name = self._graph.name
        self._inputs = _inputs(self._graph)

    def invoke(self, scope: Scope, prompt: Prompt, /) -> AsyncGenerator[AgentEvent, None]:
        return guarded(self._turn(scope, prompt))

    async def _turn(self, scope: Scope, prompt: Prompt) -> AsyncGenerator[AgentEvent, None]:
        waiting = await self._waiting_thread(scope)
        thread = waiting or scope.get("turn") or uuid.uuid4().hex
        given = Command(resume=prompt["text"]) if waiting else await self._input(scope, prompt)
        run = _Run(self._graph.output_channels)
        try:
            stream = self._graph.astream(
                given,
                _config(thread, scope["session"]),
                stream_mode=["messages", "updates", "values"],
                subgraphs=True,
            )
            async with aclosing(stream) as parts:  # type: ignore[type-var]
                async for namespace, mode, payload in parts:
                    for event in run.take(namespace, mode, payload):
                        yield event
        finally:
            if not run.interrupts:
                await self._forget(thread)
        if run.interrupts or waiting:
            yield {"type": INTERRUPT, "thread": thread, "interrupts": run.interrupts}
        for event in run.ending():
            yield event

    async def _input(self, scope: Scope, prompt: Prompt) -> Any:
        if "messages" in self._inputs:
            return {"messages": await conversation(scope, prompt)}
        if not self._inputs:
            return prompt["text"]
        if len(self._inputs) == 1:
            return {self._inputs[0]: prompt["text"]}
        raise AgentFailure(
            f"the graph must take `messages` or one input, not {', '.join(self._inputs)}; "
            "give it an `input_schema`, or wrap it in an agent of your own",
            "agent_protocol_error",
        )

    async def _waiting_thread(self, scope: Scope) -> str | None:
        """The thread that the last interrupt stopped, if it is still there."""
        transcript = scope.get("transcript")
        if transcript is None or not self._graph.checkpointer:
            return None
        last: Any = None
        async with aclosing(transcript.own_events(INTERRUPT)) as events:
            async for event in events:
                last = event
        if last is None or not last["interrupts"]:
            return None
        state = await self._graph.aget_state(_config(last["thread"], scope["session"]))
        return str(last["thread"]) if state.interrupts else None

    async def _forget(self, thread: str) -> None:
        checkpointer = self._graph.checkpointer
        if checkpointer and not isinstance(checkpointer, bool):
            await checkpointer.adelete_thread(thread)


class _Run:
    """What a run has told so far."""

    def __init__(self, outputs: str | Sequence[str]) -> None:
        self._outputs = outputs
        self.interrupts: list[dict[str, Any]] = []
        self._calls: dict[str, bool] = {}
        self._values: Any = None

    def take(self, namespace: tuple[str, ...], mode: str, payload: Any) -> Iterator[AgentEvent]:
        if mode == "messages":
            # LangGraph itself gives each message once, in pieces or whole, however often nodes return it.
            yield from said(payload[0])
        elif mode == "updates":
            for update in payload.values():
                yield from self._update(update)
            if not namespace and "__interrupt__" in payload:
                self.interrupts += [
                    {"id": each.id, "value": json_of(each.value)} for each in payload["__interrupt__"]
                ]
        elif not namespace:
            self._values = payload

    def _update(self, update: Any) -> Iterator[AgentEvent]:
        for message in _messages(update):
            if isinstance(message, AIMessage):
                for call in message.tool_calls:
                    if (call["id"] or "") not in self._calls:
                        self._calls[call["id"] or ""] = False
                        yield {
                            "type": "tool_started",
                            "id": call["id"] or "",
                            "name": call["name"],
                            "args": json_of(call["args"]),
                        }
            elif isinstance(message, ToolMessage) and self._calls.get(message.tool_call_id) is False:
                self._calls[message.tool_call_id] = True
                yield {
                    "type": "tool_ended",
                    "id": message.tool_call_id,
                    "isError": message.status == "error",
                    "content": json_of(message.content),
                }

    def ending(self) -> Iterator[AgentEvent]:
        """The ending, after the text that a function's own result is."""
        values = self._values
        is_state = isinstance(values, Mapping)
        result = values.get("structured_response") if is_state else values
        if result is None and is_state and not self.interrupts and "messages" not in self._outputs:
            result = {key: values[key] for key in self._outputs if key in values}
        if isinstance(result, str):
            yield {"type": "text", "delta": result}
            result = None
        yield {"type": "completed"} if result is None else {"type": "completed", "data": json_of(result)}


def _inputs(graph: Any) -> list[str]:
    """The names of what it takes; a function takes one thing without a name.

    Not from its JSON schema: a state needs none, and one of `typing.TypedDict` has none before Python 3.12.
    """
    builder = getattr(graph, "builder", None)
    return [] if builder is None else list(builder.schemas[builder.input_schema])


def _messages(update: Any) -> Iterator[BaseMessage]:
    """The messages in what a node gave: a part of the state, or several."""
    if isinstance(update, BaseMessage):
        yield update
    elif isinstance(update, Mapping):
        for value in update.values():
            yield from _messages(value)
    elif isinstance(update, Iterable) and not isinstance(update, str | bytes):
        for value in update:
            yield from _messages(value)


def _config(thread: str, session: str) -> RunnableConfig:
    return {"configurable": {"thread_id": thread}, "metadata": {"session": session}}
