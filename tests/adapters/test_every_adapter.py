"""What must hold of every adapter, with its SDK's real code and an offline model that all of them share in spirit.

Each subject is loaded by its name, as `serve` does it, and driven as a turn is.
"""

import asyncio
import importlib
from collections.abc import Iterator

import pytest

from app.agents.contract import Agent, AgentEvent
from app.agents.loading import load_agent
from app.agents.outcome import Cancelled, Completed, Failed
from app.settings import Settings
from tests.adapters.brain import REPORT, WEATHER, Gate, gates
from tests.adapters.driving import Earlier, drive, said, text_of
from tests.adapters.subjects.fake_http import open_streams
from tests.agents.driving import nothing_left
from tests.server import soon

SUBJECTS = [
    "functions",
    "langgraph",
    "pydantic_ai",
    "openai_agents",
    "langchain",
    "google_adk",
    "anthropic",
    "mcp",
    "fastagent",
]
WITHOUT_TOOL_ERRORS = {"openai_agents", "google_adk"}
"""Their SDK doesn't say that a tool failed, or fails the run."""

WITHOUT_STRUCTURE = {"mcp"}
"""The chat agent has no structured result."""
REMOTE = {"fastagent"}
"""The conversation is kept elsewhere, and images have no place."""


def all_but(left_out: set[str]) -> pytest.MarkDecorator:
    """For a test of something that the SDKs of some subjects do not have; the set says why."""
    return pytest.mark.parametrize("subject", [each for each in SUBJECTS if each not in left_out])


IMAGE = {"mimeType": "image/png", "data": "AAAA"}


