"""The console's files: what is fixed may be kept, what is not is asked for again, and nothing foreign may run."""

from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from starlette.applications import Starlette

from app.dialects.operations import console


@pytest.fixture
async def built(tmp_path: Path) -> Path:
    (tmp_path / "assets").mkdir()
    (tmp_path / "index.html").write_text("<!doctype html>the page")
    for name in ("index-B2k_9-xZ.js", "favicon.svg"):
        (tmp_path / "assets" / name).write_text("x")
    return tmp_path


@pytest.fixture
async def browser(built: Path) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(Starlette(routes=console.routes(built)))
    async with httpx.AsyncClient(transport=transport, base_url="http://console") as client:
        yield client


async def test_the_page_lets_in_nothing_but_its_own_files(browser: httpx.AsyncClient) -> None:
    page = await browser.get("/")
    policy = page.headers["content-security-policy"]
    assert page.text.endswith("the page")
    assert page.headers["cache-control"] == "no-cache"
    assert "default-src 'self'" in policy
    assert "require-trusted-types-for 'script'" in policy
    assert "unsafe" not in policy
    assert "http" not in policy


@pytest.mark.parametrize(
    ("name", "kept"),
    [("index-B2k_9-xZ.js", "public, max-age=31536000, immutable"), ("favicon.svg", "no-cache")],
)
async def test_only_what_never_changes_is_kept(browser: httpx.AsyncClient, name: str, kept: str) -> None:
    asset = await browser.get(f"/assets/{name}")
    assert asset.headers["cache-control"] == kept
    assert asset.headers["x-content-type-options"] == "nosniff"


async def test_a_console_that_was_not_built_says_what_to_do(browser: httpx.AsyncClient, built: Path) -> None:
    (built / "index.html").unlink()
    answer = await browser.get("/")
    assert answer.status_code == 503
    assert "make web" in answer.text
