"""What each framework has of its own, beside what holds of all of them."""

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

import psutil
import pytest
from agents import Agent as SDKAgent
from agents import GuardrailFunctionOutput, input_guardrail
from agents.testing import ScriptedModel, assistant_message, function_call
from google.adk.agents import LlmAgent, ParallelAgent
from google.adk.apps import App
from google.adk.models import LlmResponse
from google.genai import types
from langchain_core.language_models import FakeListChatModel, FakeMessagesListChatModel
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate, MessagesPlaceholder
from langchain_core.runnables import RunnableLambda, RunnableParallel
from langchain_core.tools import tool
from mcp import MCPError
from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from mcp_types import ListToolsResult, Tool
from openai.types.responses import ResponseRefusalDeltaEvent
from pydantic import Field
from pydantic_ai import Agent as PydanticAgent
from pydantic_ai import NativeOutput, TextOutput
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.models.test import TestModel

from app.agents.adapters.frameworks import google_adk as google_adk_adapter
from app.agents.adapters.frameworks import mcp_tools
from app.agents.adapters.frameworks import openai_agents as openai_agents_adapter
from app.agents.adapters.frameworks.anthropic import AnthropicAgent
from app.agents.adapters.frameworks.mcp_tools import connected
from app.agents.adapters.openai_chat import OpenAIChatAgent
from app.agents.adapters.python_tools import PythonTools, ToolResult
from app.agents.contract import Message
from app.agents.loading import agent_name
from app.agents.outcome import Completed, Failed
from tests.adapters.brain import Call, Say, Think
from tests.adapters.driving import Earlier, drive, recognised, said, text_of
from tests.adapters.subjects import anthropic, google_adk, mcp, openai_agents
from tests.adapters.subjects.fake_http import Provider
from tests.agents.driving import Recorded, nothing_left
from tests.server import soon


def failed(run: Recorded) -> tuple[str | None, bool, str]:
    assert isinstance(run.outcome, Failed)
    return run.outcome.code, run.outcome.retryable, run.outcome.details


# ── PydanticAI ───────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_its_own_test_model_is_served() -> None:
    def ping(word: str) -> str:
        return f"{word}!"

    run = await drive(recognised(PydanticAgent(TestModel(), name="helper", tools=[ping])), "hi").run()
    assert [event["type"] for event in run.events[:2]] == ["tool_started", "tool_ended"]
    assert text_of(run.events) == '{"ping":"a!"}'


async def test_the_system_prompt_is_put_before_the_conversation_once() -> None:
    async def count(messages: list[Any], _: Any) -> AsyncIterator[str]:
        parts = [part for message in messages for part in message.parts]
        yield str([part.content for part in parts if part.part_kind == "system-prompt"])

    agent = recognised(PydanticAgent(FunctionModel(stream_function=count), system_prompt="Be brief."))
    answered: Message = {"role": "assistant", "content": "yes"}
    for earlier in (Earlier(), Earlier({"role": "user", "content": "before"}, answered)):
        assert text_of((await drive(agent, "x", transcript=earlier).run()).events) == "['Be brief.']"


async def test_an_output_function_makes_text_of_what_was_not_streamed() -> None:
    def shout(text: str) -> str:
        return text.upper()

    agent = PydanticAgent(TestModel(custom_output_text="hi"), output_type=[TextOutput(shout)])
    run = await drive(recognised(agent), "x").run()
    assert (run.events, run.outcome) == (said("HI"), Completed())


async def test_an_output_functions_text_is_told_after_a_tool() -> None:
    def shout(text: str) -> str:
        return text.upper()

    def ping(word: str) -> str:
        return f"{word}!"

    model = TestModel(custom_output_text="hi")
    run = await drive(
        recognised(PydanticAgent(model, output_type=[TextOutput(shout)], tools=[ping])), "x"
    ).run()
    assert [event["type"] for event in run.events] == ["tool_started", "tool_ended", "text"]
    assert text_of(run.events) == "HI"


