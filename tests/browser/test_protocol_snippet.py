"""The protocol page's `EventSource` example in a real browser: nothing is lost and nothing comes twice."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from tests.browser.kit import BrowserContext, Page, Route, expect
from tests.browser.processes import Api, ServerProcess
from tests.browser.proxy import open_proxy
from tests.browser.puppet import Stage

SNIPPET = Path(__file__).with_name("snippet.html").read_text()


async def visit(page: Page, url: str, session_id: str) -> None:
    """Open the example on the server's own origin, as an application that is served beside it."""

    async def serve(route: Route) -> None:
        await route.fulfill(body=SNIPPET, content_type="text/html")

    await page.route("**/example?*", serve)
    await page.goto(f"{url}/example?sessionId={session_id}")
    await saw(page, "session_start")


async def saw(page: Page, event_type: str, number: int = 1) -> None:
    """Wait until the page has seen so many events of a type."""
    await page.wait_for_function(
        "([type, number]) => events.filter((event) => event.type === type).length >= number",
        arg=[event_type, number],
    )


async def seen(page: Page) -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = await page.evaluate("events")
    return events


async def send(page: Page, message: str) -> None:
    """Send, and do not wait for the answer; a broken connection is not the example's business."""
    await page.evaluate("(message) => { sendMessage(message).catch(() => {}); }", message)


async def test_the_example_shows_a_turn_and_stops_loading(
    page: Page, open_server: ServerProcess, stage: Stage, api: Api
) -> None:
    session_id = await api.create()
    await visit(page, open_server.url, session_id)
    await send(page, "Hello")
    await expect(page.locator("#loading")).to_be_visible()
    turn = await stage.turn()
    await turn.complete("Hi ", "there")
    await saw(page, "agent_run_end")
    await expect(page.locator("#loading")).to_be_hidden()
    await expect(page.locator("li", has_text='"content":"Hi there"')).to_be_visible()
    assert await seen(page) == await api.events(session_id, deltas=True)


async def test_a_killed_connection_loses_and_doubles_nothing(
    page: Page, open_server: ServerProcess, stage: Stage, api: Api
) -> None:
    session_id = await api.create()
    async with open_proxy(open_server.port) as proxy:
        await visit(page, proxy.url, session_id)
        await send(page, "Hello")
        turn = await stage.turn()
        await turn.text("one ", "two ")
        await saw(page, "assistant_message_delta", 2)
        proxy.cut()
        await turn.complete("three ", "four")
        await saw(page, "agent_run_end")
        assert proxy.cuts == 1
        assert await seen(page) == await api.events(session_id, deltas=True)


async def test_a_connection_may_break_at_any_byte(
    context: BrowserContext, open_server: ServerProcess, stage: Stage, api: Api
) -> None:
    session_id = await api.create()
    async with AsyncExitStack() as stack:
        proxies = [await stack.enter_async_context(open_proxy(open_server.port)) for _ in range(4)]
        pages = [await context.new_page() for _ in proxies]
        await asyncio.gather(
            *(visit(page, proxy.url, session_id) for page, proxy in zip(pages, proxies, strict=True))
        )
        # An event is some 300 bytes long, so these fall into ids, into data, and between two frames.
        for proxy, budget in zip(proxies, (1, 333, 800, 2222), strict=True):
            proxy.budget = budget
        await api.query(session_id, "Hello")
        turn = await stage.turn()
        await turn.complete(*(f"word {number} " for number in range(20)))
        await asyncio.gather(*(saw(page, "agent_run_end") for page in pages))
        history = await api.events(session_id, deltas=True)
        assert [proxy.cuts for proxy in proxies] == [1] * len(proxies)
        for page in pages:
            assert await seen(page) == history


async def test_a_reload_in_mid_turn_shows_the_turn_whole(
    page: Page, open_server: ServerProcess, stage: Stage, api: Api
) -> None:
    session_id = await api.create()
    await visit(page, open_server.url, session_id)
    await send(page, "Hello")
    turn = await stage.turn()
    await turn.text("one ", "two ")
    await saw(page, "assistant_message_delta", 2)
    await page.reload()
    await saw(page, "assistant_message_delta", 2)
    await turn.complete("three")
    await saw(page, "agent_run_end")
    assert await seen(page) == await api.events(session_id, deltas=True)


async def test_a_reload_afterwards_shows_what_lasts(
    page: Page, open_server: ServerProcess, stage: Stage, api: Api
) -> None:
    session_id = await api.create()
    await api.query(session_id, "Hello")
    await (await stage.turn()).complete("Hi ", "there")
    await visit(page, open_server.url, session_id)
    await saw(page, "agent_run_end")
    await page.reload()
    await saw(page, "agent_run_end")
    assert await seen(page) == await api.events(session_id, deltas=False)