@pytest.fixture(params=SUBJECTS)
def subject(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def agent(subject: str) -> Agent:
    return load(subject)


@pytest.fixture(autouse=True)
def _gates() -> Iterator[None]:
    gates.update(text=Gate(), tool=Gate(), held=Gate())
    yield
    gates.clear()
    assert open_streams == set()


def load(subject: str, name: str = "make") -> Agent:
    return load_agent(f"tests.adapters.subjects.{subject}:{name}", Settings())


def without_ids(events: list[AgentEvent]) -> list[AgentEvent]:
    """The events, each tool's id replaced by the number of its call."""
    numbers: dict[str, int] = {}
    return [
        {**event, "id": numbers.setdefault(event["id"], len(numbers) + 1)} if "id" in event else event
        for event in events
    ]


async def test_text_is_told_as_it_streams_and_is_the_sdks_own(subject: str, agent: Agent) -> None:
    async with nothing_left():
        run = await drive(agent, "hello").run()
    assert run.events == said("Hello", ", ", "world.")
    assert run.outcome == Completed()
    final = importlib.import_module(f"tests.adapters.subjects.{subject}").final_text
    assert text_of(run.events) == await final()


async def test_a_tool_call_is_told_with_its_arguments_and_its_result(agent: Agent) -> None:
    async with nothing_left():
        run = await drive(agent, "weather").run()
    assert without_ids(run.events) == [
        *said("Let me look. "),
        {"type": "tool_started", "id": 1, "name": "weather", "args": {"city": "Aarhus"}},
        {"type": "tool_ended", "id": 1, "isError": False, "content": WEATHER},
        *said("It is ", f"{WEATHER}."),
    ]
    assert run.outcome == Completed()


@all_but(WITHOUT_TOOL_ERRORS)
async def test_a_tool_that_fails_is_told_so(subject: str, agent: Agent) -> None:
    run = await drive(agent, "broken").run()
    assert run.events[0]["type"] == "tool_started"
    assert run.events[1]["isError"] is True
    assert "out of order" in str(run.events[1]["content"])
    assert run.outcome == Completed()


async def test_thinking_is_kept_apart_from_the_answer(agent: Agent) -> None:
    run = await drive(agent, "think").run()
    thoughts: list[AgentEvent] = [{"type": "thinking", "delta": each} for each in ("Two and ", "two.")]
    assert run.events == [*thoughts, *said("Four", ".")]


@all_but(WITHOUT_STRUCTURE)
async def test_a_structured_result_is_the_data_and_no_text(subject: str) -> None:
    run = await drive(load(subject, "structured"), "report").run()
    assert run.outcome == Completed(REPORT, has_data=True)
    assert text_of(run.events) == ""


@all_but(REMOTE)
async def test_images_reach_the_model(subject: str, agent: Agent) -> None:
    run = await drive(agent, "look", prompt={"images": [IMAGE]}).run()
    assert text_of(run.events) == "I see image/png."


@pytest.mark.parametrize(
    ("prompt", "retryable", "code"),
    [
        ("fail 429", True, "rate_limited"),
        ("fail 503", True, "provider_unavailable"),
        ("fail 401", False, "authentication_failed"),
        ("fail 400", False, "bad_provider_request"),
        ("fail late 503", False, "provider_unavailable"),
    ],
)
async def test_a_providers_error_fails_the_turn(
    agent: Agent, prompt: str, retryable: bool, code: str
) -> None:
    async with nothing_left():
        run = await drive(agent, prompt).run()
    assert run.events == (said("Well") if "late" in prompt else [])
    assert isinstance(run.outcome, Failed)
    assert (run.outcome.retryable, run.outcome.code) == (retryable, code)


@pytest.mark.parametrize(("prompt", "place"), [("hang", "text"), ("tool", "tool")])
async def test_an_abort_stops_the_model_or_the_tool_and_leaves_nothing(
    agent: Agent, prompt: str, place: str
) -> None:
    gate = gates[place]
    async with nothing_left():
        run = drive(agent, prompt)
        run.drive.start()
        await soon(gate.reached.wait())
        assert not gate.left.is_set()
        await run.cancelled()
        assert gate.left.is_set()
        assert open_streams == set()
    assert run.outcome == Cancelled()
    assert not run.drive.abandoned
    assert run.drive.violations == []


async def test_an_abort_while_the_agent_waits_for_its_reader_leaves_nothing(agent: Agent) -> None:
    """It is closed at a `yield` then, not cancelled at an `await`."""
    told = asyncio.Event()

    async def never_taken(_: AgentEvent) -> None:
        told.set()
        await asyncio.Event().wait()

    async with nothing_left():
        run = drive(agent, "held")
        run._also = never_taken
        run.drive.start()
        await soon(told.wait())
        await run.cancelled()
        assert gates["held"].left.is_set()
        assert open_streams == set()
    assert run.events == said("Wait")
    assert run.drive.violations == []


async def test_a_stop_before_the_first_step_asks_nothing_of_the_model(agent: Agent) -> None:
    async with nothing_left():
        run = drive(agent, "hang")
        run.drive.start()
        await run.cancelled()
    assert not gates["text"].reached.is_set()
    assert run.events == []


@all_but(REMOTE)
async def test_the_conversation_so_far_reaches_the_model(subject: str, agent: Agent) -> None:
    earlier = Earlier(
        {"role": "user", "content": "one", "images": [{"mimeType": "image/png", "data": "AAAA"}]},
        {"role": "user", "content": "more"},
        {
            "role": "assistant",
            "content": "Let me look.",
            "toolCalls": [{"id": "call_1", "name": "weather", "arguments": {"city": "Aarhus"}}],
        },
        {"role": "tool", "content": WEATHER, "toolCallId": "call_1"},
        {
            "role": "assistant",
            "content": "",
            "toolCalls": [{"id": "call_2", "name": "weather", "arguments": {"city": "Aarhus"}}],
        },
        {"role": "tool", "content": "interrupted", "toolCallId": "call_2"},
        {"role": "assistant", "content": "two"},
        {"role": "assistant", "content": "three"},
    )
    run = await drive(agent, "history", transcript=earlier).run()
    shown = (
        f"user: one | user: more | assistant: Let me look. | tool: {WEATHER} | tool: interrupted | "
        "assistant: two | assistant: three | user: history"
    )
    assert text_of(run.events) == f"I saw 3 prompts: {shown}"


@all_but(REMOTE)
async def test_turns_at_the_same_time_are_not_mixed(subject: str, agent: Agent) -> None:
    runs = [
        drive(agent, "history", session=f"s{n}", turn=f"t{n}", transcript=Earlier({"role": "user", "content": f"{n}"}))
        for n in range(5)
    ]  # fmt: skip
    for run in runs:
        run.drive.start()
    for number, run in enumerate(runs):
        await run.over()
        assert f"user: {number} | user: history" in text_of(run.events)


async def test_unknown_keys_are_tolerated(agent: Agent) -> None:
    run = await drive(agent, "hello", prompt={"mood": "good"}, weather={"is": "fine"}).run()
    assert run.outcome == Completed()
