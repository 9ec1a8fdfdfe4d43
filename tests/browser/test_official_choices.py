"""What people choose in the official UI: a model, settings, a file of the workspace; and what the agent gets of it."""

from collections.abc import AsyncIterator

import pytest

from tests.browser.conftest import PATIENCE_MS
from tests.browser.kit import Browser, Response, expect
from tests.browser.official import OfficialUi
from tests.conftest import Server, own_database
from tests.dialects.tarko_ui.choosing import Choosing
from tests.server import Serving, serving


@pytest.fixture(scope="module")
async def choosing(
    embedded_server: Server, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Serving]:
    root = tmp_path_factory.mktemp("workspace")
    (root / "README.md").write_text("hello")
    (root / "src").mkdir()
    async with own_database(embedded_server) as url, serving(url, Choosing(), workspace=root) as server:
        yield server


@pytest.fixture
async def ui(browser: Browser) -> AsyncIterator[OfficialUi]:
    context = await browser.new_context(viewport={"width": 1280, "height": 800}, reduced_motion="reduce")
    context.set_default_timeout(PATIENCE_MS)
    yield OfficialUi(await context.new_page())
    await context.close()


def _is_stored(response: Response) -> bool:
    """Whether it answers a choice of settings."""
    return response.request.method == "POST" and response.url.endswith("runtime-settings")


async def test_a_chosen_model_and_settings_reach_the_agent_and_stay(
    ui: OfficialUi, choosing: Serving
) -> None:
    await ui.visit(choosing.url)
    await ui.send("what was chosen?")
    await expect(ui.answers.last).to_contain_text("small False long")
    session_id = await ui.session_id()
    await ui.is_idle()

    model = ui.page.get_by_role("button", name="acme").locator("visible=true")
    await model.click()
    await ui.page.get_by_text("large", exact=True).locator("visible=true").click()
    await expect(model).to_contain_text("large")
    options = ui.page.get_by_title("Options").locator("visible=true")
    await options.click()
    await ui.page.get_by_text("style", exact=True).locator("visible=true").hover()
    short = ui.page.get_by_text("short", exact=True).locator("visible=true")
    async with ui.page.expect_response(_is_stored):
        await short.click()
    deep = ui.page.get_by_text("Deep", exact=True).locator("visible=true")
    await expect(deep.or_(options).first).to_be_visible()
    if not await deep.is_visible():
        await options.click()
    async with ui.page.expect_response(_is_stored):
        await deep.click()
    await ui.send("and now?")
    await expect(ui.answers.last).to_contain_text("large True short")
    await ui.is_idle()

    await ui.reload()
    await expect(model).to_contain_text("large")
    await ui.send("still?")
    await expect(ui.answers.last).to_contain_text("large True short")
    client = await choosing.client()
    details = (await client.get("/ui/api/v1/sessions/details", sessionId=session_id)).json()["session"]
    assert details["metadata"]["modelConfig"]["id"] == "large"
    assert details["metadata"]["runtimeSettings"] == {"deep": True, "style": "short"}


async def test_a_file_of_the_workspace_is_found_behind_an_at(ui: OfficialUi, choosing: Serving) -> None:
    await ui.visit(choosing.url)
    await ui.send("hello")
    await ui.session_id()
    await ui.is_idle()
    await ui.field.press_sequentially("@READ")
    await ui.page.get_by_text("README.md").locator("visible=true").first.click()
    await expect(ui.page.get_by_text("README.md").locator("visible=true").first).to_be_visible()
    await ui.field.press_sequentially(" look")
    await ui.field.press("Control+Enter")
    await expect(ui.user.last).to_contain_text("README.md")
