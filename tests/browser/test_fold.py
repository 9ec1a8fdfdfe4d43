"""The page's fold, over the real events of a turn that has everything: it may be told anything twice."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.browser.kit import Browser, Page
from tests.browser.processes import Api, ServerProcess
from tests.browser.puppet import Stage

FOLD = """async (events) => {
  const { emptyConversation, fold } = await import("/assets/fold.js");
  const conversation = emptyConversation();
  for (const event of events) fold(conversation, event);
  const { items, lastId, agent, runningTurn, isOver } = conversation;
  return { items, lastId, agent, runningTurn, isOver };
}"""

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


@pytest.fixture(scope="module")
async def page(browser: Browser, open_server: ServerProcess) -> AsyncIterator[Page]:
    """A page of the server, for its modules alone."""
    page = await browser.new_page()
    await page.goto(open_server.url)
    yield page
    await page.close()


async def test_events_seen_before_change_nothing(page: Page, history: tuple[Events, Events]) -> None:
    whole, _ = history
    once = await page.evaluate(FOLD, whole)
    assert await page.evaluate(FOLD, whole + whole) | {"lastId": None} == once | {"lastId": None}
    stuttering = [event for at in range(len(whole)) for event in whole[max(0, at - 3) : at + 1]]
    assert (await page.evaluate(FOLD, stuttering))["items"] == once["items"]


async def test_a_settled_turn_is_the_same_without_its_deltas(
    page: Page, history: tuple[Events, Events]
) -> None:
    whole, lasting = history
    assert len(lasting) < len(whole)
    assert await page.evaluate(FOLD, lasting) == await page.evaluate(FOLD, whole)


async def test_a_replay_that_broke_off_goes_on_with_deltas(
    page: Page, history: tuple[Events, Events]
) -> None:
    whole, lasting = history
    once = await page.evaluate(FOLD, whole)
    for at in range(len(lasting)):
        resumed = whole[whole.index(lasting[at]) + 1 :]
        assert await page.evaluate(FOLD, lasting[: at + 1] + resumed) == once


async def test_it_knows_the_conversation(page: Page, history: tuple[Events, Events]) -> None:
    told = await page.evaluate(FOLD, history[0])
    kinds = [item["kind"] for item in told["items"]]
    assert kinds == [
        *("user", "thinking", "message", "thinking", "tool", "tool", "other", "message", "error", "ending"),
        *("user", "message", "ending"),
    ]
    assert [item["text"] for item in told["items"] if item["kind"] == "message"] == [
        "I look. Now.",
        "I saw it.",
        "Done.",
    ]
    assert told["runningTurn"] is None
    assert told["lastId"] == history[0][-1]["id"]
