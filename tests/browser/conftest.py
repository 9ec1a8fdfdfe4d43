"""A browser, servers that it may visit, and pages that tell on themselves: an error of a page is an error of its test."""

import itertools
import re
import shutil
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.browser.processes import Api, ServerProcess
from tests.browser.puppet import Stage, open_stage
from tests.conftest import Server

if TYPE_CHECKING:
    from playwright.async_api import Browser, BrowserContext, Page, Route

    from tests.browser.official import OfficialUi

ARGUMENTS = [
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
PATIENCE_MS = 60_000
TOKENS = "alice=correct-horse-battery-staple,bob=another-token-of-some-length"

NewPage = Callable[[], Awaitable["Page"]]

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
async def browser() -> "AsyncIterator[Browser]":
    """Chromium, as Debian packs it."""
    from tests.browser.kit import async_playwright, unable

    program = shutil.which("chromium")
    if program is None:
        unable("there is no chromium on this machine")
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=program, args=ARGUMENTS)
        yield browser
        await browser.close()


@pytest.fixture
async def context(browser: "Browser") -> "AsyncIterator[BrowserContext]":
    """A visitor of this test's own: its pages share cookies with each other and with nobody else."""
    context = await browser.new_context(viewport={"width": 1280, "height": 800}, reduced_motion="reduce")
    context.set_default_timeout(PATIENCE_MS)
    problems: list[str] = []
    context.on("weberror", lambda error: problems.append(str(error.error)))
    context.on(
        "console",
        lambda message: problems.append(message.text) if "Content Security" in message.text else None,
    )
    yield context
    await context.close()
    assert problems == []


@pytest.fixture
async def page(context: "BrowserContext") -> "Page":
    """The visitor's first page."""
    return await context.new_page()


@pytest.fixture
def problems() -> list[str]:
    """What the visitor's pages complain of: must be empty at the end."""
    return []


@pytest.fixture
async def visitor(browser: "Browser", problems: list[str]) -> "AsyncIterator[BrowserContext]":
    """A visitor of the official UI, without internet. Its web fonts are refused by the page's policy, and nothing else is."""
    context = await browser.new_context(viewport={"width": 1280, "height": 800}, reduced_motion="reduce")
    context.set_default_timeout(PATIENCE_MS)

    async def refuse(route: "Route") -> None:
        problems.append(f"asked of another host: {route.request.url}")
        await route.abort()

    await context.route(re.compile(r"^https?://(?!127\.0\.0\.1)"), refuse)
    context.on("weberror", lambda error: problems.append(str(error.error)))
    context.on(
        "console",
        lambda message: (
            problems.append(message.text)
            if "Content Security" in message.text and "fonts.googleapis.com" not in message.text
            else None
        ),
    )
    yield context
    await context.close()
    assert problems == []


@pytest.fixture
async def ui(visitor: "BrowserContext") -> "OfficialUi":
    """The official UI on a page of that visitor."""
    from tests.browser.official import OfficialUi

    return OfficialUi(await visitor.new_page())


@pytest.fixture(scope="session")
async def stage() -> AsyncIterator[Stage]:
    """Where the agents of all servers here get their turns."""
    with tempfile.TemporaryDirectory(prefix="tarko-stage-") as directory:
        async with open_stage(Path(directory)) as stage:
            yield stage


@pytest.fixture(autouse=True)
async def _clear_stage(stage: Stage) -> AsyncIterator[None]:
    yield
    await stage.clear()


async def _server(stage: Stage, postgres: Server, **settings: str) -> AsyncIterator[ServerProcess]:
    name = f"browser_{next(_numbers)}"
    url = await postgres.clone(name)
    server = ServerProcess(stage, TARKO_DATABASE_URL=url, **settings)
    await server.start()
    yield server
    await server.kill()  # its database is thrown away, and how it stops is told elsewhere


@pytest.fixture(scope="session")
async def open_server(stage: Stage, embedded_server: Server) -> AsyncIterator[ServerProcess]:
    """A server that asks for no token. Its tests share it; each makes its own sessions."""
    async for server in _server(stage, embedded_server):
        yield server


@pytest.fixture(scope="session")
async def guarded_server(stage: Stage, embedded_server: Server) -> AsyncIterator[ServerProcess]:
    """A server that knows two principals."""
    async for server in _server(stage, embedded_server, TARKO_TOKENS=TOKENS):
        yield server


@pytest.fixture(scope="session")
async def relaying_server(
    stage: Stage, embedded_server: Server, open_server: ServerProcess
) -> AsyncIterator[ServerProcess]:
    """A server whose agent is that of the open server, over A2A."""
    async for server in _server(stage, embedded_server, agent=f"a2a:{open_server.url}/a2a"):
        yield server


@pytest.fixture
async def api(open_server: ServerProcess) -> AsyncIterator[Api]:
    """The open server's routes."""
    api = Api(open_server.url)
    yield api
    await api.close()
