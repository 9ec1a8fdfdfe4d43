"""LangGraph: `create_react_agent`'s loop over a chat model that streams."""

import uuid
from collections.abc import AsyncIterator
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition

from tests.adapters.brain import (
    REPORT,
    Call,
    Fail,
    Hang,
    ProviderError,
    Say,
    Seen,
    Think,
    broken,
    gates,
    steps,
    wait,
    weather,
)

ROLES = {
    "human": "user",
    "ai": "assistant",
    "AIMessageChunk": "assistant",
    "tool": "tool",
    "system": "system",
}


class BrainModel(BaseChatModel):
    """A chat model that acts the brain's steps."""

    @property
    def _llm_type(self) -> str:
        return "brain"

    def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
        return self

    def _generate(self, messages: list[BaseMessage], *_: Any, **__: Any) -> ChatResult:
        raise NotImplementedError

    async def _agenerate(self, messages: list[BaseMessage], *_: Any, **__: Any) -> ChatResult:
        text = "".join(step.text for step in steps(_seen(messages)) if isinstance(step, Say))
        return ChatResult(generations=[ChatGeneration(message=AIMessage(text))])

    async def _astream(
        self, messages: list[BaseMessage], *_: Any, **__: Any
    ) -> AsyncIterator[ChatGenerationChunk]:
        for step in steps(_seen(messages)):
            match step:
                case Say(text):
                    yield _chunk(text)
                case Think(text):
                    yield _chunk([{"type": "reasoning", "reasoning": text, "index": 0}])
                case Call(name, arguments):
                    yield ChatGenerationChunk(
                        message=AIMessageChunk(
                            "",
                            tool_calls=[{"name": name, "args": arguments, "id": f"call_{uuid.uuid4().hex}"}],
                        )
                    )
                case Fail(status):
                    raise ProviderError(status)
                case Hang():
                    await gates["text"].hang()


def _chunk(content: Any) -> ChatGenerationChunk:
    return ChatGenerationChunk(message=AIMessageChunk(content))


def _seen(messages: list[BaseMessage]) -> list[Seen]:
    return [
        Seen(
            ROLES[each.type],
            each.text,
            tuple(block["mime_type"] for block in each.content_blocks if block["type"] == "image"),
        )
        for each in messages
    ]


def graph() -> Any:
    """A model and its tools, in a loop."""

    async def model(state: MessagesState) -> dict[str, Any]:
        return {"messages": [await BrainModel().ainvoke(state["messages"])]}

    builder = StateGraph(MessagesState)
    builder.add_node("model", model)
    builder.add_node("tools", ToolNode([weather, wait, broken], handle_tool_errors=True))
    builder.add_edge(START, "model")
    builder.add_conditional_edges("model", tools_condition)
    builder.add_edge("tools", "model")
    return builder.compile()


class Reporting(MessagesState):
    structured_response: dict[str, Any]


def structured() -> Any:
    """A graph with a structured result."""

    async def report(_: Reporting) -> dict[str, Any]:
        return {"structured_response": REPORT}

    return StateGraph(Reporting).add_node(report).add_edge(START, "report").compile()


async def final_text() -> str:
    """What LangGraph itself calls the answer to `hello`."""

    state = await graph().ainvoke({"messages": [("user", "hello")]})
    return str(state["messages"][-1].text)


def make() -> Any:
    return graph()
