"""The OpenAI-compatible agent against a scripted server, under the driver."""

import asyncio
import json
import sys
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from types import ModuleType
from typing import Any

import pytest

from app.agents.adapters.openai_chat import OpenAIChatAgent
from app.agents.contract import AgentEvent, Message, Prompt, Scope
from app.agents.driver import Bounds
from app.agents.outcome import Cancelled, Completed, Failed
from app.errors import AgentLoadError, StorageUnavailable
from tests.agents.driving import PATIENCE, Recorded, text
from tests.agents.openai_server import (
    OpenAIServer,
    Reply,
    chunk,
    finish,
    fragment,
    reasoning,
    refuses,
    says,
    usage,
)

KEY = "sk-very-secret-key"
MCP_TOOLS = "app.agents.adapters.frameworks.mcp_tools"


@pytest.fixture
async def server() -> AsyncIterator[OpenAIServer]:
    async with OpenAIServer() as server:
        yield server


class Kit:
    """Agents of one test, their connections closed after it."""

    def __init__(self, server: OpenAIServer) -> None:
        self._server = server
        self.agents: list[OpenAIChatAgent] = []

    def agent(self, **options: Any) -> OpenAIChatAgent:
        given = {"model": "m", "base_url": self._server.base_url, "api_key": KEY, **options}
        self.agents.append(OpenAIChatAgent(**given))
        return self.agents[-1]

    def drive(
        self, prompt: Prompt | None = None, scope: Scope | None = None, *, sink: Any = None, **options: Any
    ) -> Recorded:
        agent = self.agent(**options)
        return Recorded(
            lambda: agent.invoke(scope or {"session": "s"}, prompt or {"text": "hi"}),
            sink=sink,
            bounds=Bounds(),
        )


@pytest.fixture
async def kit(server: OpenAIServer) -> AsyncIterator[Kit]:
    kit = Kit(server)
    yield kit
    for agent in kit.agents:
        await agent.aclose()


class Earlier:
    def __init__(self, *messages: Message) -> None:
        self._messages = [*messages]

    async def messages(self) -> list[Message]:
        return self._messages

    async def own_events(self, event_type: str) -> AsyncGenerator[Any, None]:
        raise AssertionError(event_type)
        yield


def without_delta() -> dict[str, Any]:
    """Some gateways send it."""
    return {**chunk(), "choices": [{"index": 0, "delta": None, "finish_reason": None}]}


async def test_text_and_reasoning_are_streamed(kit: Kit, server: OpenAIServer) -> None:
    server.replies(
        says(
            reasoning("hm"),
            reasoning("so", "reasoning"),
            "Hel",
            "lo",
            chunk({}),
            without_delta(),
            finish(),
            usage(),
        )
    )
    recorded = await kit.drive().run()
    assert recorded.outcome == Completed()
    assert recorded.events == [
        {"type": "thinking", "delta": "hm"},
        {"type": "thinking", "delta": "so"},
        text("Hel"),
        text("lo"),
    ]
    assert recorded.drive.violations == []


async def test_the_request_names_model_key_and_prompt_and_no_tools(kit: Kit, server: OpenAIServer) -> None:
    await kit.drive({"text": "hi"}, system_prompt="be brief").run()
    (request,) = server.requests
    assert request.headers["authorization"] == f"Bearer {KEY}"
    assert request.body == {
        "model": "m",
        "stream": True,
        "messages": [{"role": "system", "content": "be brief"}, {"role": "user", "content": "hi"}],
    }


