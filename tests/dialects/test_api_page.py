"""The page of the API: its own files, and no script but those that are known."""

import re

import httpx
import pytest
from starlette.applications import Starlette

from app.dialects.operations import api_page


async def test_the_page_and_its_files_come_from_here() -> None:
    transport = httpx.ASGITransport(Starlette(routes=api_page.routes("An API")))
    async with httpx.AsyncClient(transport=transport, base_url="http://api") as client:
        page = await client.get("/docs")
        named = re.findall(r'(?:src|href)="(?!data:)([^"]+)"', page.text)
        assert len(named) == 2
        for name in named:
            assert (await client.get(f"/{name}")).status_code == 200
    policy = page.headers["content-security-policy"]
    assert "<title>An API</title>" in page.text
    assert "http" not in policy
    assert "unsafe" not in policy


@pytest.mark.parametrize("page", ["", "<script>one()</script><script>two()</script>"])
def test_another_form_of_the_page_is_noticed(page: str) -> None:
    with pytest.raises(RuntimeError, match="another form"):
        api_page.policy_of(page)
