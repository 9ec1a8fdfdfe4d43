"""The page of the API, in a browser without internet."""

from urllib.parse import urlsplit

from tests.browser.kit import BrowserContext, expect
from tests.browser.processes import ServerProcess


async def test_the_api_is_shown_and_tried_without_another_host(
    context: BrowserContext, open_server: ServerProcess
) -> None:
    asked: list[str] = []
    context.on("request", lambda request: asked.append(request.url))
    page = await context.new_page()
    await page.goto(f"{open_server.url}/docs")
    operation = page.locator(".opblock", has_text="/api/v1/version")
    await operation.get_by_role("button").first.click()
    await operation.get_by_role("button", name="Try it out").click()
    await operation.get_by_role("button", name="Execute").click()
    statuses = operation.locator(".live-responses-table .response-col_status")
    await expect(statuses.last).to_have_text("200")
    assert {urlsplit(address).netloc for address in asked if address.startswith("http")} == {
        urlsplit(open_server.url).netloc
    }