async def test_text_that_spells_the_output_is_not_told() -> None:
    async def spell(*_: Any) -> AsyncIterator[str]:
        yield json.dumps(mcp_report)

    mcp_report = {"city": "Aarhus", "celsius": 11}
    model = FunctionModel(stream_function=spell, profile={"supports_json_schema_output": True})
    agent = PydanticAgent(model, output_type=NativeOutput(openai_agents.Report))
    run = await drive(recognised(agent), "x").run()
    assert (run.events, run.outcome) == ([], Completed(mcp_report, has_data=True))


# ── OpenAI Agents SDK ────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_scripted_model_and_a_call_whose_arguments_are_no_json() -> None:
    model = ScriptedModel([[function_call("nothing", "{bad", call_id="1")], [assistant_message("done")]])
    run = await drive(recognised(SDKAgent("helper", model=model)), "x").run()
    assert failed(run)[:2] == ("agent_exception", False)


@pytest.mark.parametrize(
    ("arguments", "expected"), [('{"a": 1}', {"a": 1}), ("", {}), ("{bad", "{bad"), (None, {})]
)
def test_arguments_are_json_or_what_the_model_wrote(arguments: Any, expected: Any) -> None:
    assert openai_agents_adapter._parsed(arguments) == expected


async def test_a_whole_message_of_a_model_that_does_not_stream_is_told() -> None:
    class Whole(openai_agents.BrainModel):
        async def stream_response(self, *_: Any, **__: Any) -> AsyncIterator[Any]:
            yield openai_agents._completed([assistant_message("all at once")])

    agent = recognised(SDKAgent("helper", model=Whole()))
    assert (await drive(agent, "x").run()).events == said("all at once")
    assert agent_name(agent, "m:a") == "helper"


async def test_a_whole_message_after_a_streamed_one_is_told() -> None:
    class Mixed(openai_agents.BrainModel):
        async def stream_response(self, *given: Any, **_: Any) -> AsyncIterator[Any]:
            if len(given[1]) > 1:
                yield openai_agents._completed([assistant_message("all at once")])
                return
            yield openai_agents.streamed("Let me see. ")
            call = function_call("weather", '{"city": "A"}', call_id="1")
            yield openai_agents._completed([assistant_message("Let me see. "), call])

    run = await drive(recognised(SDKAgent("x", model=Mixed(), tools=openai_agents.agent.tools)), "x").run()
    assert text_of(run.events) == "Let me see. all at once"


async def test_a_refusal_is_told_as_it_streams() -> None:
    class Refuses(openai_agents.BrainModel):
        async def stream_response(self, *_: Any, **__: Any) -> AsyncIterator[Any]:
            for delta in ("I can", "not."):
                yield ResponseRefusalDeltaEvent(
                    **openai_agents.PLACE, delta=delta, type="response.refusal.delta"
                )
            yield openai_agents._completed([])

    run = await drive(recognised(SDKAgent("x", model=Refuses())), "x").run()
    assert run.events == said("I can", "not.")


async def test_a_stopped_runs_slow_clean_up_is_waited_for() -> None:
    ends: list[str] = []

    class Slow(openai_agents.BrainModel):
        async def stream_response(self, *_: Any, **__: Any) -> AsyncIterator[Any]:
            try:
                yield openai_agents.streamed("a")
                await asyncio.Event().wait()
            finally:
                for _step in range(50):
                    with contextlib.suppress(asyncio.CancelledError):  # the SDK cancels it more than once
                        await asyncio.sleep(0)
                ends.append("clean")

    told = asyncio.Event()
    run = drive(recognised(SDKAgent("x", model=Slow())), "x")
    run._also = lambda _: told.set()
    run.drive.start()
    await soon(told.wait())
    await run.cancelled()
    assert ends == ["clean"]


