"""The console's model: its own tests, and its fold over the real events of a turn that has everything."""

from typing import Any

import pytest

from tests.browser.model import folded, run_own_tests
from tests.browser.processes import Api, ServerProcess
from tests.browser.puppet import Stage

Events = list[dict[str, Any]]


@pytest.fixture(scope="module")
async def history(open_server: ServerProcess, stage: Stage) -> tuple[Events, Events]:
    """A session's events, with deltas and without."""
    api = Api(open_server.url)
    session_id = await api.create()
    await api.query(session_id, "Everything")
    turn = await stage.turn()
    await turn.say("thinking", delta="Hm. ")
    await turn.say("thinking", delta="Well.")
    await turn.text("I look. ")
    await turn.say("thinking", delta="Again.")
    await turn.text("Now.")
    await turn.say("tool_started", id="a", name="look", args={"at": [1, None]})
    await turn.say("tool_started", id="b", name="look", args={})
    await turn.say("tool_ended", id="b", isError=True, content="dark")
    await turn.say("tool_ended", id="a", isError=False, content={"seen": True})
    await turn.say("progress", step=1)
    await turn.text("I ", "saw ", "it.")
    await turn.fail("enough", code="enough")
    await api.ended(session_id)
    await api.query(session_id, "More")
    await (await stage.turn()).complete("Done.")
    await api.ended(session_id, 2)
    whole = await api.events(session_id, deltas=True)
    lasting = await api.events(session_id, deltas=False)
    await api.close()
    return whole, lasting


def shown(conversation: Any) -> Any:
    """What is shown: all but where the events lay, which is another where deltas are gone."""
    blocks = [
        [{key: value for key, value in item.items() if key not in ("place", "at")} for item in block["items"]]
        for block in conversation["blocks"]
    ]
    return conversation | {"blocks": blocks}


async def test_the_models_own_tests_pass() -> None:
    status, said = run_own_tests()
    assert status == 0, said
    assert "# pass 0" not in said


async def test_events_seen_before_change_nothing(history: tuple[Events, Events]) -> None:
    whole, _ = history
    stuttering = [event for at in range(len(whole)) for event in whole[max(0, at - 3) : at + 1]]
    once, twice, stuttered = folded(whole, whole + whole, stuttering)
    assert once == twice == stuttered


async def test_a_settled_turn_is_the_same_without_its_deltas(history: tuple[Events, Events]) -> None:
    whole, lasting = history
    assert len(lasting) < len(whole)
    once, settled = folded(whole, lasting)
    assert shown(settled) == shown(once)


async def test_a_replay_that_broke_off_goes_on_with_deltas(history: tuple[Events, Events]) -> None:
    whole, lasting = history
    broken = [lasting[: at + 1] + whole[whole.index(lasting[at]) + 1 :] for at in range(len(lasting))]
    once, *resumed = [shown(each) for each in folded(whole, *broken)]
    assert all(each == once for each in resumed)


async def test_it_knows_the_conversation(history: tuple[Events, Events]) -> None:
    [told] = folded(history[0])
    items = [item for block in told["blocks"] for item in block["items"]]
    assert [item["kind"] for item in items] == [
        *("user", "thinking", "message", "thinking", "tool", "tool", "other", "message", "error", "ending"),
        *("user", "message", "ending"),
    ]
    assert [item["text"] for item in items if item["kind"] == "message"] == [
        "I look. Now.",
        "I saw it.",
        "Done.",
    ]
    assert "runningTurn" not in told
    assert told["lastPlace"] == int(history[0][-1]["id"].rpartition("_")[2])