@pytest.mark.parametrize(("words", "parts"), [("look", 1), ("", 0)])
async def test_images_are_data_urls(kit: Kit, server: OpenAIServer, words: str, parts: int) -> None:
    await kit.drive({"text": words, "images": [{"mimeType": "image/png", "data": "aGk="}]}).run()
    content = server.requests[0].body["messages"][0]["content"]
    assert content[:parts] == [{"type": "text", "text": "look"}][:parts]
    assert content[parts:] == [{"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}}]


async def test_the_conversation_so_far_comes_from_the_transcript(kit: Kit, server: OpenAIServer) -> None:
    earlier = Earlier(
        {"role": "user", "content": "weather?"},
        {
            "role": "assistant",
            "content": "",
            "toolCalls": [{"id": "c1", "name": "w", "arguments": {"city": "X"}}],
        },
        {"role": "tool", "content": "sunny", "toolCallId": "c1"},
        {"role": "assistant", "content": "sunny!"},
        {"role": "assistant", "content": ""},
        {"role": "user", "content": "look", "images": [{"mimeType": "image/png", "data": "aGk="}]},
        {
            "role": "assistant",
            "content": "wait",
            "toolCalls": [{"id": "c2", "name": "w", "arguments": '{"a":1}'}],
        },
    )
    await kit.drive({"text": "and now?"}, {"session": "s", "transcript": earlier}).run()

    def call(id_: str, arguments: str) -> dict[str, Any]:
        return {"id": id_, "type": "function", "function": {"name": "w", "arguments": arguments}}

    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}}
    assert server.requests[0].body["messages"] == [
        {"role": "user", "content": "weather?"},
        {"role": "assistant", "content": None, "tool_calls": [call("c1", '{"city":"X"}')]},
        {"role": "tool", "tool_call_id": "c1", "content": "sunny"},
        {"role": "assistant", "content": "sunny!"},
        {"role": "user", "content": [{"type": "text", "text": "look"}, picture]},
        {"role": "assistant", "content": "wait", "tool_calls": [call("c2", '{"a":1}')]},
        {
            "role": "tool",
            "tool_call_id": "c2",
            "content": "The turn was stopped before this tool had a result.",
        },
        {"role": "user", "content": "and now?"},
    ]


async def test_tools_run_and_their_results_go_back_to_the_model(kit: Kit, server: OpenAIServer) -> None:
    server.replies(
        says(
            "Let me see. ",
            fragment(0, id="c1", name="weather"),
            fragment(0, '{"ci'),
            fragment(1, '{"a":', id="c2", name="add"),
            fragment(0, 'ty":"X"}'),
            fragment(1, '2,"b":3}'),
            finish("tool_calls"),
            usage(),
        ),
        says("Done.", finish()),
    )

    def weather(city: str) -> str:
        """Tell the weather."""
        return f"sunny in {city}"

    async def add(a: int, b: int = 1) -> dict[str, int]:
        return {"sum": a + b}

    recorded = await kit.drive(tools=[weather, add]).run()

    assert recorded.outcome == Completed()
    assert recorded.events[:3] == [
        text("Let me see. "),
        {"type": "tool_started", "id": "c1", "name": "weather", "args": {"city": "X"}},
        {"type": "tool_started", "id": "c2", "name": "add", "args": {"a": 2, "b": 3}},
    ]
    ended = sorted(recorded.events[3:5], key=lambda event: str(event["id"]))
    assert ended == [
        {"type": "tool_ended", "id": "c1", "isError": False, "content": "sunny in X"},
        {"type": "tool_ended", "id": "c2", "isError": False, "content": {"sum": 5}},
    ]
    assert recorded.events[5:] == [text("Done.")]
    first, second = (request.body for request in server.requests)
    assert first["tools"][0]["function"] == {
        "name": "weather",
        "description": "Tell the weather.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
            "additionalProperties": False,
        },
    }
    assert [message["role"] for message in second["messages"]] == ["user", "assistant", "tool", "tool"]
    assert second["messages"][1]["content"] == "Let me see. "
    assert [message["content"] for message in second["messages"][2:]] == ["sunny in X", '{"sum":5}']


async def test_calls_of_one_step_run_at_the_same_time(kit: Kit, server: OpenAIServer) -> None:
    server.replies(
        says(fragment(0, id="a", name="meet"), fragment(1, id="b", name="meet"), finish("tool_calls")),
        says("ok", finish()),
    )
    barrier: list[str] = []
    both = asyncio.Event()

    async def meet() -> None:
        barrier.append("here")
        if len(barrier) == 2:
            both.set()
        async with asyncio.timeout(PATIENCE):
            await both.wait()

    recorded = await kit.drive(tools=[meet]).run()
    assert recorded.outcome == Completed()
    assert [event["isError"] for event in recorded.events if event["type"] == "tool_ended"] == [False, False]


