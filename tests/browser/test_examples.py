"""The pages of `examples/` in a real browser, on the server's own origin."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.browser.kit import Page, Route, expect, unable
from tests.browser.processes import Api, ServerProcess
from tests.browser.proxy import open_proxy
from tests.browser.puppet import Stage

EXAMPLES = Path(__file__).parents[2] / "examples"


async def visit(page: Page, url: str, session_id: str, folder: Path) -> None:
    """Open a folder's page as one that is served beside the server."""

    async def serve(route: Route) -> None:
        name = route.request.url.partition("/example/")[2].partition("?")[0] or "index.html"
        kind = "text/javascript" if name.endswith(".js") else "text/html"
        await route.fulfill(body=(folder / name).read_text(), content_type=kind)

    await page.route("**/example/**", serve)
    await page.goto(f"{url}/example/?sessionId={session_id}")


async def ask(page: Page, message: str) -> None:
    await page.get_by_label("Message").fill(message)
    await page.get_by_role("button", name="Send").click()


@pytest.fixture(scope="module")
def react(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The React example, built."""
    if (
        not (EXAMPLES / "react" / "node_modules" / ".bin" / "esbuild").exists()
        or shutil.which("node") is None
    ):
        unable("the React example's packages are not installed: `make node`")
    folder = tmp_path_factory.mktemp("react")
    subprocess.run(
        ["npm", "run", "build", "--", f"--outfile={folder}/dist/app.js"],
        cwd=EXAMPLES / "react",
        check=True,
        capture_output=True,
        timeout=60,
    )
    shutil.copy(EXAMPLES / "react" / "index.html", folder)
    return folder


async def test_the_react_page_shows_a_turn_over_a_cut(
    page: Page, open_server: ServerProcess, stage: Stage, api: Api, react: Path
) -> None:
    session_id = await api.create()
    async with open_proxy(open_server.port) as proxy:
        await visit(page, proxy.url, session_id, react)
        await expect(page.get_by_role("listitem")).to_have_count(1)
        await ask(page, "Hello")
        await expect(page.get_by_role("status")).to_be_visible()
        turn = await stage.turn()
        await turn.text("one ", "two ")
        await expect(page.locator("li", has_text='"delta":"two "')).to_be_visible()
        proxy.cut()
        await turn.complete("three")
        await expect(page.locator("li", has_text="agent_run_end")).to_be_visible()
        await expect(page.get_by_role("status")).to_be_hidden()
        events = await api.events(session_id, deltas=True)
        await expect(page.get_by_role("listitem")).to_have_count(len(events))


async def test_the_socket_page_chats_resumes_and_stops(
    page: Page, open_server: ServerProcess, stage: Stage, api: Api
) -> None:
    session_id = await api.create()
    async with open_proxy(open_server.port) as proxy:
        # Chromium lets only a page that really came from this machine open a socket to it.
        await page.goto(f"{proxy.url}/readyz?sessionId={session_id}")
        await page.set_content((EXAMPLES / "websocket" / "index.html").read_text())
        await page.wait_for_function("last !== undefined")
        await ask(page, "Hello")
        turn = await stage.turn()
        await turn.text("one ", "two ")
        await expect(page.locator(".assistant")).to_have_text("one two ")
        proxy.cut()
        await turn.complete("three")
        await expect(page.locator(".ending")).to_have_text("completed")
        await expect(page.locator(".assistant")).to_have_text("one two three")
        await ask(page, "Again")
        await stage.turn()
        await page.get_by_role("button", name="Stop").click()
        await expect(page.locator(".ending").nth(1)).to_have_text("aborted")
        await expect(page.locator(".user")).to_have_text(["Hello", "Again"])
