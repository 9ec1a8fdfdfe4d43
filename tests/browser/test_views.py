"""The console's other views: the log as a table, a turn as a waterfall, a session played again, the server."""

import json
import re
from pathlib import Path

import pytest

from tests.browser.console import Console
from tests.browser.kit import BrowserContext, Page, expect
from tests.browser.processes import Api, ServerProcess
from tests.browser.puppet import Stage


@pytest.fixture
def console(page: Page) -> Console:
    return Console(page)


async def played(api: Api, stage: Stage, *answers: str, name: str = "Played") -> str:
    """A session in which these were answered, each after a thought and a tool."""
    session_id = await api.create(name)
    for number, answer in enumerate(answers, 1):
        await api.query(session_id, f"Question {number}")
        turn = await stage.turn()
        await turn.say("thinking", delta="Hm.")
        await turn.say("tool_started", id="a", name="look_up", args={"word": "log"})
        await turn.say("tool_ended", id="a", isError=False, content={"found": True})
        await turn.complete(*(f"{word} " for word in answer.split()))
        await api.ended(session_id, number)
    return session_id


async def view(page: Page, name: str) -> None:
    await page.get_by_role("navigation", name="Views").get_by_role("link", name=name).click()


# ── events ───────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_the_log_is_a_table_that_filters_and_stays_live(
    console: Console, open_server: ServerProcess, stage: Stage, api: Api
) -> None:
    session_id = await played(api, stage, "one two three")
    page = console.page
    await console.visit(open_server.url, session_id)
    await view(page, "Events")
    await expect(page.locator("header.bar")).to_have_count(1)
    lasting, whole = [len(await api.events(session_id, deltas=deltas)) for deltas in (False, True)]
    status = page.get_by_role("status").filter(has_text="event")
    await expect(status).to_contain_text(f"{lasting} events without deltas")
    await page.get_by_label("Deltas").check()
    await expect(status).to_contain_text(f"{whole} events found in {whole} events")
    await page.get_by_label("Type").fill("tool_call")
    await expect(page.locator(".tall .row")).to_have_count(1)
    await page.get_by_role("button", name="Clear").click()
    await page.get_by_label("Text").fill("LOOK_up")
    await expect(page.locator(".tall .type")).to_have_text(
        ["tool_call", "tool_execution_start", "tool_result"]
    )
    await page.get_by_role("button", name="Clear").click()
    await page.get_by_label("Order").select_option("Newest first")
    await expect(page.locator(".tall .type").first).to_have_text("agent_run_end")
    await page.get_by_role("button", name="Clear").or_(page.get_by_label("Order")).first.focus()
    await page.get_by_label("Order").select_option("Oldest first")
    await api.query(session_id, "More")
    await (await stage.turn()).complete("Done")
    await api.ended(session_id, 2)
    now = len(await api.events(session_id, deltas=False))
    await expect(status).to_contain_text(f"{now} events without deltas")


async def test_an_event_is_inspected_copied_and_told_in_every_dialect(
    context: BrowserContext, console: Console, open_server: ServerProcess, stage: Stage, api: Api
) -> None:
    await context.grant_permissions(["clipboard-read", "clipboard-write"], origin=open_server.url)
    session_id = await played(api, stage, "one")
    page = console.page
    await page.goto(f"{open_server.url}/#{session_id}/events")
    await page.locator(".tall .row", has_text="tool_call").click()
    inspector = page.get_by_role("region", name="Event", exact=True)
    await expect(inspector.get_by_role("heading", name="tool_call")).to_be_visible()
    await inspector.get_by_role("button", name="Copy curl from here").click()
    await expect(inspector.get_by_role("status")).to_have_text("Copied")
    curl = await page.evaluate("navigator.clipboard.readText()")
    [call] = [e for e in await api.events(session_id, deltas=False) if e["type"] == "tool_call"]
    stream = f"{open_server.url}/api/v1/sessions/events/stream?sessionId={session_id}&after={call['id']}"
    assert curl == f"curl -N '{stream}'"
    await inspector.get_by_role("tab", name="Dialects").click()
    await expect(inspector.locator(".dialects > div").nth(1)).to_contain_text('"toolCallId": "a"')
    await expect(inspector.locator(".dialects > div").nth(2)).to_contain_text("says nothing of it")
    await page.locator(".tall .row", has_text="agent_run_end").click()
    await expect(inspector.locator(".dialects > div").nth(0)).to_contain_text('"elapsedMs"')
    await expect(inspector.locator(".dialects > div").nth(1)).to_contain_text('"idle"')
    await expect(inspector.locator(".dialects > div").nth(2)).to_contain_text("TASK_STATE_COMPLETED")
    await inspector.get_by_role("button", name="Only this turn").click()
    await expect(page.locator(".tall .type").first).to_have_text("user_message")


