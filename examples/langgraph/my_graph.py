"""A LangGraph graph: LangChain's fake chat model calls a tool, then answers. No network, no key."""

from typing import Any

from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage
from langchain_core.tools import tool
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition


@tool
async def weather(city: str) -> str:
    """The weather in a city."""
    return f"11 degrees in {city}"


async def model(state: MessagesState) -> dict[str, Any]:
    last = state["messages"][-1]
    if last.type == "human":
        call = {"name": "weather", "args": {"city": "Aarhus"}, "id": f"call_{last.id}"}
        return {"messages": [AIMessage("", tool_calls=[call])]}
    fake = GenericFakeChatModel(messages=iter([f"The weather: {last.text}."]))
    return {"messages": [await fake.ainvoke(state["messages"])]}


builder = StateGraph(MessagesState)
builder.add_node("model", model)
builder.add_node("tools", ToolNode([weather]))
builder.add_edge(START, "model")
builder.add_conditional_edges("model", tools_condition)
builder.add_edge("tools", "model")
graph = builder.compile()