async def test_a_run_without_an_end_and_a_guardrail_fail_with_a_code() -> None:
    @input_guardrail
    async def never(*_: Any) -> GuardrailFunctionOutput:
        return GuardrailFunctionOutput(output_info=None, tripwire_triggered=True)

    class Busy(openai_agents.BrainModel):
        async def stream_response(self, *_: Any, **__: Any) -> AsyncIterator[Any]:
            yield openai_agents._completed([function_call("weather", '{"city": "A"}', call_id="1")])

    busy = recognised(SDKAgent("busy", model=Busy(), tools=openai_agents.agent.tools))
    assert failed(await drive(busy, "x").run())[0] == "too_many_rounds"
    guarded = SDKAgent("guarded", model=openai_agents.BrainModel(), input_guardrails=[never])
    assert failed(await drive(recognised(guarded), "x").run())[0] == "content_filtered"


async def test_a_handoff_changes_who_speaks() -> None:
    spelling = SDKAgent("spelling", model=openai_agents.ReportModel(), output_type=openai_agents.Report)
    first = [[function_call("transfer_to_spelling", "{}", call_id="1")]]
    run = await drive(
        recognised(SDKAgent("first", model=ScriptedModel(first), handoffs=[spelling])), "x"
    ).run()
    assert text_of(run.events) == ""
    assert run.outcome == Completed({"city": "Aarhus", "celsius": 11}, has_data=True)


# ── LangChain ────────────────────────────────────────────────────────────────────────────────────────────────────────


async def echo(value: Any) -> str:
    return str(value)


MODEL = FakeListChatModel(responses=["abc"])
HISTORY = Earlier({"role": "user", "content": "before"})


@pytest.mark.parametrize(
    ("runnable", "events", "outcome"),
    [
        (MODEL, said("a", "b", "c"), Completed()),
        (FakeMessagesListChatModel(responses=[AIMessage("abc")]), said("abc"), Completed()),
        (RunnableLambda(HumanMessage), [], Completed()),
        (MODEL.bind(stop=["x"]), said("a", "b", "c"), Completed()),
        (
            ChatPromptTemplate.from_messages([MessagesPlaceholder("history"), ("user", "{question}")])
            | MODEL
            | StrOutputParser(),
            said("a", "b", "c"),
            Completed(),
        ),
        (RunnableLambda(echo), said("hi"), Completed()),
        (RunnableLambda(lambda text: text), said("hi"), Completed()),
        (RunnableLambda(lambda _: 7), [], Completed(7, has_data=True)),
    ],
    ids=[
        "model",
        "model that does not stream",
        "not an answer",
        "bound model",
        "chain",
        "function",
        "synchronous function",
        "number",
    ],
)
async def test_a_runnable_gets_what_it_takes(runnable: Any, events: Any, outcome: Any) -> None:
    run = await drive(recognised(runnable), "hi", transcript=HISTORY).run()
    assert (run.events, run.outcome) == (events, outcome)


async def test_a_prompts_history_gets_the_earlier_messages_and_its_question_the_text() -> None:
    prompt = ChatPromptTemplate.from_messages([MessagesPlaceholder("history"), ("user", "{question}")])
    chain = prompt | RunnableLambda(lambda value: " / ".join(each.text for each in value.to_messages()))
    run = await drive(recognised(chain.with_config(run_name="x")), "now", transcript=HISTORY).run()
    assert text_of(run.events) == "before / now"


async def test_pieces_of_a_dict_are_added_up() -> None:
    chain = RunnableParallel({"a": RunnableLambda(echo), "b": RunnableLambda(echo)})
    run = await drive(recognised(chain), "hi").run()
    assert run.outcome == Completed({"a": "hi", "b": "hi"}, has_data=True)


async def test_a_chain_with_two_texts_says_what_to_do() -> None:
    chain = ChatPromptTemplate.from_template("{one} {two}") | MODEL
    assert "not one, two; wrap it" in failed(await drive(recognised(chain), "hi").run())[2]


async def test_a_tool_that_raises_is_told_before_the_run_fails() -> None:
    @tool
    async def breaks(word: str) -> str:
        """Break."""
        raise ValueError(word)

    async def use(text: str) -> Any:
        return await breaks.ainvoke(text)

    run = await drive(recognised(RunnableLambda(use)), "now").run()
    assert [event["type"] for event in run.events] == ["tool_started", "tool_ended"]
    assert run.events[1]["isError"] is True
    assert failed(run)[2] == "ValueError: now"


