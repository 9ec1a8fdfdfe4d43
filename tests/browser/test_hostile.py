"""The console among enemies: files that anybody wrote, odd names, a clock that is off, a hasty hand, a server that lies."""

import asyncio
import json
import re
from typing import Any

import pytest

from tests.browser.console import Console, as_demo
from tests.browser.kit import Page, Route, expect
from tests.browser.processes import Api, ServerProcess
from tests.browser.puppet import Stage

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


@pytest.fixture
def console(page: Page) -> Console:
    return Console(page)


def line(place: int, kind: str, **data: Any) -> str:
    return json.dumps(
        {"id": f"evt_a_{place}", "type": kind, "timestamp": place, "data": data, "metadata": {}}
    )


def turn(place: int, answer: str) -> list[str]:
    """The lines of a turn that begins at that place."""
    return [
        line(place, "user_message", content="Q", role="user"),
        line(place + 1, "agent_run_start", turnId=f"t{place}", agentName="a"),
        line(place + 2, "assistant_message", content=answer, messageId=f"m{place}"),
        line(place + 3, "agent_run_end", turnId=f"t{place}", status="completed", elapsedMs=1),
    ]


async def open_file(page: Page, name: str, *lines: str) -> None:
    body = "\n".join(lines).encode()
    file: Any = {"name": name, "mimeType": "text/plain", "buffer": body}
    await page.locator('input[type="file"]').set_input_files(file)


async def test_a_broken_file_is_told_and_its_events_are_played(
    console: Console, open_server: ServerProcess, api: Api
) -> None:
    page = console.page
    await page.goto(f"{open_server.url}/#{await api.create('Files')}/replay")
    said = page.get_by_role("status").filter(has_text="event")
    await expect(said).to_have_text("1 event")
    bare = '{"id":"evt_a_9","type":"session_start","timestamp":1}'
    await open_file(page, "half.jsonl", *turn(1, "whole"), bare, line(10, "tool_call", id="1", name=7))
    await expect(said).to_have_text("4 events from half.jsonl; 2 lines held no event")
    await expect(console.answers).to_have_text(["whole"])
    await open_file(page, "none.jsonl", "\0", "[[[", bare)
    await expect(page.get_by_role("alert").filter(has_text="none.jsonl")).to_contain_text("has no events")


async def test_each_file_is_played_and_compared_from_its_own_end(
    console: Console, open_server: ServerProcess, api: Api
) -> None:
    page = console.page
    await page.goto(f"{open_server.url}/#{await api.create('Files')}/replay")
    await expect(page.get_by_label("Event", exact=True)).to_be_visible()
    await open_file(page, "same.jsonl", *turn(1, "a"), *turn(5, "b"), *turn(9, "c"))
    await expect(page.locator(".player-event")).to_contain_text("12 of 12")
    await page.get_by_role("button", name="Compare turns").click()
    await expect(page.locator(".diff ins")).to_have_text(["c"])
    await open_file(page, "same.jsonl", *turn(1, "d"), *turn(5, "e"))
    await expect(page.locator(".diff ins")).to_have_text(["e"])
    await page.get_by_role("button", name="Play", exact=True).first.click()
    await open_file(page, "same.jsonl", *turn(1, "f"))
    await expect(page.locator(".player-event")).to_contain_text("4 of 4")


async def test_a_log_that_is_still_being_read_does_not_take_the_place_of_a_file(
    console: Console, open_server: ServerProcess, api: Api
) -> None:
    page = console.page
    opened, asked = asyncio.Event(), asyncio.Event()

    async def late(route: Route) -> None:
        asked.set()
        await opened.wait()
        await route.continue_()

    await page.route("**/sessions/events?*deltas=true*", late)
    await page.goto(f"{open_server.url}/#{await api.create('Slow')}/replay")
    await asked.wait()
    async with page.expect_event("requestfailed", lambda request: "deltas=true" in request.url):
        await open_file(page, "mine.jsonl", *turn(1, "mine"))
    opened.set()
    await expect(page.get_by_role("status").filter(has_text="event")).to_contain_text("mine.jsonl")
    await expect(console.answers).to_have_text(["mine"])


