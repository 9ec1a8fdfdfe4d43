"""The transcript: the conversation so far, folded from the log."""

from functools import partial
from typing import Any

import pytest

from app.agents.contract import AgentEvent
from app.agents.translate import Translation
from app.events.ending import Ending
from app.events.envelope import Envelope, Placed, place
from app.events.ids import new_turn_id
from app.log.store import Slice
from app.turns import transcript
from app.turns.transcript import LogTranscript, fold
from tests.log.storing import draft, memory_stores, of_turn


def turn(content: Any, *events: AgentEvent, ending: Ending | None = None) -> list[Envelope]:
    """The events of a turn in which the agent said this."""
    turn_id = new_turn_id()
    translation = Translation(turn_id, "demo")
    drafts = translation.begin(content)
    for event in events:
        drafts += translation.take(event)
    drafts += translation.end(ending or Ending.completed())
    return place("s", turn_id, drafts, Placed(0, 0, 0, len(drafts)))


def text(delta: str) -> AgentEvent:
    return {"type": "text", "delta": delta}


def call(tool: str, args: Any = None) -> AgentEvent:
    return {"type": "tool_started", "id": tool, "name": "search", "args": args}


def result(tool: str, content: Any = "found") -> AgentEvent:
    return {"type": "tool_ended", "id": tool, "content": content}


def calls(*tools: str) -> list[dict[str, Any]]:
    return [{"id": tool, "name": "search", "arguments": {}} for tool in tools]


def test_what_user_and_agent_said_is_told_in_order() -> None:
    events = turn(
        "hi", {"type": "thinking", "delta": "hm"}, text("hel"), text("lo"), {"type": "plan"}
    ) + turn("bye")
    assert fold(events) == [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": "hello"},
        {"role": "user", "content": "bye"},
    ]


def test_a_users_images_are_told() -> None:
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}}
    [user] = fold(turn([{"type": "text", "text": "look"}, image]))
    assert user == {"role": "user", "content": "look", "images": [{"mimeType": "image/png", "data": "aGk="}]}


def test_a_call_goes_to_the_message_before_it_and_its_result_follows() -> None:
    assert fold(turn("q", text("let me"), call("a", {"x": 1}), result("a", {"y": 2}), text("so")))[1:] == [
        {
            "role": "assistant",
            "content": "let me",
            "toolCalls": [{"id": "a", "name": "search", "arguments": {"x": 1}}],
        },
        {"role": "tool", "content": '{"y":2}', "toolCallId": "a"},
        {"role": "assistant", "content": "so"},
    ]


def test_parallel_calls_share_a_message_and_later_ones_do_not() -> None:
    events = turn(
        "q", call("a"), call("b"), result("b", "B"), call("c"), result("a", "interrupted"), result("c"), call("d"), result("d")
    )  # fmt: skip
    assert fold(events)[1:] == [
        {"role": "assistant", "content": "", "toolCalls": calls("a", "b", "c")},
        {"role": "tool", "content": "interrupted", "toolCallId": "a"},
        {"role": "tool", "content": "B", "toolCallId": "b"},
        {"role": "tool", "content": "found", "toolCallId": "c"},
        {"role": "assistant", "content": "", "toolCalls": calls("d")},
        {"role": "tool", "content": "found", "toolCallId": "d"},
    ]


def test_text_between_running_tools_has_its_own_calls() -> None:
    events = turn("q", call("a"), text("meanwhile"), call("b"), result("a"), result("b"))
    assert [(m["role"], m["content"], m.get("toolCalls")) for m in fold(events)[1:]] == [
        ("assistant", "", calls("a")),
        ("tool", "found", None),
        ("assistant", "meanwhile", calls("b")),
        ("tool", "found", None),
    ]


def test_a_turn_that_was_aborted_keeps_what_it_had_said_and_every_call_has_an_answer() -> None:
    events = turn("q", text("par"), call("a"), ending=Ending.aborted())
    assert fold(events)[1:] == [
        {"role": "assistant", "content": "par", "toolCalls": calls("a")},
        {"role": "tool", "content": "aborted", "toolCallId": "a"},
    ]


def test_a_call_whose_turn_is_still_without_its_ending_is_interrupted() -> None:
    events = [event for event in turn("q", call("a")) if event.type != "tool_result"]
    assert fold(events)[-1] == {"role": "tool", "content": "interrupted", "toolCallId": "a"}


def test_a_result_of_no_call_is_not_told() -> None:
    events = [event for event in turn("q", call("a"), result("a")) if event.type != "tool_call"]
    assert fold(events) == [{"role": "user", "content": "q"}]


async def test_the_transcript_ends_at_its_place_and_leaves_out_clients_events(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(transcript, "Slice", partial(Slice, limit=2))
    stores = memory_stores()
    session, turn_id = await stores.new_session(), "turn_x"
    await stores.append(session, draft("user_message", {"content": "a client's own"}))
    translation = Translation(turn_id, "demo")
    await stores.turns.start(turn_id, session, translation.begin("q"), owner="me", trace_id=None)
    said = [*translation.take(text("a")), *translation.take(text("b")), *translation.end(Ending.completed())]
    await stores.events.write([of_turn(session, turn_id, 3, said, ending=Ending.completed())])
    head = await stores.events.head(session)
    assert head is not None
    told = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "ab"}]
    assert await LogTranscript(stores.events, session, head.place).messages() == told
    assert await LogTranscript(stores.events, session, head.place - 2).messages() == told[:1]
    assert await LogTranscript(stores.events, session, 2).messages() == []


async def test_an_agent_finds_its_own_events_again_and_no_forged_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(transcript, "Slice", partial(Slice, limit=2))
    stores = memory_stores()
    session, turn_id = await stores.new_session(), "turn_x"
    await stores.append(session, draft("plan", {"forged": True}))
    translation = Translation(turn_id, "demo")
    await stores.turns.start(turn_id, session, translation.begin("q"), owner="me", trace_id=None)
    said = [
        *translation.take({"type": "plan", "step": 1}),
        *translation.take(text("a")),
        *translation.take({"type": "plan", "step": 2}),
        *translation.end(Ending.completed()),
    ]
    await stores.events.write([of_turn(session, turn_id, 3, said, ending=Ending.completed())])
    head = await stores.events.head(session)
    assert head is not None
    found = LogTranscript(stores.events, session, head.place)
    assert [data async for data in found.own_events("plan")] == [{"step": 1}, {"step": 2}]
    assert [data async for data in found.own_events("other")] == []
    assert [data async for data in LogTranscript(stores.events, session, 4).own_events("plan")] == []