async def test_servers_that_give_every_call_the_same_index_or_none_are_understood(
    kit: Kit, server: OpenAIServer
) -> None:
    no_function = chunk({"tool_calls": [{"index": 0, "function": None}]})
    server.replies(
        says(
            fragment(None, "{}", id="a", name="f"),
            fragment(0, "{}", id="b", name="f"),
            no_function,
            finish("stop"),
        ),
        says(fragment(0, "", name="f"), finish("tool_calls")),
        says("ok", finish()),
    )
    recorded = await kit.drive(tools=[named("f")]).run()
    started = [event for event in recorded.events if event["type"] == "tool_started"]
    assert [event["id"] for event in started[:2]] == ["a", "b"]
    assert started[2]["id"].startswith("call_")
    assert started[2]["args"] == {}


def named(name: str) -> Any:
    def function() -> None: ...

    function.__name__ = name
    return function


async def test_a_call_that_can_not_be_made_is_an_error_for_the_model(kit: Kit, server: OpenAIServer) -> None:
    server.replies(
        says(
            fragment(0, "{}", id="a", name="nothing"),
            fragment(1, "{cut", id="b", name="f"),
            finish("tool_calls"),
        ),
        says("I see.", finish()),
    )
    recorded = await kit.drive(tools=[named("f")]).run()
    assert recorded.outcome == Completed()
    assert recorded.events[1]["args"] == "{cut"
    ended = {event["id"]: event for event in recorded.events if event["type"] == "tool_ended"}
    assert ended["a"] == {
        "type": "tool_ended",
        "id": "a",
        "isError": True,
        "content": "there is no tool 'nothing'",
    }
    assert ended["b"]["isError"]
    assert ended["b"]["content"].startswith("bad arguments: arguments: Invalid JSON")


async def test_tools_are_registered_with_a_decorator(kit: Kit, server: OpenAIServer) -> None:
    agent = kit.agent()

    @agent.tool
    def ping() -> str:
        return "pong"

    assert ping() == "pong"
    with pytest.raises(ValueError, match="there is a tool 'ping' already"):
        agent.tool(ping)


async def test_the_model_may_not_call_tools_for_ever(kit: Kit, server: OpenAIServer) -> None:
    again = says(fragment(0, "{}", id="a", name="f"), finish("tool_calls"))
    server.replies(again, again, again)
    recorded = await kit.drive(tools=[named("f")], max_rounds=2).run()
    assert recorded.outcome == Failed(
        "the model still calls tools after 2 rounds", retryable=False, code="too_many_rounds"
    )
    assert len(server.requests) == 2


async def test_an_answer_that_is_too_long_is_completed(kit: Kit, server: OpenAIServer) -> None:
    server.replies(says("and so", finish("length")))
    assert (await kit.drive().run()).outcome == Completed()


async def test_a_filtered_answer_fails(kit: Kit, server: OpenAIServer) -> None:
    server.replies(says("no", finish("content_filter")))
    outcome = (await kit.drive().run()).outcome
    assert outcome == Failed(
        "the provider's content filter stopped the answer", retryable=False, code="content_filtered"
    )


async def test_a_refusal_is_text(kit: Kit, server: OpenAIServer) -> None:
    server.replies(says(chunk({"refusal": "I won't."}), finish()))
    assert (await kit.drive().run()).events == [text("I won't.")]


TEXT = chunk({"content": "Hi"})
LEAKY = f"key {KEY} and sk-another-one-leaked is bad"


