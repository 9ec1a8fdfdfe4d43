"""LangChain: a chain over the chat model of the LangGraph subject, which runs the tool that the model calls."""

from collections.abc import AsyncIterator
from typing import Any

from langchain_core.messages import AIMessageChunk, BaseMessage, ToolMessage
from langchain_core.output_parsers import JsonOutputParser
from langchain_core.prompts import ChatPromptTemplate, MessagesPlaceholder
from langchain_core.runnables import Runnable, RunnableGenerator, RunnableLambda
from langchain_core.tools import StructuredTool, ToolException

from tests.adapters.brain import wait, weather
from tests.adapters.subjects.langgraph import BrainModel


async def broken() -> str:
    """A tool that doesn't work."""
    raise ToolException("out of order")


TOOLS = {
    each.__name__: StructuredTool.from_function(coroutine=each, handle_tool_error=True)
    for each in (weather, wait, broken)
}


async def loop(chunks: AsyncIterator[Any]) -> AsyncIterator[AIMessageChunk]:
    """The model, the tools that it calls, and the model again."""
    async for given in chunks:
        messages: list[BaseMessage] = given.to_messages() if hasattr(given, "to_messages") else given
        while True:
            answer: Any = None
            async for chunk in BrainModel().astream(messages):
                yield chunk
                answer = chunk if answer is None else answer + chunk
            if not answer.tool_calls:
                return
            messages = [*messages, answer]
            for call in answer.tool_calls:
                result = await TOOLS[call["name"]].ainvoke({**call, "type": "tool_call"})
                assert isinstance(result, ToolMessage)
                messages.append(result)


PROMPT = ChatPromptTemplate.from_messages([("system", "Be brief."), MessagesPlaceholder("messages")])

chain: Runnable[Any, Any] = PROMPT | RunnableGenerator(loop)


async def spell(_: Any) -> str:
    return '{"city": "Aarhus", "celsius": 11}'


structured: Runnable[Any, Any] = RunnableLambda(spell) | JsonOutputParser()


async def final_text() -> str:
    """What LangChain itself calls the answer to `hello`."""
    return str((await chain.ainvoke({"messages": [("user", "hello")]})).text)


def make() -> Any:
    return chain
