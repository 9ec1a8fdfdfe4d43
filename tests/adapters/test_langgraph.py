"""LangGraph alone: graphs of every shape, messages told once, and interrupts that span turns and replicas."""

from typing import Any, TypedDict

import pytest
from langchain_core.language_models import FakeListChatModel, FakeMessagesListChatModel
from langchain_core.messages import AIMessage, HumanMessage, RemoveMessage, ToolMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.func import entrypoint
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.types import Command, interrupt

from app.agents.adapters.frameworks.langgraph import INTERRUPT
from app.agents.loading import agent_name
from app.agents.outcome import Completed, Failed
from tests.adapters.driving import Earlier, drive, recognised, said, text_of


def graph_of(*nodes: Any, state: Any = MessagesState, **schemas: Any) -> StateGraph[Any]:
    builder: Any = StateGraph(state, **schemas)
    previous = START
    for node in nodes:
        builder.add_node(node.__name__, node)
        builder.add_edge(previous, node.__name__)
        previous = node.__name__
    return builder  # type: ignore[no-any-return]


async def greet(_: Any) -> dict[str, Any]:
    return {"messages": [AIMessage("Hello by hand.")]}


async def repeat(state: Any) -> dict[str, Any]:
    """Gives back all messages, as some nodes do."""
    return {"messages": state["messages"]}


async def test_a_graph_that_is_not_compiled_is_compiled() -> None:
    agent = recognised(graph_of(greet))
    assert text_of((await drive(agent, "hi").run()).events) == "Hello by hand."
    assert agent_name(agent, "module:graph") == "graph"


async def test_a_compiled_graph_keeps_its_name() -> None:
    assert agent_name(recognised(graph_of(greet).compile(name="helper")), "m:g") == "helper"


async def test_messages_are_told_once_however_often_a_graph_gives_them_back() -> None:
    earlier = Earlier({"role": "user", "content": "before"}, {"role": "assistant", "content": "an answer"})
    run = await drive(recognised(graph_of(greet, repeat)), "hi", transcript=earlier).run()
    assert run.events == said("Hello by hand.")


@pytest.mark.parametrize(
    ("model", "deltas"),
    [
        (FakeListChatModel(responses=["abc"]), ["a", "b", "c"]),
        (FakeMessagesListChatModel(responses=[AIMessage("abc")]), ["abc"]),
    ],
    ids=["streams", "does not stream"],
)
async def test_a_model_is_heard_in_a_subgraph_and_through_its_parent_once(
    model: Any, deltas: list[str]
) -> None:
    async def ask(state: MessagesState) -> dict[str, Any]:
        return {"messages": [await model.ainvoke(state["messages"])]}

    outer: Any = StateGraph(MessagesState)
    outer.add_node("inner", graph_of(ask).compile()).add_edge(START, "inner")
    assert (await drive(recognised(outer), "hi").run()).events == said(*deltas)


class Question(TypedDict):
    question: str


class Answer(TypedDict):
    answer: str


class Both(Question, Answer):
    pass


async def answer(state: Any) -> dict[str, Any]:
    return {"answer": state["question"].upper()}


async def test_one_input_gets_the_text_and_the_output_is_the_result() -> None:
    graph = graph_of(answer, state=Both, input_schema=Question, output_schema=Answer)
    run = await drive(recognised(graph), "hi").run()
    assert (run.events, run.outcome) == ([], Completed({"answer": "HI"}, has_data=True))


async def test_a_graph_with_several_inputs_says_what_to_do() -> None:
    outcome = (await drive(recognised(graph_of(answer, state=Both)), "hi").run()).outcome
    assert isinstance(outcome, Failed)
    assert "not question, answer; give it an `input_schema`" in outcome.details