@pytest.mark.parametrize(
    ("reply", "code", "retryable"),
    [
        (refuses(400, LEAKY), "bad_provider_request", False),
        (refuses(400, "long", "context_length_exceeded"), "context_length_exceeded", False),
        (refuses(401, LEAKY), "authentication_failed", False),
        (refuses(403, "no"), "authentication_failed", False),
        (refuses(404, "no model"), "bad_provider_request", False),
        (refuses(408, "slow"), "provider_timeout", True),
        (refuses(413, "big"), "context_length_exceeded", False),
        (refuses(429, LEAKY), "rate_limited", True),
        (refuses(429, "pay", "insufficient_quota"), "rate_limited", False),
        (refuses(500, LEAKY), "provider_unavailable", True),
        (refuses(503, "busy"), "provider_unavailable", True),
        (Reply(status=502, error={"weird": [1]}), "provider_unavailable", True),
        (Reply(cut=True), "stream_cut", True),
        (says(cut=True), "stream_cut", True),
        (says(usage()), "stream_cut", True),
        (Reply(('{"error": {"message": "oops", "type": "server_error"}}',)), "provider_unavailable", True),
        (Reply(('{"error": {"message": "oops"}}',)), "provider_error", False),
        (Reply((TEXT, '{"error": {"message": "x", "code": "rate_limit_exceeded"}}')), "rate_limited", False),
        (says("half"), "stream_cut", False),
        (says("half", cut=True), "stream_cut", False),
    ],
)
async def test_failures_are_classified_and_never_name_the_key(
    kit: Kit, server: OpenAIServer, reply: Reply, code: str, retryable: bool
) -> None:
    server.replies(reply)
    outcome = (await kit.drive().run()).outcome
    assert isinstance(outcome, Failed)
    assert (outcome.code, outcome.retryable) == (code, retryable)
    assert KEY not in outcome.details
    assert "sk-" not in outcome.details
    assert len(server.requests) == 1


async def test_a_failure_after_text_is_not_retryable(kit: Kit, server: OpenAIServer) -> None:
    server.replies(
        says("first ", fragment(0, "{}", id="a", name="f"), finish("tool_calls")), refuses(429, "slow down")
    )
    outcome = (await kit.drive(tools=[named("f")]).run()).outcome
    assert outcome == Failed("the provider said: slow down", retryable=False, code="rate_limited")


async def test_without_a_key_a_refusal_is_told_as_well(kit: Kit, server: OpenAIServer) -> None:
    server.replies(refuses(401, "no key"))
    outcome = (await kit.drive(api_key=None).run()).outcome
    assert outcome == Failed(
        "the provider refused the API key", retryable=False, code="authentication_failed"
    )


async def test_a_stream_that_is_no_json_is_the_providers_error(kit: Kit, server: OpenAIServer) -> None:
    server.replies(Reply(("{not json",)))
    outcome = (await kit.drive().run()).outcome
    assert isinstance(outcome, Failed)
    assert outcome.code == "provider_error"
    assert outcome.details.startswith("JSONDecodeError")


async def test_nobody_there_is_unavailable(kit: Kit) -> None:
    outcome = (await kit.drive(base_url="http://127.0.0.1:9/v1").run()).outcome
    assert outcome == Failed(
        "the provider said: Connection error.", retryable=True, code="provider_unavailable"
    )


@pytest.mark.parametrize("reply", [Reply(silent=True), says(hold=True)])
async def test_silence_is_a_timeout(kit: Kit, server: OpenAIServer, reply: Reply) -> None:
    server.replies(reply)
    outcome = (await kit.drive(timeout=0.05).run()).outcome
    assert outcome == Failed("the provider said: Request timed out.", retryable=True, code="provider_timeout")


async def test_a_transcript_that_can_not_be_read_fails_the_turn(kit: Kit) -> None:
    class Broken(Earlier):
        async def messages(self) -> list[Message]:
            raise StorageUnavailable("no database")

    outcome = (await kit.drive(scope={"session": "s", "transcript": Broken()}).run()).outcome
    assert outcome == Failed("no database", retryable=True, code="storage_unavailable")