async def test_a_view_that_cannot_be_drawn_leaves_the_page_usable(
    page: Page, open_server: ServerProcess, api: Api
) -> None:
    bad = json.loads(line(2, "tool_call", id="1", name=7))

    async def lie(route: Route) -> None:
        await route.fulfill(json={"events": [bad], "total": 1, "hasMore": False})

    await page.route("**/sessions/events?*", lie)
    session_id = await api.create("Lies")
    await page.goto(f"{open_server.url}/#{session_id}")
    await expect(page.get_by_text("This view can't be drawn.")).to_be_visible()
    await page.unroute("**/sessions/events?*")
    await page.get_by_role("navigation", name="Views").get_by_role("link", name="Events").click()
    await expect(page.locator(".tall .type")).to_have_text(["session_start"])


async def test_a_name_does_not_turn_the_page_around(
    console: Console, open_server: ServerProcess, api: Api
) -> None:
    session_id = await api.create("\u202egnp.exe")
    await console.visit(open_server.url, session_id)
    for shown in (
        console.page.get_by_role("heading", level=1),
        console.sessions.locator("[aria-current] .name"),
    ):
        await expect(shown).to_have_text("□gnp.exe")
    await expect(console.page).to_have_title(re.compile("^□gnp.exe"))
    await console.visit(open_server.url, await api.create("   "))
    await expect(console.page.get_by_role("heading", level=1)).to_have_text("Untitled")


async def test_a_server_that_tells_nothing_of_itself_leaves_its_view_on_the_page(
    page: Page, open_server: ServerProcess
) -> None:
    async def refuse(route: Route) -> None:
        await route.fulfill(status=503, json={"error": "The database is away", "code": "storage_unavailable"})

    async def not_ready(route: Route) -> None:
        await route.fulfill(status=503, json={"problems": {"database": "away"}})

    await page.route("**/api/v1/overview", refuse)
    await page.route("**/api/v1/health", refuse)
    await page.route("**/readyz", not_ready)
    await page.goto(f"{open_server.url}/#server")
    await expect(page.locator(".health")).to_have_text("Not ready: database away")
    await page.unroute("**/readyz")
    await expect(page.locator(".health")).to_have_text("Ready")


async def test_a_year_that_is_being_written_is_no_mistake(
    page: Page, open_server: ServerProcess, api: Api
) -> None:
    await page.goto(f"{open_server.url}/#{await api.create('Years')}/events")
    for field in ("Since", "Until"):
        async with page.expect_response(re.compile(f"{field.lower()}=0")) as asked:
            await page.get_by_label(field).fill("0002-01-01T00:00")
        assert (await asked.value).ok


async def test_a_tag_that_was_given_twice_is_taken_away_again(
    console: Console, open_server: ServerProcess, api: Api
) -> None:
    page = console.page
    await console.visit(open_server.url, await api.create("Twice"))
    for written, shown in (("a, a, b", ["a", "a", "b"]), ("b, a, a", ["b", "a", "a"]), ("b", ["b"])):
        await page.get_by_role("button", name="Rename the session").click()
        await page.get_by_label("Tags, by comma").fill(written)
        await page.keyboard.press("Enter")
        await expect(page.locator(".named .tag")).to_have_text(shown)
        await expect(console.sessions.locator("[aria-current] .tag")).to_have_text(shown)


async def test_a_file_cannot_turn_its_name_around(page: Page, open_server: ServerProcess, api: Api) -> None:
    await page.goto(f"{open_server.url}/#{await api.create('Files')}/replay")
    await expect(page.get_by_label("Event", exact=True)).to_be_visible()
    await open_file(page, "a\u202elnosj.exe", *turn(1, "a"))
    await expect(page.get_by_role("status").filter(has_text="event")).to_have_text(
        "4 events from a□lnosj.exe"
    )


