"""The console for everybody: by keyboard alone, and as axe judges every view, light and dark."""

from pathlib import Path
from typing import Any, Literal

import pytest

from tests.browser.console import Console, as_demo
from tests.browser.kit import Browser, Page, expect, unable
from tests.browser.processes import ROOT, Api, ServerProcess
from tests.browser.puppet import Stage

AXE = ROOT / "web" / "node_modules" / "axe-core" / "axe.min.js"
VIEWS = ["", "{id}", "{id}/timeline", "{id}/events", "{id}/replay", "server"]
RUN = """async () => {
  const { violations } = await axe.run(document, { resultTypes: ["violations"] });
  return violations
    .filter(({ impact }) => impact === "serious" || impact === "critical")
    .flatMap(({ id, nodes }) => nodes.map(({ html, failureSummary }) => `${id}: ${html} ${failureSummary}`));
}"""


def axe_source(path: Path = AXE) -> str:
    if not path.is_file():
        unable("axe-core is not installed: run `make web`")
    return path.read_text()


@pytest.fixture(scope="module")
async def session_id(open_server: ServerProcess, stage: Stage) -> str:
    """A session that has everything that is drawn."""
    api = Api(open_server.url)
    session_id = await api.create("Everything that is drawn")
    await api.query(session_id, "All of it")
    turn = await stage.turn()
    await turn.say("thinking", delta="Hm.")
    await turn.say("tool_started", id="a", name="look_up", args={"word": "log"})
    await turn.say("tool_ended", id="a", isError=False, content={"found": True})
    await turn.say("tool_started", id="b", name="look_up", args={})
    await turn.say("tool_ended", id="b", isError=True, content="dark")
    await turn.say("retrying", attempt=2, reason="busy")
    await turn.say("progress", step=1)
    await turn.text(
        "# Title\n\n- item\n\n| a | b |\n|---|---|\n| `c` | [d](https://e.example) |\n\n```py\n1\n```\n"
    )
    await turn.fail("enough", code="enough", retryable=True)
    await api.ended(session_id)
    await api.query(session_id, "And more")
    await (await stage.turn()).complete("Done.")
    await api.ended(session_id, 2)
    await api.close()
    return session_id


@pytest.mark.parametrize("colours", ["light", "dark"])
async def test_axe_finds_nothing_serious(
    browser: Browser, open_server: ServerProcess, session_id: str, colours: Literal["light", "dark"]
) -> None:
    source = axe_source()
    page = await browser.new_page(color_scheme=colours, reduced_motion="reduce")
    found: dict[str, Any] = {}
    for view in VIEWS:
        address = view.format(id=session_id)
        if view == "":
            await as_demo(page)
        await page.goto(f"{open_server.url}/#{address}")
        await expect(page.locator("#sessions li").first).to_be_visible()
        await settled(page, view)
        await page.evaluate(source)
        problems = await page.evaluate(RUN)
        if problems:
            found[view] = problems
    await page.close()
    assert found == {}


@pytest.mark.parametrize("colours", ["light", "dark"])
async def test_axe_finds_nothing_serious_at_the_login(
    browser: Browser, guarded_server: ServerProcess, colours: Literal["light", "dark"]
) -> None:
    page = await browser.new_page(color_scheme=colours)
    await page.goto(f"{guarded_server.url}/login")
    await page.get_by_label("Token").fill("wrong")
    await page.get_by_role("button", name="Log in").click()
    await expect(page.get_by_role("alert")).to_be_visible()
    await page.evaluate(axe_source())
    assert await page.evaluate(RUN) == []
    await page.close()


async def settled(page: Page, view: str) -> None:
    """Wait until the view has what it shows, with something unfolded."""
    marks = {
        "": ".suggestions",
        "{id}": ".ending[data-status=completed]",
        "{id}/timeline": ".span",
        "{id}/events": ".tall .type",
        "{id}/replay": ".player .ending",
        "server": ".chart polyline",
    }
    await expect(page.locator(marks[view]).first).to_be_attached()
    if view == "{id}":
        for summary in await page.locator("#log summary").all():
            await summary.click()
    if view == "{id}/events":
        await page.locator(".tall .row", has_text="user_message").first.click()
        await page.get_by_role("tab", name="Dialects").click()
        await expect(page.locator(".dialects pre").nth(1)).to_be_visible()
    if view == "{id}/replay":
        await page.get_by_role("button", name="Compare turns").click()
        await expect(page.locator(".diff")).to_be_visible()


async def focused(page: Page) -> str:
    name: str = await page.evaluate(
        "document.activeElement.getAttribute('aria-label') || document.activeElement.textContent.trim()"
    )
    return name


