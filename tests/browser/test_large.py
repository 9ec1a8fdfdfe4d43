"""What is too large to be shown whole: a session of 100,000 events, lines of megabytes, pictures of any size."""

import base64
import struct
import time
import zlib
from typing import Any

import asyncpg
import pytest

from tests.browser.console import Console
from tests.browser.kit import BrowserContext, Page, expect
from tests.browser.processes import Api, ServerProcess
from tests.browser.puppet import Stage

TURNS = 20_000
FILL = """
INSERT INTO events (session_id, seq, ordinal, turn_id, type, ts, data, metadata)
SELECT $1, 1 + n, 1 + n, NULL, kind, 1796000000000 + n * 10, data::json, '{"source":"agent","version":"1.0"}'
FROM generate_series(0, $2 - 1) AS turn,
LATERAL (VALUES
  (1, 'user_message', format('{"content":"Question %s","role":"user"}', turn)),
  (2, 'agent_run_start', format('{"turnId":"turn_%s","agentName":"demo"}', turn)),
  (3, 'assistant_message_start', format('{"role":"assistant","messageId":"msg_%s"}', turn)),
  (4, 'assistant_message', format(
    '{"content":"Answer **%s** of some length","role":"assistant","finishReason":"stop","messageId":"msg_%s"}', turn, turn)),
  (5, 'agent_run_end', format('{"turnId":"turn_%s","status":"completed","elapsedMs":12}', turn))
) AS each (number, kind, data),
LATERAL (SELECT turn * 5 + number AS n) AS place"""
HEAD = "UPDATE heads SET last_seq = 1 + $2 * 5, lasting_count = 1 + $2 * 5 WHERE session_id = $1"
WATCH = """
window.longTasks = [];
new PerformanceObserver((list) => {
  for (const entry of list.getEntries()) window.longTasks.push(Math.round(entry.duration));
}).observe({ type: "longtask", buffered: true });
"""
ROW = 32


@pytest.fixture(scope="module")
async def large(open_server: ServerProcess) -> str:
    """A session of 100,001 events, put into the database."""
    api = Api(open_server.url)
    session_id = await api.create("A hundred thousand")
    await api.close()
    connection = await asyncpg.connect(open_server.database_url)
    await connection.execute(FILL, session_id, TURNS)
    await connection.execute(HEAD, session_id, TURNS)
    await connection.execute("ANALYZE events")
    await connection.close()
    return session_id


@pytest.fixture
async def requests(page: Page) -> list[str]:
    """What the page asks of the log."""
    asked: list[str] = []
    page.on(
        "request", lambda request: asked.append(request.url) if "/sessions/events" in request.url else None
    )
    return asked


async def test_its_conversation_opens_at_the_end_with_a_few_requests(
    page: Page, open_server: ServerProcess, large: str, requests: list[str]
) -> None:
    console = Console(page)
    await page.add_init_script(WATCH)
    await page.goto(f"{open_server.url}/#server")
    began = time.perf_counter()
    await page.goto(f"{open_server.url}/#{large}")
    await expect(console.answers.last).to_have_text(f"Answer {TURNS - 1} of some length")
    await expect(console.connection).to_have_text("Live")
    print(f"conversation of 100,001 events: open in {time.perf_counter() - began:.2f} s")
    assert len(requests) <= 3
    shown = await page.locator(".turn").count()
    assert 10 < shown < 200
    await page.locator("#scroller").evaluate("node => { node.scrollTop = 150; }")
    await expect(page.locator(".turn").nth(shown)).to_be_attached()
    assert len(requests) <= 5, "earlier turns come a page at a time"
    print(f"long tasks: {await page.evaluate('longTasks')} ms")