@pytest.mark.parametrize("reply", [says("Hel", hold=True), Reply(silent=True)])
async def test_a_cancel_hangs_up(kit: Kit, server: OpenAIServer, reply: Reply) -> None:
    server.replies(reply)
    begun = server.asked if reply.silent else asyncio.Event()
    recorded = kit.drive(sink=lambda _: begun.set())
    recorded.drive.start()
    async with asyncio.timeout(PATIENCE):
        await begun.wait()
    await recorded.cancelled()
    async with asyncio.timeout(PATIENCE):
        await server.hung_up.wait()
    assert recorded.outcome == Cancelled()
    assert recorded.drive.violations == []


async def test_a_cancel_while_an_event_is_being_taken_hangs_up(kit: Kit, server: OpenAIServer) -> None:
    server.replies(says("Hel", "lo", hold=True))
    reached, never = asyncio.Event(), asyncio.Event()

    async def wait() -> None:
        reached.set()
        await never.wait()

    recorded = kit.drive(sink=lambda _: wait())
    recorded.drive.start()
    await reached.wait()
    await recorded.cancelled()
    async with asyncio.timeout(PATIENCE):
        await server.hung_up.wait()
    assert recorded.outcome == Cancelled()
    assert recorded.drive.violations == []


async def test_a_cancel_stops_the_tools(kit: Kit, server: OpenAIServer) -> None:
    server.replies(says(fragment(0, "{}", id="a", name="sit"), finish("tool_calls")))
    sits, stopped = asyncio.Event(), asyncio.Event()

    async def sit() -> None:
        try:
            sits.set()
            await asyncio.Event().wait()
        finally:
            stopped.set()

    recorded = kit.drive(tools=[sit])
    recorded.drive.start()
    await sits.wait()
    await recorded.cancelled()
    assert recorded.outcome == Cancelled()
    assert stopped.is_set()
    assert [event["type"] for event in recorded.events] == ["tool_started"]


async def test_the_environments_key_is_not_sent_to_foreign_addresses(
    kit: Kit, server: OpenAIServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    await kit.drive(api_key=None).run()
    assert server.requests[0].headers["authorization"] == "Bearer unset"
    monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
    await kit.drive(api_key=None, base_url=None).run()
    assert server.requests[1].headers["authorization"] == f"Bearer {KEY}"


async def test_its_events_are_strict_json(kit: Kit, server: OpenAIServer) -> None:
    server.replies(
        says(fragment(0, '{"x": NaN}', id="a", name="f"), finish("tool_calls")), says("ok", finish())
    )
    recorded = await kit.drive(tools=[named("f")]).run()
    events: list[AgentEvent] = recorded.events
    assert json.loads(json.dumps(events, allow_nan=False)) == events
    assert events[0]["args"] == '{"x": NaN}'


async def test_a_session_may_choose_another_model(kit: Kit, server: OpenAIServer) -> None:
    agent = kit.agent(other_models=["large"])
    assert [model["id"] for model in agent.allowed_models] == ["m", "large"]
    scopes: list[Scope] = [
        {"session": "s"},
        {"session": "s", "model": {"id": "large", "provider": "openai"}},
    ]
    for scope in scopes:
        assert [event async for event in agent.invoke(scope, {"text": "hi"})][-1]["type"] == "completed"
    assert [request.body["model"] for request in server.requests] == ["m", "large"]


def test_mcp_servers_without_their_extra_say_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, MCP_TOOLS, None)
    with pytest.raises(AgentLoadError, match=r"pip install 'tarko-server\[mcp\]'"):
        OpenAIChatAgent(model="m", mcp_servers=["http://127.0.0.1:1/mcp"])


async def test_mcp_servers_are_connected_for_the_turn(
    kit: Kit, server: OpenAIServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    entered: list[Any] = []

    @asynccontextmanager
    async def connected(servers: Any, functions: Any) -> AsyncIterator[Any]:
        entered.append(servers)
        yield functions
        entered.append("left")

    module = ModuleType(MCP_TOOLS)
    monkeypatch.setattr(module, "connected", connected, raising=False)
    monkeypatch.setitem(sys.modules, MCP_TOOLS, module)
    run = await kit.drive(mcp_servers=["one"]).run()
    assert run.outcome == Completed()
    assert entered == [["one"], "left"]
    assert len(server.requests) == 1