@pytest.mark.parametrize(
    ("result", "events", "outcome"),
    [
        ("HI", said("HI"), Completed()),
        ({"n": 1}, [], Completed({"n": 1}, has_data=True)),
        (None, [], Completed()),
    ],
)
async def test_an_entrypoint_function_takes_the_text(result: Any, events: Any, outcome: Any) -> None:
    @entrypoint()
    async def flow(text: str) -> Any:
        assert text == "hi"
        return result

    run = await drive(recognised(flow), "hi").run()
    assert (run.events, run.outcome) == (events, outcome)


async def test_tools_are_told_from_commands_lists_and_parallel_calls() -> None:
    async def call(_: Any) -> Any:
        calls = [{"name": "add", "args": {"a": n}, "id": str(n)} for n in (1, 2)]
        return [Command(update={"messages": [AIMessage("", tool_calls=calls)]})]

    async def run(_: Any) -> Any:
        results = [ToolMessage("no", tool_call_id="2", status="error"), ToolMessage("2", tool_call_id="1")]
        return Command(update=[("messages", results)])

    async def tidy(state: Any) -> Any:
        again = ToolMessage("twice", tool_call_id="1")
        stray = ToolMessage("of nobody", tool_call_id="9")
        return {
            "messages": [
                RemoveMessage(state["messages"][0].id),
                HumanMessage("not told"),
                again,
                stray,
                state["messages"][1],
            ]
        }

    turn = await drive(recognised(graph_of(call, run, tidy)), "hi").run()
    assert turn.events == [
        {"type": "tool_started", "id": "1", "name": "add", "args": {"a": 1}},
        {"type": "tool_started", "id": "2", "name": "add", "args": {"a": 2}},
        {"type": "tool_ended", "id": "2", "isError": True, "content": "no"},
        {"type": "tool_ended", "id": "1", "isError": False, "content": "2"},
    ]


async def approve(_: Any) -> dict[str, Any]:
    said = interrupt({"question": "May I?"})
    return {"messages": [AIMessage(f"You said {said}.")]}


async def test_an_interrupt_ends_the_turn_and_the_next_prompt_answers_it_on_any_replica() -> None:
    memory = InMemorySaver()
    one, two = (recognised(graph_of(approve).compile(checkpointer=memory)) for _ in range(2))
    first = await drive(one, "go").run()
    [event] = first.events
    assert (event["type"], event["thread"]) == (INTERRUPT, "turn_go")
    assert [each["value"] for each in event["interrupts"]] == [{"question": "May I?"}]
    assert first.outcome == Completed()
    second = await drive(two, "yes", transcript=Earlier(events=[event])).run()
    assert text_of(second.events) == "You said yes."
    assert second.events[-1] == {"type": INTERRUPT, "thread": "turn_go", "interrupts": []}
    assert memory.storage == {}
    third = await drive(one, "again", transcript=Earlier(events=[event, second.events[-1]])).run()
    assert third.events[0]["thread"] == "turn_again"


async def test_an_interrupt_in_a_subgraph_is_told_once() -> None:
    outer: Any = StateGraph(MessagesState)
    outer.add_node("inner", graph_of(approve).compile()).add_edge(START, "inner")
    run = await drive(recognised(outer.compile(checkpointer=InMemorySaver())), "go").run()
    [event] = run.events
    assert [each["value"] for each in event["interrupts"]] == [{"question": "May I?"}]


async def test_an_interrupt_whose_thread_is_gone_is_forgotten() -> None:
    event = {"type": INTERRUPT, "thread": "turn_go", "interrupts": [{"id": "1", "value": "May I?"}]}
    elsewhere = recognised(graph_of(greet).compile(checkpointer=InMemorySaver()))
    run = await drive(elsewhere, "yes", transcript=Earlier(events=[event])).run()
    assert run.events == said("Hello by hand.")


async def test_a_checkpointer_keeps_nothing_of_a_turn_that_is_over() -> None:
    memory = InMemorySaver()
    await drive(recognised(graph_of(greet).compile(checkpointer=memory)), "hi").run()
    assert memory.storage == {}
