"""A browser user with tokens on: led to the login, let in by a cookie, and no token in any address."""

import shutil
from urllib.parse import urlsplit

import pytest

from tests.browser.conftest import ARGUMENTS
from tests.browser.console import Console, Transport
from tests.browser.kit import Browser, BrowserContext, Page, expect
from tests.browser.processes import Api, ServerProcess
from tests.browser.puppet import Stage
from tests.browser.test_protocol_snippet import saw, seen, send, visit

ALICE = "correct-horse-battery-staple"
BOB = "another-token-of-some-length"


async def log_in(page: Page, token: str) -> None:
    await page.get_by_label("Token").fill(token)
    await page.get_by_role("button", name="Log in").click()


async def enter(page: Page, server: ServerProcess, token: str) -> None:
    """Log in at the login's own page."""
    await page.goto(f"{server.url}/login")
    await log_in(page, token)
    await page.wait_for_url(f"{server.url}/")


@pytest.fixture
async def addresses(context: BrowserContext) -> list[str]:
    """Every address that the visitor's pages ask for."""
    asked: list[str] = []
    context.on("request", lambda request: asked.append(request.url))
    context.on("page", lambda page: page.on("websocket", lambda socket: asked.append(socket.url)))
    return asked


@pytest.mark.parametrize("transport", ["Event stream", "WebSocket"])
async def test_a_visitor_logs_in_and_chats(
    context: BrowserContext,
    addresses: list[str],
    guarded_server: ServerProcess,
    stage: Stage,
    transport: Transport,
) -> None:
    page = await context.new_page()
    await page.goto(guarded_server.url)
    await page.wait_for_url("**/login?next=*")
    await log_in(page, "not-the-token")
    await expect(page.get_by_role("alert")).to_have_text("The token is not known here.")
    await log_in(page, ALICE)
    await page.wait_for_url(f"{guarded_server.url}/")

    console = Console(page)
    await console.choose(transport)
    await console.send("Hello")
    turn = await stage.turn()
    await turn.complete("Hello, ", "Alice.")
    await expect(console.answers).to_have_text("Hello, Alice.")
    await expect(console.connection).to_have_text("Live")

    assert any(urlsplit(address).path == "/ws" for address in addresses) == (transport == "WebSocket")
    assert not any(ALICE in address or "not-the-token" in address for address in addresses)
    (cookie,) = await context.cookies()
    assert cookie["httpOnly"]
    assert cookie["sameSite"] == "Strict"
    assert ALICE not in cookie["value"]
    assert await page.evaluate("document.cookie") == ""


async def test_the_login_leads_back_to_the_session(
    page: Page, guarded_server: ServerProcess, stage: Stage
) -> None:
    api = Api(guarded_server.url, ALICE)
    session_id = await api.create("Mine")
    await api.query(session_id, "Hello")
    await (await stage.turn()).complete("Welcome back.")
    await page.goto(f"{guarded_server.url}/#{session_id}")
    await page.wait_for_url("**/login?next=*")
    await log_in(page, ALICE)
    await expect(Console(page).answers).to_have_text("Welcome back.")
    assert page.url == f"{guarded_server.url}/#{session_id}"
    await api.close()


async def test_the_example_works_with_the_cookie(
    page: Page, guarded_server: ServerProcess, stage: Stage
) -> None:
    api = Api(guarded_server.url, ALICE)
    session_id = await api.create()
    await enter(page, guarded_server, ALICE)
    await visit(page, guarded_server.url, session_id)
    await send(page, "Hello")
    await (await stage.turn()).complete("Hi")
    await saw(page, "agent_run_end")
    assert await seen(page) == await api.events(session_id, deltas=True)
    await api.close()


async def test_one_principal_sees_nothing_of_another(page: Page, guarded_server: ServerProcess) -> None:
    api = Api(guarded_server.url, ALICE)
    session_id = await api.create("Alice's secret")
    await enter(page, guarded_server, BOB)
    console = Console(page)
    await expect(console.sessions.get_by_role("link", name="Alice's secret")).to_have_count(0)
    await page.goto(f"{guarded_server.url}/#{session_id}")
    await expect(console.connection).to_have_text("Closed")
    await expect(page.locator("main").get_by_role("alert")).to_contain_text("no session")
    await api.close()


async def test_who_logs_out_leaves_nothing_for_the_next(
    context: BrowserContext, page: Page, guarded_server: ServerProcess
) -> None:
    await enter(page, guarded_server, ALICE)
    other = await context.new_page()
    await other.goto(guarded_server.url)
    for tab in (page, other):
        await Console(tab).field.fill("Alice's thought")
    await page.get_by_role("button", name="Log out alice").click()
    for tab in (page, other):
        await tab.wait_for_url("**/login*")
    assert await context.cookies() == []
    await log_in(page, BOB)
    await expect(page.get_by_role("button", name="Log out bob")).to_be_visible()
    await other.goto(guarded_server.url)
    for tab in (page, other):
        await expect(tab.get_by_role("button", name="Log out bob")).to_be_visible()
        await expect(Console(tab).field).to_have_value("")


async def test_the_way_back_leads_to_no_page_of_who_has_logged_out(
    browser: Browser, guarded_server: ServerProcess
) -> None:
    keeps_pages = await browser.browser_type.launch(
        executable_path=shutil.which("chromium"),
        args=ARGUMENTS,
        ignore_default_args=["--disable-back-forward-cache"],
    )
    page = await keeps_pages.new_page()
    await page.goto(f"{guarded_server.url}/login")
    await log_in(page, ALICE)
    await page.get_by_role("link", name="Server").click()
    await page.get_by_role("button", name="Log out alice").click()
    await page.wait_for_url("**/login*")
    await log_in(page, BOB)
    await expect(page.get_by_role("button", name="Log out bob")).to_be_visible()
    await page.evaluate("history.go(-2)")
    await page.wait_for_url("**/#server", wait_until="commit")
    await expect(page.get_by_role("button", name="Log out bob")).to_be_visible()
    await keeps_pages.close()


async def test_who_is_logged_in_is_told_also_when_the_server_was_away_at_first(
    context: BrowserContext, page: Page, guarded_server: ServerProcess
) -> None:
    await page.goto(f"{guarded_server.url}/login")
    await context.route("**/api/v1/overview", lambda route: route.abort(), times=2)
    await log_in(page, ALICE)
    await expect(page.get_by_role("button", name="Log out alice")).to_be_visible()


async def test_a_lost_cookie_leads_to_the_login(
    context: BrowserContext, page: Page, guarded_server: ServerProcess
) -> None:
    await enter(page, guarded_server, ALICE)
    console = Console(page)
    await expect(console.connection).to_have_text("Ready")
    await console.field.fill("Half a thought")
    await context.clear_cookies()
    await page.wait_for_url("**/login?next=*")
    await expect(page.get_by_label("Token")).to_be_focused()
    await log_in(page, ALICE)
    await expect(console.field).to_have_value("Half a thought")
