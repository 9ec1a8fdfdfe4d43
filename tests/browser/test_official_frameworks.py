"""What other people's code makes of a turn, in the official UI: a plain function and a framework's object, served as is."""

import itertools
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.browser.kit import expect, unable
from tests.browser.official import OfficialUi
from tests.browser.processes import ROOT, ServerProcess
from tests.browser.puppet import Stage
from tests.conftest import Server

FRAMEWORKS = ROOT / ".venv-adapters" / "bin" / "python"

_numbers = itertools.count(1)


@asynccontextmanager
async def serving(
    stage: Stage, postgres: Server, agent: str, python: str = sys.executable
) -> AsyncIterator[str]:
    database = await postgres.clone(f"browser_framework_{next(_numbers)}")
    server = ServerProcess(stage, agent, python, TARKO_DATABASE_URL=database)
    await server.start()
    try:
        yield server.url
    finally:
        await server.kill()


async def test_a_plain_functions_turn_is_seen(stage: Stage, embedded_server: Server, ui: OfficialUi) -> None:
    async with serving(stage, embedded_server, "examples.function.my_agent:answer") as url:
        await ui.visit(url)
        await ui.send("one two")
        await expect(ui.answers.first).to_contain_text("one two - after 0 earlier messages")
        await ui.is_idle()
        await ui.send("three")
        await expect(ui.answers.nth(1)).to_contain_text("three - after 2 earlier messages")


async def test_a_graphs_turn_is_seen_with_its_tool(
    stage: Stage, embedded_server: Server, ui: OfficialUi
) -> None:
    if not FRAMEWORKS.exists():
        unable("the frameworks are not installed: `make adapters`")
    async with serving(stage, embedded_server, "examples.langgraph.my_graph:graph", str(FRAMEWORKS)) as url:
        await ui.visit(url)
        await ui.send("How is the weather?")
        await expect(ui.card("Weather")).to_be_visible()
        await expect(ui.answers.last).to_contain_text("The weather: 11 degrees in Aarhus.")
        await ui.is_idle()
