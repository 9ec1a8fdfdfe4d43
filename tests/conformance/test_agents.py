"""The kit finds what is wrong with each misbehaving agent, and nothing wrong with the sound ones."""

from collections.abc import AsyncIterator

import pytest
from anyio.from_thread import start_blocking_portal

from app.agents.adapters.openai_chat import OpenAIChatAgent
from app.agents.contract import AgentEvent, Prompt, Scope
from app.agents.demo import DemoAgent
from app.agents.loading import BareAgent
from app.conformance.agent import examine_agent
from app.conformance.gallery import DUBIOUS, MISBEHAVING, SOUND, Exhibit
from app.conformance.playing import Limits
from app.conformance.report import Verdict
from app.conformance.statements import AGENT
from app.conformance.subject import Conversation, Subject
from tests.agents.openai_server import OpenAIServer

SHORT = Limits(patience=2, stop=0.15, settle=0.1, quiet=0.05)
TALK = Conversation("My name is Ada.", "Who am I?", "Ada")


@pytest.mark.parametrize("exhibit", MISBEHAVING, ids=str)
async def test_each_fault_is_found(exhibit: Exhibit) -> None:
    statements = [statement for statement in AGENT if statement.id in exhibit.breaks]
    report = await examine_agent(Subject(exhibit.make, conversation=TALK, limits=SHORT), statements)
    assert set(report.verdicts().values()) == {Verdict.FAIL}, report


@pytest.mark.parametrize("exhibit", DUBIOUS, ids=str)
async def test_of_what_is_dubious_the_kit_warns(exhibit: Exhibit) -> None:
    statements = [statement for statement in AGENT if statement.id in exhibit.breaks]
    report = await examine_agent(Subject(exhibit.make, limits=SHORT), statements)
    assert set(report.verdicts().values()) == {Verdict.WARN}, report


@pytest.mark.parametrize("exhibit", SOUND, ids=str)
async def test_a_sound_agent_passes(exhibit: Exhibit) -> None:
    report = await examine_agent(Subject(exhibit.make, limits=SHORT))
    assert report.failures == []
    assert Verdict.WARN not in report.verdicts().values(), report


async def test_the_openai_agent_passes() -> None:
    """Its model is in another thread, with a loop of its own: what the kit finds left is the agent's."""
    with (
        start_blocking_portal("asyncio") as portal,
        portal.wrap_async_context_manager(OpenAIServer()) as model,
    ):
        agent = OpenAIChatAgent(model="m", base_url=model.base_url, api_key="k")
        report = await examine_agent(Subject(lambda: agent, limits=SHORT))
        await agent.aclose()
    assert report.failures == []


async def test_the_demo_agent_passes_with_every_prompt() -> None:
    subject = Subject(
        lambda: DemoAgent(delay=0),
        {"text": "thinking tools unknown markdown"},
        failing={"text": "fail"},
        waiting={"text": "hang"},
        limits=SHORT,
    )
    report = await examine_agent(subject)
    assert report.failures == []
    assert {statement for statement, verdict in report.verdicts().items() if verdict is not Verdict.PASS} == {
        "A8",
        "A9",
    }


async def remembers_in_the_log(scope: Scope, prompt: Prompt) -> AsyncIterator[AgentEvent]:
    """An agent that remembers by saying events of its own."""
    notes = [note["note"] async for note in scope["transcript"].own_events("note")]
    yield {"type": "note", "note": prompt["text"]}
    yield {"type": "text", "delta": " ".join(notes) or "nothing yet"}
    yield {"type": "completed"}


async def test_what_an_agent_says_in_events_of_its_own_it_can_read_again() -> None:
    subject = Subject(lambda: BareAgent(remembers_in_the_log), conversation=TALK, limits=SHORT)
    report = await examine_agent(subject, [statement for statement in AGENT if statement.id == "A9"])
    assert report.verdicts() == {"A9": Verdict.PASS}, report
