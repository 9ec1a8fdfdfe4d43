"""The requests that the official UI really sends, each answered as the UI needs it."""

import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import parse_qs, urlencode

import pytest

from app.dialects.tarko_ui.page import assets
from tests.conftest import Server, own_database
from tests.server import Client, Json, Scripted, serving, soon

REQUESTS = Path(__file__).parent / "official_ui_requests.jsonl"
NOT_OURS = re.compile(r"/(logo\.svg|favicon\.ico|static/font/.*)")
"""The recording's own logo, an icon that it had not either, and fonts of the build that is not in the wheel."""

PAGE = re.compile(r"/|/[\w-]{21}|/nope_nope_nope_nope")
FIELDS: dict[str, tuple[str, ...]] = {
    "health": ("status",),
    "version": ("version", "buildTime", "gitHash"),
    "agent/options": ("options.workspace", "options.workspaceName", "options.name"),
    "models": ("models.0.id", "models.0.provider", "models.0.displayName"),
    "runtime-settings": ("schema.properties",),
    "sessions": ("sessions.0.id", "sessions.0.updatedAt", "sessions.0.createdAt", "sessions.0.metadata.tags"),
    "sessions/create": (
        "sessionId",
        "session.id",
        "session.metadata.agentInfo.name",
        "session.metadata.modelConfig.id",
    ),
    "sessions/details": ("session.metadata.agentInfo.name",),
    "sessions/events": ("events",),
    "sessions/status": ("status.isProcessing", "status.state"),
    "sessions/update": ("session.id", "session.metadata.name", "session.metadata.tags"),
    "sessions/delete": ("success",),
    "sessions/abort": ("success",),
    "sessions/model": ("success", "sessionInfo.metadata.modelConfig.id"),
    "sessions/share": ("success", "html"),
    "sessions/workspace/search": ("items",),
    "sessions/workspace/validate": ("results.0.path", "results.0.exists"),
    "share/config": ("hasShareProvider", "shareProvider"),
}
SETTINGS = {
    "GET": ("schema.properties.deep", "currentValues"),
    "POST": ("session.metadata", "runtimeSettings"),
}


class Equipped(Scripted):
    """An agent with the models and the settings of the recording's."""

    allowed_models: ClassVar[list[Json]] = [
        {"id": f"model-{letter}", "provider": "prov", "displayName": f"Model {letter.upper()}"}
        for letter in "ab"
    ]
    settings_schema: ClassVar[Json] = {
        "type": "object",
        "properties": {
            "deep": {"type": "boolean", "default": False},
            "style": {"type": "string", "enum": ["short", "long"], "default": "long"},
            "bottom": {"type": "boolean", "default": True},
        },
    }


class Replay:
    """Sends recorded requests. A session of the recording is one of ours, made when it is first named."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.sessions: dict[str, str] = {}

    async def session(self, recorded: str) -> str:
        if recorded == "home-placeholder":
            return recorded
        if recorded not in self.sessions:
            answer = await self.client.post("/ui/api/v1/sessions/create", "")
            self.sessions[recorded] = answer.json()["sessionId"]
        return self.sessions[recorded]

    async def send(self, request: Json) -> tuple[str, int, str, bytes]:
        """The path as the dialect has it, and the answer."""
        path = request["path"].removeprefix("/some/prefix")
        query = {key: values[0] for key, values in parse_qs(request["query"], keep_blank_values=True).items()}
        body = request["body"]
        if "sessionId" in query:
            query["sessionId"] = await self.session(query["sessionId"])
        if body is not None and "sessionId" in body:
            recorded = body["sessionId"]
            body = body | {"sessionId": await self.session(recorded)}
            if path.endswith("/delete"):
                del self.sessions[recorded]
        if not path.startswith("/p9fg"):
            path = f"/ui{path}"
        answer = await soon(
            self.client.http.request(
                request["method"],
                f"{path}?{urlencode(query)}",
                content=b"" if body is None else json.dumps(body),
                headers={"content-type": request["content_type"]} if request["content_type"] else {},
            )
        )
        return path, answer.status_code, answer.headers["content-type"], answer.content


@pytest.fixture(scope="module")
async def replay(embedded_server: Server, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Replay]:
    root = tmp_path_factory.mktemp("workspace")
    (root / "README.md").write_text("hello")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("app.dialects.tarko_ui.settling.LONGEST_WAY", 0.0)  # no browser is here
        async with own_database(embedded_server) as url, serving(url, Equipped(), workspace=root) as server:
            replay = Replay(await server.client())
            await replay.session("one that was there before")
            yield replay


def requests() -> list[Json]:
    _, *lines = REQUESTS.read_text().splitlines()
    return [json.loads(line) for line in lines]


async def test_every_recorded_request_is_answered_with_what_the_ui_reads(replay: Replay) -> None:
    sent = 0
    for request in requests():
        if NOT_OURS.fullmatch(request["path"]):
            continue
        sent += 1
        path, status, kind, content = await replay.send(request)
        assert status == request["status"], (request, content[:300])
        if path.startswith("/ui/api/v1/"):
            _check(request["method"], path.removeprefix("/ui/api/v1/"), request, kind, content)
        elif path.startswith("/ui"):
            assert PAGE.fullmatch(path.removeprefix("/ui")), path
            assert b"tarko-server" in content
        else:
            assert content.startswith(b"wOF2")
    assert sent == 468


def _check(method: str, route: str, request: Json, kind: str, content: bytes) -> None:
    if route == "sessions/query/stream":
        assert kind.startswith("text/event-stream")
        last = content.decode().strip().split("\n\n")[-1]
        assert json.loads(last.removeprefix("data: "))["type"] == "agent_run_end"
        return
    assert kind == "application/json"
    body = json.loads(content)
    fields = SETTINGS[method] if route.endswith("runtime-settings") else FIELDS[route]
    for field in fields:
        _field(body, field, request)


def _field(body: Any, field: str, request: Json) -> None:
    found = body
    for step in field.split("."):
        assert (int(step) < len(found)) if isinstance(found, list) else step in found, (field, request, body)
        found = found[int(step)] if isinstance(found, list) else found[step]


def test_the_recording_is_whole_and_the_page_asks_where_it_did() -> None:
    assert len(requests()) == 505
    fonts = {request["path"] for request in requests() if request["path"].startswith("/p9fg")}
    assert fonts
    assert all(path.startswith(assets().font_path) for path in fonts)
