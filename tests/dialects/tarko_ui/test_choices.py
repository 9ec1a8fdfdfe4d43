"""Models, settings and the workspace over HTTP: what the UI asks for, and who may ask."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

from app.errors import AgentLoadError, ConfigurationError
from app.main import Application
from app.settings import Settings
from tests.conftest import Server, own_database
from tests.dialects.tarko_ui.choosing import LARGE, SCHEMA, SMALL, Choosing
from tests.server import Client, Json, Scripted, Serving, serving

TOKENS = "alice=alice-token-alice-token,bob=bob-token-bob-token-bob"
PATHS = ("/ui/api/v1/runtime-settings", "/ui/api/v1/sessions/runtime-settings")
MODEL = "/ui/api/v1/sessions/model"
NOBODY = "sess_" + "a" * 26


@pytest.fixture(scope="module")
async def choosing(
    embedded_server: Server, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Serving]:
    root = tmp_path_factory.mktemp("workspace")
    (root / "README.md").write_text("hello")
    (root.parent / f"{root.name}-evil").mkdir()
    (root.parent / f"{root.name}-evil" / "secret").write_text("s")
    async with (
        own_database(embedded_server) as url,
        serving(url, Choosing(), tokens=TOKENS, workspace=root) as server,
    ):
        yield server


@pytest.fixture
async def alice(choosing: Serving) -> Client:
    return await choosing.client("alice-token-alice-token")


@pytest.fixture
async def bob(choosing: Serving) -> Client:
    return await choosing.client("bob-token-bob-token-bob")


async def answer(client: Client, session_id: str) -> str:
    return str((await client.query(session_id)).json()["response"])


async def made(client: Client, body: Any = None) -> Json:
    response = await client.post("/ui/api/v1/sessions/create", {} if body is None else body)
    assert response.status_code == 201, response.text
    found: Json = response.json()
    return found


async def settings(client: Client, path: str = PATHS[0], **params: Any) -> Json:
    response = await client.get(path, **params)
    assert response.status_code == 200, response.text
    found: Json = response.json()
    return found


def code(response: Any, status: int) -> str:
    assert response.status_code == status, response.text
    return str(response.json()["code"])


async def test_the_models_are_those_of_the_agent_the_default_first(alice: Client) -> None:
    assert (await alice.get("/ui/api/v1/models")).json() == {"models": [SMALL, LARGE]}


async def test_a_chosen_model_reaches_the_agent(alice: Client) -> None:
    session = (await made(alice))["session"]
    assert session["metadata"]["modelConfig"] == SMALL
    assert await answer(alice, session["id"]) == "small False long"

    chosen = await alice.post(MODEL, {"sessionId": session["id"], "model": LARGE})

    assert (chosen.status_code, chosen.json()["success"]) == (200, True)
    assert chosen.json()["sessionInfo"]["metadata"]["modelConfig"] == LARGE
    assert await answer(alice, session["id"]) == "large False long"
    details = (await alice.get("/ui/api/v1/sessions/details", sessionId=session["id"])).json()["session"]
    assert details["metadata"]["modelConfig"] == LARGE


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ({"id": "huge"}, "unknown_model"),
        ({"id": "large", "provider": "other"}, "unknown_model"),
        ({}, "bad_request"),
        ({"id": 3}, "bad_request"),
        (3, "bad_request"),
    ],
)
async def test_a_model_that_is_not_allowed_is_refused(alice: Client, model: Any, expected: str) -> None:
    session_id = (await made(alice))["sessionId"]
    assert code(await alice.post(MODEL, {"sessionId": session_id, "model": model}), 400) == expected
    assert await answer(alice, session_id) == "small False long"


@pytest.mark.parametrize("path", PATHS)
async def test_the_settings_are_told_with_and_without_a_session(alice: Client, path: str) -> None:
    session_id = (await made(alice))["sessionId"]
    defaults = {"deep": False, "style": "long"}
    assert await settings(alice, path) == {"schema": SCHEMA, "currentValues": {}}
    assert await settings(alice, path, sessionId="home-placeholder") == {
        "schema": SCHEMA,
        "currentValues": defaults,
    }
    assert (await settings(alice, path, sessionId=session_id))["currentValues"] == defaults

    chosen = await alice.post(
        path, {"sessionId": session_id, "runtimeSettings": {"deep": True, "style": "short"}}
    )

    assert chosen.status_code == 200
    assert chosen.json()["runtimeSettings"] == {"deep": True, "style": "short"}
    assert chosen.json()["session"]["metadata"]["runtimeSettings"] == {"deep": True, "style": "short"}
    assert (await settings(alice, path, sessionId=session_id))["currentValues"] == {
        "deep": True,
        "style": "short",
    }
    assert await answer(alice, session_id) == "small True short"
    await alice.post(path, {"sessionId": session_id, "runtimeSettings": {"deep": True}})
    assert await answer(alice, session_id) == "small True long"


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"deep": "yes"}, "bad_settings"),
        ({"style": "medium"}, "bad_settings"),
        ({"depth": True}, "bad_settings"),
        ([], "bad_request"),
        (None, "bad_request"),
    ],
)
async def test_wrong_settings_are_refused_and_change_nothing(
    alice: Client, values: Any, expected: str
) -> None:
    session_id = (await made(alice))["sessionId"]
    body = {"sessionId": session_id, "runtimeSettings": values}
    refused = await alice.post(PATHS[0], body)
    assert code(refused, 400) == expected
    assert await answer(alice, session_id) == "small False long"
    if expected == "bad_settings":
        assert refused.json()["details"]["problems"][0]["field"] in values


async def test_settings_chosen_before_there_is_a_session_are_its_own(alice: Client) -> None:
    session = (await made(alice, {"runtimeSettings": {"deep": True}, "agentOptions": {}}))["session"]
    assert session["metadata"]["runtimeSettings"] == {"deep": True, "style": "long"}
    assert await answer(alice, session["id"]) == "small True long"
    refused = await alice.post("/ui/api/v1/sessions/create", {"runtimeSettings": {"deep": 3}})
    assert code(refused, 400) == "bad_settings"


async def test_the_uis_update_of_the_metadata_chooses_nothing(alice: Client) -> None:
    session_id = (await made(alice))["sessionId"]
    metadata = {"modelConfig": LARGE, "runtimeSettings": {"deep": True}}
    updated = await alice.post("/ui/api/v1/sessions/update", {"sessionId": session_id, "metadata": metadata})
    assert updated.status_code == 200
    assert await answer(alice, session_id) == "small False long"


async def test_what_is_not_allowed_can_not_be_smuggled_in(alice: Client) -> None:
    session_id = (await made(alice))["sessionId"]
    smuggled = {
        "modelConfig": {"id": "huge", "provider": "acme"},
        "runtimeSettings": {"deep": "x"},
        "mine": 1,
    }
    for path in ("/ui/api/v1/sessions/update", "/api/v1/sessions/update"):
        response = await alice.post(path, {"sessionId": session_id, "metadata": smuggled})
        assert response.status_code == 200
    details = (await alice.get("/ui/api/v1/sessions/details", sessionId=session_id)).json()["session"]
    assert details["metadata"]["mine"] == 1
    assert details["metadata"]["modelConfig"] == SMALL
    assert details["metadata"]["runtimeSettings"] == {"deep": False, "style": "long"}
    assert await answer(alice, session_id) == "small False long"


async def test_model_settings_and_name_can_be_changed_at_the_same_time(alice: Client) -> None:
    session_id = (await made(alice))["sessionId"]
    named = {"sessionId": session_id}
    for number in range(10):
        answers = await asyncio.gather(
            alice.post(MODEL, named | {"model": LARGE}),
            alice.post(PATHS[number % 2], named | {"runtimeSettings": {"deep": True}}),
            alice.post("/ui/api/v1/sessions/update", named | {"metadata": {f"key{number}": number}}),
        )
        assert {response.status_code for response in answers} == {200}
    details = (await alice.get("/ui/api/v1/sessions/details", sessionId=session_id)).json()["session"][
        "metadata"
    ]
    assert [details[f"key{number}"] for number in range(10)] == list(range(10))
    assert await answer(alice, session_id) == "large True long"


async def test_choices_survive_a_restart_and_an_agent_that_changes(embedded_server: Server) -> None:
    async with own_database(embedded_server) as url:
        async with serving(url, Choosing()) as server:
            client = await server.client()
            session_id = (await made(client))["sessionId"]
            await client.post(MODEL, {"sessionId": session_id, "model": LARGE})
            await client.post(PATHS[0], {"sessionId": session_id, "runtimeSettings": {"deep": True}})
        async with serving(url, Choosing()) as server:
            assert await answer(await server.client(), session_id) == "large True long"

        class Changed(Choosing):
            allowed_models: ClassVar[list[Json]] = [SMALL]
            settings_schema: ClassVar[Json] = {
                "properties": {**SCHEMA["properties"], "deep": {"type": "string", "default": "very"}}
            }

        async with serving(url, Changed()) as server:
            assert await answer(await server.client(), session_id) == "small very long"


async def test_an_agent_without_choices_has_none(embedded_server: Server) -> None:
    async with own_database(embedded_server) as url, serving(url) as server:
        client = await server.client()
        created = await made(client)
        assert created["session"]["metadata"].keys() & {"modelConfig", "runtimeSettings"} == set()
        empty = {"schema": {"type": "object", "properties": {}}, "currentValues": {}}
        assert await settings(client, sessionId=created["sessionId"]) == empty
        assert (await client.get("/ui/api/v1/models")).json() == {"models": []}
        refused = await client.post(MODEL, {"sessionId": created["sessionId"], "model": SMALL})
        assert code(refused, 400) == "unknown_model"
        assert (await client.get("/ui/api/v1/agent/options")).json() == {
            "options": {"id": "scripted", "name": "scripted"}
        }
        named = {"sessionId": created["sessionId"]}
        search = await client.get("/ui/api/v1/sessions/workspace/search", **named, q="READ")
        assert search.json() == {"items": []}
        validate = f"/ui/api/v1/sessions/workspace/validate?sessionId={created['sessionId']}"
        assert (await client.post(validate, {"paths": ["a"]})).json() == {
            "results": [{"path": "a", "exists": False}]
        }
        assert code(await client.get("/ui/api/v1/sessions/workspace/files", **named), 404) == "file_not_found"


async def test_bad_declarations_and_workspaces_are_refused_at_start(
    embedded_server: Server, tmp_path: Path
) -> None:
    class Bad(Scripted):
        allowed_models: ClassVar[list[Any]] = [3]

    async with own_database(embedded_server) as url:
        with pytest.raises(AgentLoadError):
            async with Application(Settings(database_url=url), Bad()).started():
                pass
        with pytest.raises(ConfigurationError):
            async with Application(
                Settings(database_url=url, workspace=tmp_path / "nothing"), Scripted()
            ).started():
                pass


async def test_what_is_told_of_the_agent_has_no_secret(choosing: Serving, alice: Client) -> None:
    told = await alice.get("/ui/api/v1/agent/options")
    root = choosing.application.settings.workspace
    assert root is not None
    assert told.json() == {
        "options": {
            "id": "scripted",
            "name": "scripted",
            "model": SMALL,
            "workspace": root.name,
            "workspaceName": root.name,
        }
    }
    assert str(root) not in told.text


async def test_files_are_searched_validated_and_read(alice: Client) -> None:
    session_id = (await made(alice))["sessionId"]
    readme = {"name": "README.md", "path": "README.md", "relativePath": "README.md", "type": "file"}
    base = "/ui/api/v1/sessions/workspace"
    for params in ({"q": "", "type": "all"}, {"q": "READ"}, {"type": "file"}, {}):
        assert (await alice.get(f"{base}/search", sessionId=session_id, **params)).json() == {
            "items": [readme]
        }
    assert (await alice.get(f"{base}/search", sessionId=session_id, type="directory")).json() == {"items": []}
    assert code(await alice.get(f"{base}/search", sessionId=session_id, type="other"), 400) == "bad_request"
    paths = ["README.md", "", "../x", "nothing"]
    validated = (await alice.post(f"{base}/validate?sessionId={session_id}", {"paths": paths})).json()[
        "results"
    ]
    assert validated == [
        {"path": "README.md", "exists": True, "type": "file"},
        {"path": "", "exists": True, "type": "directory"},
        {"path": "../x", "exists": False},
        {"path": "nothing", "exists": False},
    ]
    assert code(await alice.post(f"{base}/validate?sessionId={session_id}", {"paths": ["x"] * 101}), 400)
    assert code(await alice.post(f"{base}/validate", {"paths": []}), 400) == "bad_request"
    in_body = await alice.post(f"{base}/validate", {"paths": ["README.md"], "sessionId": session_id})
    assert in_body.json()["results"] == validated[:1]
    file = (await alice.http.get(f"{base}/files?sessionId={session_id}&path=README.md")).json()
    assert (file["content"], file["type"]) == ("hello", "file")
    listed = (await alice.get(f"{base}/files", sessionId=session_id)).json()
    assert [entry["name"] for entry in listed["entries"]] == ["README.md"]


@pytest.mark.parametrize(
    "path",
    ["..", "%2e%2e", "%2e%2e%2f", "/etc/passwd", "%2fetc%2fpasswd", "README.md%00", "..%2f{evil}%2fsecret"],
)
async def test_no_path_in_a_url_leads_out(choosing: Serving, alice: Client, path: str) -> None:
    root = choosing.application.settings.workspace
    assert root is not None
    session_id = (await made(alice))["sessionId"]
    spelled = path.format(evil=f"{root.name}-evil")
    url = f"/ui/api/v1/sessions/workspace/files?sessionId={session_id}&path={spelled}"
    refused = await alice.http.get(url)
    assert code(refused, 404) in ("file_not_found", "not_found")


async def test_nobody_chooses_or_looks_in_a_session_of_somebody_else(alice: Client, bob: Client) -> None:
    session_id = (await made(alice, {"runtimeSettings": {"deep": True}}))["sessionId"]
    validate = "/ui/api/v1/sessions/workspace/validate?sessionId="
    for named in (session_id, NOBODY):
        body = {"sessionId": named}
        refusals = [
            await bob.post(MODEL, body | {"model": LARGE}),
            await bob.post(PATHS[0], body | {"runtimeSettings": {}}),
            await bob.post(PATHS[1], body | {"runtimeSettings": {}}),
            await bob.get("/ui/api/v1/sessions/workspace/search", **body),
            await bob.get("/ui/api/v1/sessions/workspace/files", **body),
            await bob.post(f"{validate}{named}", {"paths": []}),
        ]
        assert {code(refused, 404) for refused in refusals} == {"session_not_found"}
        assert (await settings(bob, sessionId=named))["currentValues"] == {"deep": False, "style": "long"}
    assert await answer(alice, session_id) == "small True long"