# ── Google ADK ───────────────────────────────────────────────────────────────────────────────────────────────────────


class Answers(google_adk.BrainModel):
    """Gives these responses."""

    responses: list[Any] = Field(default_factory=list)

    async def generate_content_async(self, *_: Any, **__: Any) -> AsyncGenerator[LlmResponse, None]:
        for each in self.responses:
            yield each


def adk(*responses: Any, **options: Any) -> LlmAgent:
    return LlmAgent(name="helper", model=Answers(model="answers", responses=[*responses]), **options)


async def test_an_app_is_served_under_its_agents_name() -> None:
    agent = recognised(App(name="app", root_agent=google_adk.root_agent))
    assert (await drive(agent, "hello").run()).events == said("Hello", ", ", "world.")
    assert agent_name(agent, "m:a") == "brain"


@pytest.mark.parametrize(
    ("code", "expected"),
    [("429", ("rate_limited", True)), ("SAFETY", ("agent_failed", False))],
)
async def test_an_error_event_fails_the_turn(code: str, expected: tuple[str, bool]) -> None:
    run = await drive(recognised(adk(LlmResponse(error_code=code, error_message="no"))), "x").run()
    assert failed(run) == (*expected, f"{code}: no")


async def test_an_error_that_is_not_the_last_word_fails_nothing() -> None:
    """A plugin may mend it."""
    mended = [LlmResponse(error_code="429", error_message="no", partial=True), *spoken("fine")]
    run = await drive(recognised(adk(*mended)), "x").run()
    assert (run.events, run.outcome) == (said("fine"), Completed())


async def test_what_a_model_says_whole_after_a_streamed_message_is_told() -> None:
    streamed = google_adk._response([types.Part(text="One. ")], partial=True)
    run = await drive(recognised(adk(streamed, *spoken("One. ", "Two."))), "x").run()
    assert run.events == said("One. ", "Two.")


def spoken(*texts: str) -> list[Any]:
    """Whole messages."""
    return [google_adk._response([types.Part(text=each)]) for each in texts]


def test_a_tool_that_answers_with_nothing_but_an_error_has_failed() -> None:
    for response, is_error in (({"error": "no"}, True), ({"error": None, "x": 1}, False), ({}, False)):
        part = types.Part(function_response=types.FunctionResponse(id="1", name="t", response=response))
        (event,) = google_adk_adapter._tool(part)
        assert (event["isError"], event["content"]) == (is_error, response)


async def test_a_result_that_does_not_parse_is_told_as_it_is() -> None:
    assert google_adk_adapter._parsed("{bad") == "{bad"


@pytest.mark.filterwarnings("ignore:ParallelAgent is deprecated")
async def test_agents_that_answer_side_by_side_are_each_told_once() -> None:
    def answers(name: str) -> LlmAgent:
        pieces = [google_adk._response([types.Part(text=each)], partial=True) for each in (name, "!")]
        whole = google_adk._response([types.Part(text=f"{name}!")])
        return LlmAgent(name=name, model=Answers(model=name, responses=[*pieces, whole]))

    both = ParallelAgent(name="both", sub_agents=[answers("a"), answers("b")])
    run = await drive(recognised(both), "x").run()
    assert sorted(text_of(run.events)) == ["!", "!", "a", "b"]


async def test_pieces_of_a_result_and_of_a_call_are_waited_for() -> None:
    call = types.Part(function_call=types.FunctionCall(id="1", name="nothing", args={}))
    spelled = [types.Part(text='{"city": "A", "celsius": 1}')]
    responses = [
        google_adk._response([call], partial=True),
        google_adk._response([types.Part(text='{"city"')], partial=True),
        google_adk._response(spelled),
    ]
    run = await drive(recognised(adk(*responses, output_schema=google_adk.Report)), "x").run()
    assert (run.events, run.outcome) == ([], Completed({"city": "A", "celsius": 1}, has_data=True))


