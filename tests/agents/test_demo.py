"""The demo agent's words."""

import asyncio
import logging
from itertools import pairwise

import pytest

from app.agents.collect import collect
from app.agents.contract import AgentEvent, ImageRef, Scope
from app.agents.demo import DemoAgent
from app.agents.driver import Bounds
from app.agents.options import options_of
from app.agents.outcome import Cancelled, Completed, Failed
from tests.agents.driving import Recorded

COMPLETED = {"type": "completed"}


async def said(prompt: str, images: list[ImageRef] | None = None) -> list[AgentEvent]:
    agent = DemoAgent(delay=0, slow_delay=0)
    return [event async for event in agent.invoke({"session": "s"}, {"text": prompt, "images": images or []})]


def answer(events: list[AgentEvent]) -> str:
    return "".join(event["delta"] for event in events if event["type"] == "text")


async def test_any_other_prompt_is_greeted_and_its_beginning_repeated() -> None:
    events = await said("what   is this?")
    assert "“what is this?”" in answer(events)
    assert {event["type"] for event in events[:-1]} == {"text"}
    assert events[-1] == COMPLETED
    assert len(events) > 5


async def test_a_long_prompt_is_repeated_in_part() -> None:
    assert f"“{'x' * 60}…”" in answer(await said("x" * 100))


async def test_its_settings_do_what_words_do() -> None:
    agent = DemoAgent(delay=0, slow_delay=0)
    scope: Scope = {"session": "s", "settings": {"thinking": True, "pace": "slow"}}
    assert (await anext(agent.invoke(scope, {"text": "hi"})))["type"] == "thinking"
    assert options_of(agent).settings({}) == {"thinking": False, "pace": "normal"}
    lasted = DemoAgent(delay=0, slow_delay=10)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.02):
            await anext(lasted.invoke(scope, {"text": "hi"}))


async def test_nothing_said_is_said_so() -> None:
    assert "You said nothing." in answer(await said(" "))


async def test_words_are_whole_and_case_does_not_matter() -> None:
    assert (await said("THINKING, please"))[0]["type"] == "thinking"
    assert {event["type"] for event in await said("toolshed failure unthinking")} == {"text", "completed"}


async def test_two_tools_start_before_either_ends() -> None:
    events = [event for event in await said("tools") if event["type"].startswith("tool_")]
    assert [event["type"] for event in events] == ["tool_started", "tool_started", "tool_ended", "tool_ended"]
    assert {event["id"] for event in events[:2]} == {event["id"] for event in events[2:]}


async def test_markdown_has_headings_a_table_code_and_a_list() -> None:
    text = answer(await said("markdown"))
    assert all(piece in text for piece in ("# A", "|---|", "```python", "- sessions"))


async def test_images_are_counted_and_measured() -> None:
    images: list[ImageRef] = [
        {"mimeType": "image/png", "data": "aGk="},
        {"mimeType": "image/gif", "data": "aGV5"},
    ]
    text = answer(await said("look", images))
    assert text.startswith("I received 2 images: image/png of 2 bytes, image/gif of 3 bytes.")
    assert "I received 1 image: " in answer(await said("look", images[:1]))
    assert answer(await said("images")).startswith("I received no image.")


async def test_long_is_two_hundred_tokens() -> None:
    assert len([event for event in await said("long") if event["type"] == "text"]) == 200


async def test_unknown_is_an_event_of_an_unknown_type_with_nested_data() -> None:
    assert {
        "type": "demo_progress",
        "step": 1,
        "data": {"done": [1, None], "of": {"steps": 2}},
    } in await said("unknown")


async def test_fail_fails_after_some_text() -> None:
    events = await said("fail")
    assert answer(events)
    assert events[-1] == {
        "type": "failed",
        "details": "the demo agent failed, as it was told",
        "retryable": True,
        "code": "demo_failure",
    }


async def test_crash_raises_after_some_text() -> None:
    recorded = await Recorded(lambda: DemoAgent(delay=0).invoke({"session": "s"}, {"text": "crash"})).run()
    assert answer(recorded.events)
    assert isinstance(recorded.outcome, Failed)
    assert recorded.outcome.code == "agent_exception"


async def test_hang_sits_in_a_tool_until_it_is_cancelled(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    hangs = asyncio.Event()
    recorded = Recorded(
        lambda: DemoAgent(delay=0).invoke({"session": "s"}, {"text": "hang"}),
        sink=lambda event: hangs.set() if event["type"] == "tool_started" else None,
        bounds=Bounds(),
    )
    recorded.drive.start()
    await hangs.wait()
    await asyncio.sleep(0)
    await recorded.cancelled()
    assert recorded.outcome == Cancelled()
    assert [event["type"] for event in recorded.events] == ["tool_started"]
    assert "hanging tool was stopped" in caplog.text


async def test_words_combine_in_a_fixed_order() -> None:
    types = [event["type"] for event in await said("fail long unknown tools images thinking markdown")]
    order = [first for first, second in pairwise([*types, ""]) if first != second]
    assert order == ["thinking", "text", "tool_started", "tool_ended", "demo_progress", "text", "failed"]


async def test_slow_takes_its_time_with_each_token(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []

    async def sleep(delay: float) -> None:
        pauses.append(delay)

    monkeypatch.setattr(asyncio, "sleep", sleep)
    await collect(DemoAgent().invoke({"session": "s"}, {"text": "slow"}))
    assert set(pauses) == {0.1}
    pauses.clear()
    await collect(DemoAgent().invoke({"session": "s"}, {"text": "hello"}))
    assert set(pauses) == {0.015}


async def test_the_demo_is_a_good_agent_under_the_driver() -> None:
    recorded = await Recorded(lambda: DemoAgent(delay=0).invoke({"session": "s"}, {"text": "tools"})).run()
    assert recorded.outcome == Completed()
    assert recorded.drive.violations == []