# ── timeline ─────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_turn_is_a_waterfall_while_it_runs_and_after(
    console: Console, open_server: ServerProcess, stage: Stage, api: Api
) -> None:
    session_id = await api.create("Waterfall")
    page = console.page
    await console.visit(open_server.url, session_id)
    await view(page, "Timeline")
    await expect(page.get_by_text("No turn has begun")).to_be_visible()
    await api.query(session_id, "Look")
    turn = await stage.turn()
    await turn.say("thinking", delta="Hm.")
    await turn.say("tool_started", id="a", name="look_up", args={})
    spans = page.locator(".span")
    await expect(
        page.get_by_role("button", name=re.compile("^tool look_up, .* still running"))
    ).to_be_visible()
    await turn.say("tool_ended", id="a", isError=True, content="dark")
    await expect(page.get_by_role("button", name=re.compile("^tool look_up, .* failed"))).to_be_visible()
    await turn.complete("It ", "is ", "dark.")
    await expect(page.locator(".tiles")).to_contain_text("completed")
    await expect(spans).to_have_count(3)
    await page.reload()
    await expect(spans).to_have_count(3)
    await page.get_by_role("button", name="Zoom in").click()
    await expect(page.locator(".zoom output")).to_have_text(re.compile("^2"))
    await spans.nth(1).click()
    await expect(page.get_by_role("region", name="Event", exact=True)).to_contain_text("tool_call")
    await page.go_back()
    await expect(spans).to_have_count(3)


TIMES_IN_A_ROOM = """width => [...document.querySelectorAll(".waterfall .if-it-fits")].map(place => {
  Object.assign(place.style, {right: "auto", width: `${width}px`});
  const [room, text] = [place, place.firstElementChild].map(element => element.getBoundingClientRect());
  if (text.top >= room.bottom) return "hidden";
  return text.left < room.left - 1 || text.right > room.right + 1 ? "cut" : "shown";
})"""


async def test_a_time_that_has_no_room_is_hidden_and_not_cut(
    page: Page, open_server: ServerProcess, stage: Stage, api: Api
) -> None:
    session_id = await played(api, stage, "the red fox")
    await page.goto(f"{open_server.url}/#{session_id}/timeline")
    await expect(page.locator(".span")).to_have_count(3)
    for width, expected in ((6, "hidden"), (150, "shown")):
        assert set(await page.evaluate(TIMES_IN_A_ROOM, width)) == {expected}
    seen = [how for width in range(150) for how in await page.evaluate(TIMES_IN_A_ROOM, width)]
    assert "cut" not in seen