# ── Anthropic ────────────────────────────────────────────────────────────────────────────────────────────────────────


def claude(*answers: list[bytes], **options: Any) -> tuple[AnthropicAgent, list[dict[str, Any]]]:
    """An agent whose provider gives these answers, and the requests that it gets."""
    requests: list[dict[str, Any]] = []

    async def answer(body: dict[str, Any]) -> AsyncGenerator[bytes, None]:
        requests.append(body)
        for each in answers[len(requests) - 1]:
            yield each

    return AnthropicAgent(model="m", client=anthropic.client(Provider(answer)), **options), requests


async def spelled(*script: Any, reason: str | None = None) -> list[bytes]:
    whole = [each async for each in anthropic.spelled([*script])]
    return [each.replace(b"end_turn", reason.encode()) if reason else each for each in whole]


async def test_options_and_the_sessions_model_reach_the_provider() -> None:
    agent, requests = claude(await spelled(Say("hi")), thinking=1_024, max_tokens=2_048, other_models=["n"])
    model = {"id": "n", "provider": "anthropic"}
    assert (await drive(agent, "x", model=model).run()).events == said("hi")
    [request] = requests
    assert request["model"] == "n"
    assert request["max_tokens"] == 2_048
    assert request["thinking"] == {"type": "enabled", "budget_tokens": 1_024}
    assert [each["id"] for each in agent.allowed_models] == ["m", "n"]
    await agent.aclose()


async def test_a_paused_turn_goes_on_with_its_signed_thoughts() -> None:
    agent, requests = claude(
        await spelled(Think("hm"), Say("a"), reason="pause_turn"), await spelled(Say("b"))
    )
    assert text_of((await drive(agent, "x").run()).events) == "ab"
    assert [block["type"] for block in requests[1]["messages"][1]["content"]] == ["thinking", "text"]


async def test_a_refusal_a_cut_and_endless_calls_fail_with_a_code() -> None:
    agent, _ = claude(await spelled(Say("a"), reason="refusal"))
    assert failed(await drive(agent, "x").run())[0] == "content_filtered"
    agent, _ = claude([anthropic.sse(anthropic.START)])
    assert failed(await drive(agent, "x").run())[:2] == ("stream_cut", True)
    call = await spelled(Call("nothing", {}))
    agent, requests = claude(call, call, max_rounds=2)
    assert failed(await drive(agent, "x").run())[0] == "too_many_rounds"
    assert "there is no tool" in requests[1]["messages"][2]["content"][0]["content"]


async def test_an_error_within_the_stream_is_known_by_its_type() -> None:
    for kind, expected in {
        "authentication_error": ("authentication_failed", False),
        "permission_error": ("authentication_failed", False),
        "rate_limit_error": ("rate_limited", True),
        "overloaded_error": ("provider_unavailable", True),
        "api_error": ("provider_unavailable", True),
        "timeout_error": ("provider_timeout", True),
        "request_too_large": ("context_length_exceeded", False),
        "unheard_of": ("agent_exception", False),
    }.items():
        error = anthropic.sse({"type": "error", "error": {"type": kind, "message": "no"}})
        agent, _ = claude([error])
        assert failed(await drive(agent, "x").run())[:2] == expected


async def test_an_empty_text_is_not_sent_back() -> None:
    """The provider says such texts before a call, and refuses them in a request."""
    agent, requests = claude(await spelled(Say(""), Call("nothing", {})), await spelled(Say("hi")))
    await drive(agent, "x").run()
    assert [block["type"] for block in requests[1]["messages"][1]["content"]] == ["tool_use"]


def test_a_client_of_its_own_retries_nothing_and_tells_another_address_no_key(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "of-the-environment")
    own, elsewhere = AnthropicAgent(model="m"), AnthropicAgent(model="m", base_url="http://127.0.0.1:1")
    assert (own._client.api_key, own._client.max_retries) == ("of-the-environment", 0)
    assert (elsewhere._client.api_key, elsewhere._client.max_retries) == ("unset", 0)


