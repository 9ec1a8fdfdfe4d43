"""The official Tarko UI, by what its user sees. It draws two chat panels and hides one, so everything is looked for visibly."""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from tests.browser.kit import Locator, Page, expect

_LIST = re.compile(r"/api/v1/sessions$")
_STATUS = re.compile(r"/api/v1/sessions/status\?")


class OfficialUi:
    """One open page of it."""

    def __init__(self, page: Page) -> None:
        self.page = page
        visible = page.locator(":visible")
        self.field = page.locator("textarea:visible")
        self.stop_button = page.locator("button[title='Stop generation']:visible")
        self.user = page.locator(".message-user:visible")
        self.answers = page.locator(".message-assistant:visible")
        self.notices = page.locator(".message-system:visible")
        self.running = visible.get_by_text("Agent is processing your request").first

    async def visit(self, url: str, path: str = "/ui/") -> None:
        """Open it, and wait until it takes a message."""
        async with self.listing():
            await self.page.goto(f"{url}{path}")
        await expect(self.field).to_be_visible()

    @asynccontextmanager
    async def listing(self) -> AsyncIterator[None]:
        """Wait after the block until the page has the list of sessions.

        It leaves a session that is not in the list, also one that it has made since it asked for the list.
        """
        async with self.page.expect_response(_LIST) as listed:
            yield
        await (await listed.value).finished()

    async def send(self, text: str) -> None:
        """Write and send."""
        await expect(self.field).to_be_enabled()
        await self.field.fill(text)
        await self.field.press("Control+Enter")

    async def reload(self) -> None:
        """Reload a session's page. Until it asks for the status it shows a session in which it can neither send nor stop."""
        async with self.page.expect_response(_STATUS):
            await self.page.reload()

    async def reload_into_running(self) -> None:
        """Reload while a turn runs, and wait for the button that stops it.

        Now and then its animation waits for ever for that of the button it replaces, in the page alone; then a visitor
        would reload once more.
        """
        for _ in range(3):
            await self.reload()
            await expect(self.running).to_be_visible()
            with suppress(AssertionError):
                await expect(self.stop_button).to_be_visible(timeout=10_000)
                return
        await expect(self.stop_button).to_be_visible()

    async def session_id(self) -> str:
        """The session that the address names."""
        await self.page.wait_for_url(re.compile("/ui/sess_"))
        return self.page.url.rpartition("/")[2]

    async def is_idle(self) -> None:
        """Wait until nothing runs and the field takes a message.

        The stop button is drawn by the same state, but now and then the animation in which it leaves never ends.
        """
        await expect(self.field).to_be_enabled()
        await expect(self.running).to_have_count(0)

    async def open_sidebar(self) -> None:
        """Show the list of sessions."""
        await self.page.get_by_title("Expand sidebar").click()
        await expect(self.page.get_by_label("Search tasks")).to_be_visible()

    def task(self, name: str) -> Locator:
        """A session of the list."""
        return self.page.get_by_role("button", name=name, exact=False).filter(has_text=name)

    def card(self, name: str) -> Locator:
        """A tool's card."""
        return self.answers.get_by_role("button", name=re.compile(re.escape(name)))