# ── replay ───────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_session_is_scrubbed_played_compared_and_taken_along(
    console: Console, open_server: ServerProcess, stage: Stage, api: Api, tmp_path: Path
) -> None:
    session_id = await played(api, stage, "the red fox", "the blue fox")
    events = await api.events(session_id, deltas=True)
    page = console.page
    await page.goto(f"{open_server.url}/#{session_id}/replay")
    slider = page.get_by_label("Event", exact=True)
    await expect(slider).to_have_attribute("max", str(len(events)))
    await expect(console.answers).to_have_count(2)
    at = next(n for n, event in enumerate(events) if event["type"] == "assistant_message_delta")
    await slider.fill(str(at + 1))
    await expect(console.answers).to_have_text(["the"])
    await page.get_by_role("button", name="Next").click()
    await expect(console.answers).to_have_text(["the red"])
    await page.get_by_label("Speed").select_option("50")
    await page.get_by_role("button", name="Play", exact=True).last.click()
    await expect(console.answers).to_have_text(["the red fox", "the blue fox"])

    await page.get_by_role("button", name="Compare turns").click()
    await expect(page.locator(".diff del")).to_have_text(["red"])
    await expect(page.locator(".diff ins")).to_have_text(["blue"])

    async with page.expect_download() as download:
        await page.get_by_role("button", name="Export JSONL").click()
    file = tmp_path / "exported.jsonl"
    await (await download.value).save_as(file)
    assert [json.loads(line) for line in file.read_text().splitlines()] == events
    await page.goto(f"{open_server.url}/#{await api.create('Empty')}/replay")
    await expect(page.get_by_role("status").filter(has_text="1 event")).to_have_text("1 event")
    await page.locator('input[type="file"]').set_input_files(file)
    await expect(page.get_by_role("status").filter(has_text="events")).to_contain_text("from exported.jsonl")
    await expect(console.answers).to_have_text(["the red fox", "the blue fox"])


# ── server ───────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_the_server_is_told(console: Console, open_server: ServerProcess) -> None:
    page = console.page
    await console.visit(open_server.url)
    await page.get_by_role("link", name="Server").click()
    await expect(page.locator(".health")).to_have_text("Ready")
    await expect(page.get_by_role("img", name=re.compile("^Events per second"))).to_be_visible()
    await expect(page.locator(".chart strong").first).to_have_text(re.compile("[0-9]"))
    await expect(page.locator(".replicas li")).to_have_count(1)
    await expect(page.get_by_role("row", name=re.compile("^TARKO_DATABASE_URL"))).to_contain_text("set")
    assert open_server.database_url not in await page.locator("main").inner_text()
    for name, path in (("The API, as OpenAPI", "/docs"), ("The official Tarko UI", "/ui/")):
        await expect(page.get_by_role("link", name=name)).to_have_attribute("href", path)


# ── sessions ─────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_sessions_are_searched_renamed_and_show_their_state(
    console: Console, open_server: ServerProcess, stage: Stage, api: Api
) -> None:
    session_id = await api.create("A needle in the list")
    await api.create("Some straw in the list")
    page = console.page
    await console.visit(open_server.url, session_id)
    await page.get_by_label("Search sessions").fill("needle list")
    rows = console.sessions.get_by_role("listitem")
    await expect(rows).to_have_count(1)
    await console.send("Hello")
    turn = await stage.turn()
    await expect(rows).to_contain_text("running")
    await turn.fail("no", code="no")
    await expect(rows).to_contain_text("failed")
    await page.get_by_role("button", name="Rename the session").click()
    await page.get_by_label("Name", exact=True).fill("A pin in the list")
    await page.get_by_label("Tags, by comma").fill("sharp, small")
    await page.get_by_role("button", name="Save").click()
    await expect(page.get_by_role("heading", name="A pin in the list")).to_be_visible()
    await page.get_by_label("Search sessions").fill("sharp pin")
    await expect(rows).to_have_count(1)


async def test_a_follow_up_waits_for_its_turn_and_can_be_taken_back(
    console: Console, open_server: ServerProcess, stage: Stage, api: Api
) -> None:
    await console.visit(open_server.url, await api.create("Queue"))
    await console.send("First")
    turn = await stage.turn()
    await turn.text("One.")
    await expect(console.stop_button).to_be_visible()
    waiting = console.page.get_by_role("list", name="Waiting").get_by_role("listitem")
    for count, text in enumerate(("Second", "Third"), 1):
        await console.send(text)
        await expect(waiting).to_have_count(count)
    await waiting.nth(0).get_by_role("button", name="Remove Second from the queue").click()
    await expect(waiting).to_have_count(1)
    await turn.complete()
    third = await stage.turn()
    assert third.prompt == "Third"
    await expect(waiting).to_have_count(0)
    await third.complete("Three.")
    await expect(console.answers).to_have_text(["One.", "Three."])