async def test_a_call_that_has_no_result_gets_one() -> None:
    agent, requests = claude(await spelled(Say("hi")))
    call = {"id": "1", "name": "weather", "arguments": {}}
    earlier = Earlier(
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "", "toolCalls": [call]},
        {"role": "assistant", "content": ""},
    )
    await drive(agent, "b", transcript=earlier).run()
    roles = [message["role"] for message in requests[0]["messages"]]
    assert roles == ["user", "assistant", "user"]
    assert requests[0]["messages"][2]["content"][0]["is_error"] is True


# ── MCP ──────────────────────────────────────────────────────────────────────────────────────────────────────────────


def toolbox(name: str = "box") -> MCPServer:
    server = MCPServer(name)

    @server.tool()
    async def count(to: int, context: Context[Any, Any]) -> dict[str, int]:
        """Count."""
        await context.report_progress(1, to, "one")
        await context.report_progress(2, to)
        await context.report_progress(3)
        return {"counted": to}

    return server


async def test_progress_is_told_and_structured_content_is_the_result() -> None:
    told: list[str] = []
    async with nothing_left(), connected([toolbox()], PythonTools()) as tools:
        assert [tool.name for tool in tools] == ["count"]
        assert await tools.call("count", '{"to": 2}', told.append) == ToolResult({"counted": 2})
        assert await tools.call("count", '{"to": 2}') == ToolResult({"counted": 2})
        for arguments in ("{bad", '{"to": "x"}'):
            assert (await tools.call("count", arguments)).is_error
        bad = ToolResult("bad arguments: they must be an object", is_error=True)
        assert await tools.call("count", "[1]") == bad
        assert (await tools.call("nothing", "{}")).is_error
    assert told == ["one", "2 of 2", "3"]


async def test_a_call_that_its_server_refuses_is_told_to_the_model() -> None:
    class Refusing:
        async def call_tool(self, *_: Any, **__: Any) -> Any:
            raise MCPError(-32603, "not today")

    tools = mcp_tools._AllTools(PythonTools())
    tools.add(Tool(name="a", input_schema={}), Refusing())  # type: ignore[arg-type]
    assert await tools.call("a", "{}") == ToolResult("MCPError: not today", is_error=True)


async def test_a_second_tool_of_a_name_fails_the_turn() -> None:
    agent = OpenAIChatAgent(model="m", client=mcp.client(), mcp_servers=[toolbox(), toolbox("other")])
    assert failed(await drive(agent, "hello").run())[0] == "bad_tools"


async def test_a_server_that_can_not_be_reached_fails_the_turn_and_may_be_asked_again() -> None:
    agent = OpenAIChatAgent(model="m", client=mcp.client(), mcp_servers=["/nonexistent/server --flag"])
    async with nothing_left():
        code, retryable, details = failed(await drive(agent, "hello").run())
    assert (code, retryable) == ("tools_unavailable", True)
    assert "/nonexistent/server" in details


async def test_all_pages_of_a_servers_tools_are_read() -> None:
    pages = {
        None: ListToolsResult(tools=[Tool(name="a", input_schema={})], next_cursor="2"),
        "2": ListToolsResult(tools=[Tool(name="b", input_schema={})]),
    }

    class Paged:
        async def list_tools(self, cursor: str | None) -> Any:
            return pages[cursor]

    paged: Any = Paged()
    assert [each.name for each in await mcp_tools._listed(paged)] == ["a", "b"]


STDIO = """
from langchain_core.tools import tool
from mcp.server import MCPServer
server = MCPServer("box")

@server.tool()
def add(a: int, b: int) -> int:
    return a + b

server.run()
"""


async def test_a_servers_process_lives_as_long_as_the_turn(tmp_path: Any) -> None:
    script = tmp_path / "box.py"
    script.write_text(STDIO)
    async with connected([f"{sys.executable} {script}"], PythonTools()) as tools:
        assert await tools.call("add", '{"a": 1, "b": 2}') == ToolResult(3)
        [child] = [each for each in psutil.Process().children() if str(script) in each.cmdline()]
    assert not child.is_running()
