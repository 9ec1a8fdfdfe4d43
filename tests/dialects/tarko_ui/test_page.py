"""The UI's page: the package's html untouched but for its head, and nothing in it that can become code."""

import base64
import gzip
import hashlib
import json
import re
from pathlib import Path
from typing import Any

import pytest
import tarko_agent_ui

from app.dialects.tarko_ui.page import BASE, assets, configuration, replay_page, ui_page
from app.dialects.tarko_ui.routes import is_public
from app.dialects.tarko_ui.summary import LONGEST, question, title_of
from tests.server import Client

HOSTILE = "</script><script>alert(1)</script><!-- & \u2028"


@pytest.fixture
def original() -> str:
    return (Path(tarko_agent_ui.get_static_path()) / "index.html").read_text()


def told(content: bytes) -> dict[str, Any]:
    """What a page tells its scripts."""
    block = content.decode().split('id="tarko-server">')[1].split("</script>")[0]
    found: dict[str, Any] = json.loads(block)
    return found


def test_the_packages_page_is_served_as_it_is(original: str) -> None:
    served = ui_page("Mine", has_files=False)
    before, after = re.split(r"(?<=<head>)", original, maxsplit=1)
    assert served.plain.startswith(before.encode())
    assert served.plain.endswith(after.encode())
    assert gzip.decompress(served.compressed) == served.plain
    assert ui_page("Mine", has_files=False) is served
    assert ui_page("Other", has_files=False).tag != served.tag


def test_the_page_is_told_its_title_logo_and_base() -> None:
    config = told(ui_page("Mine", has_files=True).plain)["AGENT_WEB_UI_CONFIG"]
    assert config == configuration("Mine", has_files=True)
    assert (config["title"], config["base"], config["enableContextualSelector"]) == ("Mine", BASE, True)
    assert config["logo"].startswith("data:image/svg+xml,")
    assert b"<title>Mine</title>" in ui_page("Mine", has_files=True).plain.split(b"Agent TARS")[0]


def test_a_hostile_title_is_text() -> None:
    content = ui_page(HOSTILE, has_files=False).plain
    assert b"<script>alert" not in content
    assert told(content)["AGENT_WEB_UI_CONFIG"]["title"] == HOSTILE


def test_only_the_pages_own_scripts_may_run() -> None:
    served = ui_page("Mine", has_files=False)
    allowed = re.search(r"script-src ([^;]*);", served.policy)
    assert allowed is not None
    assert "unsafe" not in allowed[1]
    assert "'self'" not in allowed[1]
    scripts = re.findall(r"<script( [^>]*)?>(.*?)</script>", served.plain.decode(), re.DOTALL)
    run = [script for attributes, script in scripts if "application/json" not in attributes]
    hashes = {base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in run}
    assert {f"'sha256-{each}'" for each in hashes} == set(allowed[1].split())
    assert len(run) == 5
    assert "http" not in served.policy.replace("frame-ancestors", "")


@pytest.mark.parametrize(
    ("path", "base"),
    [
        ("/ui", "/ui"),
        ("/ui/", "/ui"),
        ("/ui/sess_x", "/ui"),
        ("/some/prefix/ui/creating", "/some/prefix/ui"),
        ("/ui/ui", "/ui"),
        ("/uix/ui/", "/uix/ui"),
        ("/elsewhere", ""),
    ],
)
def test_the_ui_finds_where_it_is(path: str, base: str) -> None:
    found = re.match(BASE, path)
    assert (found[0] if found else "") == base


def test_a_shared_page_has_its_session_and_its_policy() -> None:
    events = [b'{"id":"evt_1","content":"</script>"}', b'{"id":"evt_2"}']
    content = replay_page("Mine", {"id": "s", "metadata": {"name": HOSTILE}}, events, {"version": "1"})
    data = told(content)
    assert (data["AGENT_REPLAY_MODE"], data["AGENT_SESSION_DATA"]["metadata"]["name"]) == (True, HOSTILE)
    assert [event["id"] for event in data["AGENT_EVENT_STREAM"]] == ["evt_1", "evt_2"]
    assert data["AGENT_WEB_UI_CONFIG"]["base"] == ""
    assert data["AGENT_VERSION_INFO"] == {"version": "1"}
    assert b"<script>alert" not in content
    assert b'http-equiv="Content-Security-Policy"' in content
    assert told(replay_page("Mine", {"id": "s"}, [], {}))["AGENT_EVENT_STREAM"] == []


def test_a_package_of_another_form_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "index.html").write_text("<html><head></head></html>")
    monkeypatch.setattr(tarko_agent_ui, "get_static_path", lambda: str(tmp_path))
    with pytest.raises(RuntimeError, match="another form"):
        assets.__wrapped__()


@pytest.mark.parametrize(
    ("path", "public"),
    [
        ("/ui", True),
        ("/ui/", True),
        ("/ui/sess_x", True),
        ("/ui/api/v1/health", False),
        ("/uix", False),
        ("/api/v1/sessions", False),
    ],
)
def test_the_page_alone_is_public(path: str, public: bool) -> None:
    assert is_public(path) is public
    assert is_public(f"{assets().font_path}/x.woff2")


async def test_the_page_is_compressed_cached_and_the_same_everywhere(client: Client) -> None:
    answers = [await client.get(path) for path in ("/ui", "/ui/", "/ui/creating", "/ui/sess_x")]
    assert {answer.status_code for answer in answers} == {200}
    assert {answer.content for answer in answers} == {ui_page("Tarko", has_files=False).plain}
    headers = answers[0].headers
    assert headers["content-encoding"] == "gzip"
    assert int(headers["content-length"]) < 800_000
    assert (headers["cache-control"], headers["vary"]) == ("no-cache", "Accept-Encoding, Cookie")
    assert re.sub(r"script-src [^;]*", "script-src …", headers["content-security-policy"]) == (
        "default-src 'self'; script-src …; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; "
        "font-src 'self' data:; connect-src 'self'; worker-src 'self' blob:; frame-src 'self' data: blob:; "
        "object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
    )
    again = await client.http.get("/ui/", headers={"if-none-match": headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    plain = await client.http.get("/ui/", headers={"accept-encoding": "identity"})
    assert "content-encoding" not in plain.headers
    assert plain.content == answers[0].content
    for path in ("/ui", "/ui/", "/ui/sess_x"):
        head = await client.http.head(path)
        assert (head.status_code, head.content, head.headers["etag"]) == (200, b"", headers["etag"])


async def test_the_fonts_are_where_the_page_asks_for_them(client: Client) -> None:
    name = next(assets().fonts.glob("*.woff2")).name
    assert f"{assets().font_path}/{name}" in ui_page("Tarko", has_files=False).plain.decode()
    font = await client.get(f"{assets().font_path}/{name}")
    assert font.status_code == 200
    assert font.content[:4] == b"wOF2"


def test_a_title_is_one_short_line() -> None:
    messages: list[dict[str, Any]] = [
        {"role": "user", "content": [{"type": "image_url"}, {"type": "text", "text": "First\nwords"}, 5]},
        {"content": None},
    ]
    assert question(messages).endswith("user: First\nwords\nuser: ")
    assert title_of(None, messages) == "First"
    assert title_of('\n\n"**Quoted**"\nmore', messages) == "Quoted"
    assert title_of("", [{}]) == "Untitled"
    assert title_of("x" * 500, []) == "x" * (LONGEST - 1) + "…"
