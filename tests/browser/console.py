"""The console, by what its user sees."""

import re
from typing import Literal

from tests.browser.kit import Locator, Page, Route, expect

Transport = Literal["Event stream", "WebSocket"]


class Console:
    """One open console."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.field = page.get_by_label("Message", exact=True)
        self.log = page.locator("#log")
        self.connection = page.locator("#connection")
        self.problem = page.locator("#problem")
        self.send_button = page.get_by_role("button", name="Send", exact=True)
        self.stop_button = page.get_by_role("button", name="Stop", exact=True)
        self.answers = page.get_by_role("article", name="Assistant")
        self.sessions = page.get_by_role("navigation", name="Sessions")

    async def visit(
        self, url: str, session_id: str | None = None, transport: Transport = "Event stream"
    ) -> None:
        """Open the page, and the session if one is named."""
        await self.page.goto(f"{url}/#{session_id or ''}")
        if transport != "Event stream":
            await self.choose(transport)
        await expect(self.connection).to_have_text("Live" if session_id else "Ready")

    async def choose(self, transport: Transport) -> None:
        """Switch to this transport."""
        await self.page.locator("#transport").get_by_text(transport).click()
        await expect(self.page.get_by_label(transport)).to_be_checked()

    async def send(self, text: str) -> None:
        """Write and press Enter."""
        await self.field.fill(text)
        await self.field.press("Enter")

    async def session_id(self) -> str:
        """The session that the address carries."""
        await self.page.wait_for_url(re.compile("#sess_"))
        return self.page.url.partition("#")[2]

    def ending(self, how: str) -> Locator:
        """The line that tells how a turn ended."""
        return self.log.get_by_text(re.compile(f"^{how} after "))

    async def shown(self) -> str:
        """All that the conversation shows, as text."""
        return await self.log.inner_text()

    async def shows(self, text: str) -> None:
        """Wait until the conversation shows just this, as `shown` tells it."""
        await expect(self.log).to_have_text(text, use_inner_text=True)


async def as_demo(page: Page) -> None:
    """Have the page believe that new sessions are the demo agent's."""

    async def answer(route: Route) -> None:
        real = await route.fetch()
        await route.fulfill(json=await real.json() | {"agents": ["demo"]})

    await page.route("**/api/v1/overview", answer)