async def test_its_log_is_scrolled_from_end_to_end(
    page: Page, open_server: ServerProcess, large: str, requests: list[str]
) -> None:
    await page.add_init_script(WATCH)
    await page.goto(f"{open_server.url}/#server")
    began = time.perf_counter()
    await page.goto(f"{open_server.url}/#{large}/events")
    await expect(page.locator(".tall .type").first).to_have_text("session_start")
    print(f"log of 100,001 events: open in {time.perf_counter() - began:.2f} s")
    rows = page.locator(".table")
    assert await rows.evaluate("node => node.scrollHeight") >= 100_001 * ROW
    await page.evaluate("longTasks.length = 0")
    most = await rows.evaluate("""async (node) => {
      let most = 0;
      for (let step = 0; step <= 300; step += 1) {
        node.scrollTop = (node.scrollHeight / 300) * step;
        await new Promise(requestAnimationFrame);
        most = Math.max(most, document.querySelectorAll(".tall .row").length);
      }
      return most;
    }""")
    await expect(page.locator(".tall .place").last).to_have_text("100001")
    tasks = await page.evaluate("longTasks")
    print(f"scrolled: {most} rows on the page at most, {len(requests)} requests, long tasks {tasks} ms")
    assert most < 80
    assert len(requests) <= 2 * 301 + 5, "each place asks for no more than the pages that it shows"
    await rows.press("Home")
    await expect(page.locator(".tall .row[aria-selected=true] .place")).to_have_text("1")
    await rows.press("End")
    await expect(page.locator(".tall .row[aria-selected=true] .place")).to_have_text("100001")


def png(width: int, height: int) -> str:
    """A black picture as a data URL; a large one is small as a file."""
    rows = zlib.compress((b"\x00" + b"\x00" * (width // 8)) * height, 9)
    header = struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0)

    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    file = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")
    return f"data:image/png;base64,{base64.b64encode(file).decode()}"


async def test_lines_of_megabytes_pictures_and_controls_do_no_harm(
    context: BrowserContext, page: Page, open_server: ServerProcess, stage: Stage, api: Api
) -> None:
    outside: list[str] = []
    context.on(
        "request",
        lambda request: (
            outside.append(request.url) if not request.url.startswith((open_server.url, "data:")) else None
        ),
    )
    context.on("dialog", lambda _: pytest.fail("a dialog was opened"))
    await page.add_init_script(WATCH)
    session_id = await api.create("\u202eevil\u202c <b>name</b>")
    console = Console(page)
    await console.visit(open_server.url, session_id)
    await console.send("Everything that is too much")
    turn = await stage.turn()
    line = "x" * 5_000_000
    await turn.say("tool_started", id="a", name="cat \u001b[31mred\u001b[0m", args={"line": line})
    await turn.say("tool_ended", id="a", isError=False, content=f"\u001b[2J\u001b[31m{line}")
    await turn.say("tool_started", id="b", name="draw", args={})
    picture = [{"type": "image_url", "image_url": {"url": png(20_000, 20_000)}}]
    await turn.say("tool_ended", id="b", isError=False, content=picture)
    await turn.text(f"\u202eright to left\u202c שלום {'y' * 5_000_000}")
    await turn.text("\n\n![out](https://example.invalid/track.png) <img src=https://example.invalid/b.png>")
    await turn.complete()
    await expect(console.ending("Completed")).to_be_visible()
    for tool in await page.locator("details.tool > summary").all():
        await tool.click()
    print(f"megabytes, conversation: long tasks {await page.evaluate('longTasks.splice(0)')} ms")
    measures: dict[str, Any] = await page.evaluate("""() => ({
      text: document.body.textContent.length,
      width: document.documentElement.scrollWidth,
      pictures: [...document.querySelectorAll("#log img")].map((each) => each.getBoundingClientRect().height),
    })""")
    assert measures["text"] < 400_000
    assert measures["width"] <= 1280
    assert all(height <= 302 for height in measures["pictures"])
    shown = await console.shown()
    assert "\u001b" not in shown
    assert "\u202e" not in shown
    assert await page.locator("main b").count() == 0
    for name in ("Events", "Timeline", "Replay"):
        await page.get_by_role("navigation", name="Views").get_by_role("link", name=name).click()
        await expect(page.get_by_role("link", name=name)).to_have_attribute("aria-current", "page")
        print(f"megabytes, {name}: long tasks {await page.evaluate('longTasks.splice(0)')} ms")
    await page.goto(f"{open_server.url}/#{session_id}/events")
    await page.locator(".tall .row", has_text="tool_result").first.click()
    await expect(page.get_by_role("region", name="Event", exact=True)).to_contain_text("MB more")
    assert await page.evaluate("document.body.textContent.length") < 400_000
    assert outside == []
