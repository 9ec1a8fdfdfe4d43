"""A server that dies in mid-turn and comes back: open pages go on by themselves, and see how the turn ended."""

import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.browser.console import Console
from tests.browser.kit import BrowserContext, expect
from tests.browser.processes import Api, ServerProcess
from tests.browser.puppet import Stage
from tests.browser.test_protocol_snippet import saw, seen, visit


@pytest.fixture
def home() -> Iterator[Path]:
    """A directory with a short path, which PostgreSQL's user may pass when the tests run as root."""
    path = Path(tempfile.mkdtemp(prefix="tarko-browser-"))
    path.chmod(0o711)
    yield path
    shutil.rmtree(path)


@pytest.fixture
async def own_server(stage: Stage, home: Path) -> AsyncIterator[ServerProcess]:
    """A server with a database of its own, which dies and comes back with it."""
    server = ServerProcess(stage, TARKO_DATA_DIR=str(home / "data"))
    await server.start()
    yield server
    if not server.is_running:
        await server.start()  # takes the orphaned database over, so that it is stopped
    await server.stop()


async def test_pages_outlive_the_server(
    context: BrowserContext, own_server: ServerProcess, stage: Stage
) -> None:
    api = Api(own_server.url)
    session_id = await api.create("Long work")
    example = await context.new_page()
    stream, socket, home_page = [Console(await context.new_page()) for _ in range(3)]
    await home_page.visit(own_server.url)
    await visit(example, own_server.url, session_id)
    await stream.visit(own_server.url, session_id, "Event stream")
    await socket.visit(own_server.url, session_id, "WebSocket")
    await stream.send("Work")
    turn = await stage.turn()
    await turn.text("Half ")
    await saw(example, "assistant_message_delta")
    for console in (stream, socket):
        await expect(console.answers).to_have_text("Half")

    await own_server.kill()
    for console in (stream, socket, home_page):
        await expect(console.connection).to_have_text("Reconnecting…")
    await own_server.start()
    await expect(home_page.connection).to_have_text("Ready")

    await saw(example, "agent_run_end")
    for console in (stream, socket):
        await expect(console.ending("Interrupted")).to_be_visible()
        await expect(console.answers).to_have_text("Half")
        await expect(console.page.get_by_role("article", name="Error")).to_contain_text("server_restarted")
        await expect(console.connection).to_have_text("Live")
    history = await api.events(session_id, deltas=True)
    assert await seen(example) == history
    assert history[-1]["data"]["status"] == "interrupted"
    log = await context.new_page()
    await log.goto(f"{own_server.url}/#{session_id}/events")
    await log.get_by_label("Deltas").check()
    told = f"{len(history)} events found in {len(history)} events"
    await expect(log.get_by_role("status").filter(has_text="found")).to_contain_text(told)
    await socket.send("Again")
    await (await stage.turn()).complete("Whole")
    await expect(stream.answers).to_have_text(["Half", "Whole"])
    await api.close()