@pytest.mark.parametrize("hours", [5, -5])
async def test_a_clock_that_is_off_stretches_no_turn(
    console: Console, open_server: ServerProcess, stage: Stage, api: Api, hours: int
) -> None:
    page = console.page
    await page.add_init_script(f"const now = Date.now; Date.now = () => now() + {hours} * 3_600_000")
    session_id = await api.create("Clock")
    await api.query(session_id, "Go")
    puppet = await stage.turn()
    await puppet.text("Half")
    await page.goto(f"{open_server.url}/#{session_id}/timeline")
    total = page.locator(".tiles div").filter(has_text="Total").locator("dd")
    await expect(total).to_have_text(re.compile(r"^([2-9]|[1-5]\d)\.\d s$|^\d+ min "))
    await puppet.complete()


async def test_a_broken_picture_hides_no_other(
    console: Console, open_server: ServerProcess, stage: Stage, api: Api
) -> None:
    await console.visit(open_server.url, await api.create("Pictures"))
    await console.send("Show me")
    puppet = await stage.turn()
    content = [{"type": "image", "mimeType": "image/png", "data": data} for data in (PIXEL, "AAAA")]
    await puppet.say("tool_started", id="a", name="draw", args={})
    await puppet.say("tool_ended", id="a", isError=False, content=content)
    await puppet.complete()
    await expect(console.log.get_by_text("that can't be shown")).to_have_count(1)
    await expect(console.log.get_by_role("img", name="Picture 1 of 2")).to_be_visible()


async def test_two_clicks_ask_once(console: Console, open_server: ServerProcess, stage: Stage) -> None:
    page = console.page
    await console.visit(open_server.url)
    await expect(page.get_by_text("The demo agent knows")).to_have_count(
        0
    )  # another agent knows nothing of it
    await as_demo(page)
    await page.reload()
    created: list[str] = []
    page.on("request", lambda request: created.append(request.url) if "/create" in request.url else None)
    await page.get_by_role("button", name="A short answer").dblclick()
    await (await stage.turn()).complete("Hello.")
    await expect(console.answers).to_have_text(["Hello."])
    assert len(created) == 1


async def test_another_picture_is_another_query(
    console: Console, open_server: ServerProcess, api: Api
) -> None:
    page = console.page
    keys: list[str] = []

    async def refuse(route: Route) -> None:
        keys.append(route.request.headers["idempotency-key"])
        await route.abort()

    await page.route("**/query/stream", refuse)
    await console.visit(open_server.url, await api.create("Pictures"))
    for number, name in enumerate(("one.png", "other.png"), 1):
        picture: Any = {"name": name, "mimeType": "image/png", "buffer": name.encode()}
        await page.locator('#composer input[type="file"]').set_input_files(picture)
        await console.send_button.click()
        await expect(console.problem).not_to_be_empty()
        await expect(page.get_by_alt_text("Attached picture 1")).to_be_visible()
        assert len(set(keys)) == number
        await page.get_by_role("button", name="Remove picture 1").click()


async def test_a_search_tells_how_far_it_went(console: Console, open_server: ServerProcess) -> None:
    page = console.page
    item = {
        "agent": "a",
        "tags": [],
        "createdAt": 1,
        "updatedAt": 1,
        "metadata": {},
        "status": {"isProcessing": False, "state": "idle", "queued": 0},
    }

    async def endless(route: Route) -> None:
        count = int(re.search(r"limit=(\d+)", route.request.url)[1])  # type: ignore[index]
        after = int((re.search(r"after=(\d+)", route.request.url) or (0, "0"))[1])
        sessions = [item | {"id": f"sess_{after + at}", "name": f"straw {after + at}"} for at in range(count)]
        await route.fulfill(json={"sessions": sessions, "nextAfter": str(after + count)})

    await page.route("**/api/v1/sessions?*", endless)
    await page.goto(open_server.url)
    await page.get_by_label("Search sessions").fill("needle")
    await expect(console.sessions).to_contain_text("None of the newest 2,000 sessions has these words.")