async def tab_to(page: Page, name: str, key: str = "Tab") -> None:
    """Press the key until what has that name has the focus."""
    for _ in range(120):
        await page.keyboard.press(key)
        if (await focused(page)).startswith(name):
            return
    pytest.fail(f"the keyboard does not reach {name!r}")


async def test_the_keyboard_alone_is_enough(page: Page, open_server: ServerProcess, stage: Stage) -> None:
    console = Console(page)
    await console.visit(open_server.url)
    await expect(console.field).to_be_focused()
    await page.keyboard.type("By keyboard")
    await page.keyboard.press("Enter")
    turn = await stage.turn()
    await turn.say("thinking", delta="Hm.")
    await turn.text("Half")
    await expect(console.answers).to_have_text("Half")
    await tab_to(page, "Stop")
    await page.keyboard.press("Enter")
    await expect(console.ending("Stopped")).to_be_visible()
    await tab_to(page, "Thought", "Shift+Tab")
    await page.keyboard.press("Enter")
    await expect(page.get_by_text("Hm.")).to_be_visible()
    await tab_to(page, "Events", "Shift+Tab")
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("grid")).to_be_visible()
    await tab_to(page, "Events:")
    await page.keyboard.press("End")
    await expect(page.get_by_role("region", name="Event", exact=True)).to_contain_text("agent_run_end")
    await tab_to(page, "Close the event")
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("grid")).to_be_focused()
    await tab_to(page, "Rename the session", "Shift+Tab")
    for leave in ("Enter", "Escape"):
        await page.keyboard.press("Enter")
        await expect(page.get_by_label("Name", exact=True)).to_be_focused()
        await page.keyboard.press(leave)
        await expect(page.get_by_role("button", name="Rename the session")).to_be_focused()
    await tab_to(page, "Delete By keyboard", "Shift+Tab")
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("dialog")).to_be_visible()
    await page.keyboard.press("Escape")
    await expect(page.get_by_role("dialog")).to_be_hidden()
    await expect(page.get_by_role("button", name="Delete By keyboard")).to_be_focused()
    await tab_to(page, "Colours", "Tab")
    await page.keyboard.press("Enter")
    await expect(page.locator("html")).to_have_attribute("data-theme", "light")
    await page.keyboard.press("Enter")
    await expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    await page.reload()
    await expect(page.locator("html")).to_have_attribute("data-theme", "dark")


async def test_nothing_is_out_of_reach_on_a_page_of_320_pixels(
    browser: Browser, open_server: ServerProcess, session_id: str
) -> None:
    page = await browser.new_page(viewport={"width": 320, "height": 568})
    await as_demo(page)
    await page.goto(f"{open_server.url}/")
    await expect(page.locator(".suggestions")).to_be_visible()
    top = await page.locator(".home").evaluate(
        "(home) => (home.scrollTop = 0, home.firstElementChild.offsetTop - home.offsetTop)"
    )
    assert top >= 0
    for view, scrolled in ((f"{session_id}/replay", ".views"), ("server", ".server")):
        await page.goto(f"{open_server.url}/#{view}")
        await expect(page.locator(scrolled)).to_be_visible()
        assert await page.locator(scrolled).evaluate("(node) => node.scrollWidth - node.clientWidth") == 0
    await page.goto(f"{open_server.url}/#{session_id}")
    await expect(page.locator("#connection")).to_have_text("Live")
    await page.get_by_role("button", name="Rename the session").click()
    box = await page.get_by_label("Name", exact=True).bounding_box()
    assert box is not None
    assert box["width"] >= 140
    await page.close()


async def test_high_contrast_shows_what_is_chosen_and_the_bars(
    browser: Browser, open_server: ServerProcess, session_id: str
) -> None:
    page = await browser.new_page(forced_colors="active")
    await page.goto(f"{open_server.url}/#{session_id}/timeline")

    async def grounds(selector: str) -> set[str]:
        await expect(page.locator(selector).first).to_be_visible()
        return set(
            await page.locator(selector).evaluate_all(
                "(nodes) => nodes.map((node) => getComputedStyle(node).backgroundColor)"
            )
        )

    assert not await grounds(".span") & await grounds(".lane-scroll, body")
    borders = await page.locator(".views a").evaluate_all(
        "(nodes) => nodes.map((node) => getComputedStyle(node).borderBottomColor)"
    )
    assert borders.count(borders[1]) == 1
    assert not await grounds("#sessions a[aria-current]") & await grounds("#sessions a:not([aria-current])")
    await page.goto(f"{open_server.url}/#{session_id}/events")
    await page.locator(".tall .row").nth(1).click()
    assert not await grounds('.tall [aria-selected="true"]') & await grounds('.tall [aria-selected="false"]')
    assert not await grounds('[role="tab"][aria-selected="true"]') & await grounds(
        '[role="tab"][aria-selected="false"]'
    )
    await page.close()
