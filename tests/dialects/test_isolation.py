"""Two principals on one server: neither sees, counts or touches what is the other's."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest
from websockets.exceptions import InvalidStatus

from app.access.gate import PUBLIC_PATHS
from tests.conftest import Server, own_database
from tests.server import Client, Json, Serving, Step, said, serving, soon

TOKENS = "alice=alice-token-alice-token,bob=bob-token-bob-token-bob"
NOBODY = "sess_" + "a" * 26
NO_TURN = "turn_" + "a" * 26

OF_A_SESSION: dict[tuple[str, str], Json] = {
    ("post", "/api/v1/sessions/query"): {"query": "x"},
    ("post", "/api/v1/sessions/query/stream"): {"query": "x"},
    ("post", "/api/v1/sessions/abort"): {},
    ("post", "/api/v1/sessions/update"): {"name": "stolen"},
    ("post", "/api/v1/sessions/delete"): {},
    ("post", "/api/v1/sessions/events"): {"type": "note"},
    ("get", "/api/v1/sessions/details"): {},
    ("get", "/api/v1/sessions/status"): {},
    ("get", "/api/v1/sessions/queue"): {},
    ("get", "/api/v1/sessions/events"): {},
    ("get", "/api/v1/sessions/events/stream"): {},
    ("post", "/ui/api/v1/sessions/query"): {"query": "x"},
    ("post", "/ui/api/v1/sessions/query/stream"): {"query": "x"},
    ("post", "/ui/api/v1/sessions/abort"): {},
    ("post", "/ui/api/v1/sessions/update"): {"metadata": {"name": "stolen"}},
    ("post", "/ui/api/v1/sessions/delete"): {},
    ("post", "/ui/api/v1/sessions/generate-summary"): {"messages": [{"content": "x"}]},
    ("post", "/ui/api/v1/sessions/share"): {},
    ("get", "/ui/api/v1/sessions/details"): {},
    ("get", "/ui/api/v1/sessions/status"): {},
    ("get", "/ui/api/v1/sessions/events"): {},
    ("get", "/ui/api/v1/sessions/events/spelling"): {"eventId": "1"},
    ("post", "/ui/api/v1/sessions/model"): {"model": {"id": "x", "provider": "x"}},
    ("post", "/ui/api/v1/runtime-settings"): {"runtimeSettings": {}},
    ("post", "/ui/api/v1/sessions/runtime-settings"): {"runtimeSettings": {}},
    ("get", "/ui/api/v1/sessions/workspace/search"): {"q": "x"},
    ("post", "/ui/api/v1/sessions/workspace/validate"): {"paths": ["x"]},
    ("get", "/ui/api/v1/sessions/workspace/files"): {},
}
"""Every operation with a `sessionId`, and what else it needs."""

OF_NONE = {
    ("post", "/api/v1/sessions/create"),
    ("get", "/api/v1/sessions"),
    ("post", "/api/v1/oneshot/query"),
    ("post", "/api/v1/oneshot/query/stream"),
    ("post", "/invoke"),
    ("get", "/api/v1/events/schema"),
    ("get", "/metrics"),
    ("get", "/api/v1/overview"),
    ("post", "/ui/api/v1/sessions/create"),
    ("get", "/ui/api/v1/sessions"),
    ("get", "/ui/api/v1/sessions/events/latest"),
    ("post", "/ui/api/v1/oneshot/query"),
    ("post", "/ui/api/v1/oneshot/query/stream"),
    ("get", "/ui/api/v1/share/config"),
    ("get", "/ui/api/v1/models"),
    ("get", "/ui/api/v1/agent/options"),
    ("get", "/ui/api/v1/runtime-settings"),
    ("get", "/ui/api/v1/sessions/runtime-settings"),
    ("get", "/ui/api/v1/health"),
    ("get", "/ui/api/v1/version"),
    *(("get", path) for path in PUBLIC_PATHS if path not in ("/login", "/logout")),
}
"""Every other operation."""


@dataclass
class Two:
    """The two, and a session of Alice's in which a turn runs."""

    server: Serving
    alice: Client
    bob: Client
    session_id: str
    turn_id: str


@pytest.fixture
async def two(shared: Serving) -> AsyncIterator[Two]:
    alice, bob = (
        await shared.client("alice-token-alice-token"),
        await shared.client("bob-token-bob-token-bob"),
    )
    step = Step()

    async def agent(*_: Any) -> AsyncIterator[Json]:
        yield said("secret")  # type: ignore[misc]
        await step.wait()
        yield {"type": "completed"}

    session_id = await alice.session(agent, name="secret")
    turn = asyncio.create_task(alice.query(session_id))
    await soon(step.reached.wait())
    turn_id = (await alice.status(session_id))["turnId"]
    yield Two(shared, alice, bob, session_id, turn_id)
    step.passed.set()
    assert (await soon(turn)).json()["status"] == "completed", "somebody touched it"


@pytest.fixture(scope="module")
async def shared(embedded_server: Server) -> AsyncIterator[Serving]:
    """A server that asks for tokens."""
    async with own_database(embedded_server) as url, serving(url, tokens=TOKENS) as server:
        yield server


async def ask(client: Client, operation: tuple[str, str], fields: Json) -> tuple[int, str, str]:
    method, path = operation
    # One route has the session in its query and a body besides; to the others that tells nothing new.
    url = f"{path}?sessionId={fields['sessionId']}"
    response = await (client.get(path, **fields) if method == "get" else client.post(url, fields))
    body = response.json()
    return response.status_code, body["code"], body["error"]


async def test_every_operation_is_in_these_lists(two: Two) -> None:
    """A new route must say which of the two it is."""
    document = (await two.alice.get("/openapi.json")).json()

    operations = {(method, path) for path, item in document["paths"].items() for method in item}

    assert operations == set(OF_A_SESSION) | OF_NONE


@pytest.mark.parametrize("operation", OF_A_SESSION, ids=" ".join)
async def test_a_session_of_somebody_else_is_one_that_never_was(two: Two, operation: tuple[str, str]) -> None:
    fields = OF_A_SESSION[operation]

    foreign = await ask(two.bob, operation, {"sessionId": two.session_id, **fields})
    unknown = await ask(two.bob, operation, {"sessionId": NOBODY, **fields})

    assert foreign[:2] == (404, "session_not_found")
    assert foreign[2].replace(two.session_id, NOBODY) == unknown[2]
    assert unknown[:2] == foreign[:2]


async def test_a_turn_of_somebody_else_is_one_that_never_was(two: Two) -> None:
    mine = await two.bob.session()
    for operation in (("post", "/api/v1/sessions/abort"), ("get", "/api/v1/sessions/events")):
        foreign = await ask(two.bob, operation, {"sessionId": mine, "turnId": two.turn_id})
        unknown = await ask(two.bob, operation, {"sessionId": mine, "turnId": NO_TURN})
        assert foreign[:2] == unknown[:2] == (404, "turn_not_found")
        assert foreign[2].replace(two.turn_id, NO_TURN) == unknown[2]


async def test_a_cursor_of_somebody_else_is_refused_before_it_tells_anything(two: Two) -> None:
    mine = await two.bob.session()
    part = two.session_id.removeprefix("sess_")
    for path in ("/api/v1/sessions/events", "/api/v1/sessions/events/stream"):
        answers = [
            await ask(two.bob, ("get", path), {"sessionId": mine, "after": f"evt_{part}_{place}"})
            for place in (1, 10**9)
        ]
        assert {answer[:2] for answer in answers} == {(400, "bad_cursor")}
    response = await two.bob.http.get(
        "/api/v1/sessions/events/stream",
        params={"sessionId": mine},
        headers={"last-event-id": f"evt_{part}_1"},
    )
    assert (response.status_code, response.json()["code"]) == (400, "bad_cursor")


async def test_lists_have_only_what_is_ones_own_whatever_the_cursor(two: Two) -> None:
    mine = await two.bob.session()
    theirs = (await two.alice.get("/api/v1/sessions", limit=1)).json()["sessions"][0]

    lists = [
        (await two.bob.get("/api/v1/sessions", **params)).json()["sessions"]
        for params in ({}, {"after": f"{theirs['createdAt'] + 1000}.{theirs['id']}"})
    ]

    assert mine in [session["id"] for session in lists[0]]
    assert two.session_id not in str(lists)
    assert "secret" not in str(lists)


async def test_a_socket_can_do_nothing_with_a_foreign_session(two: Two) -> None:
    async with two.bob.socket() as socket:
        for message in (
            {"type": "join_session"},
            {"type": "join_session", "after": 1},
            {"type": "send_query", "query": "x"},
            {"type": "abort_query"},
            {"type": "abort_query", "turnId": two.turn_id},
        ):
            foreign = await socket.ask({**message, "sessionId": two.session_id}, "error")
            unknown = await socket.ask({**message, "sessionId": NOBODY}, "error")
            assert foreign["data"]["code"] == unknown["data"]["code"] == "session_not_found"
            assert foreign["sessionId"] == unknown["sessionId"] == ""
        left = await socket.ask({"type": "leave_session", "sessionId": two.session_id}, "session_left")
        assert left["data"] == {"sessionId": two.session_id}
        mine = await two.bob.session()
        await socket.ask({"type": "join_session", "sessionId": mine}, "session_start")
        answer = await socket.ask({"type": "abort_query", "sessionId": mine, "turnId": two.turn_id}, "error")
        assert answer["data"]["code"] == "turn_not_found"


async def test_a_deleted_session_is_told_to_its_owner_only(two: Two) -> None:
    session_id = await two.alice.session()
    await two.alice.delete(session_id)

    mine = await ask(two.alice, ("get", "/api/v1/sessions/status"), {"sessionId": session_id})
    theirs = await ask(two.bob, ("get", "/api/v1/sessions/status"), {"sessionId": session_id})

    assert mine[:2] == (404, "session_deleted")
    assert theirs[:2] == (404, "session_not_found")


async def test_the_agent_is_told_who_asks(two: Two) -> None:
    asked: list[Any] = []

    async def agent(scope: Any, _: Any) -> AsyncIterator[Json]:
        asked.append(scope["principal"])
        yield {"type": "completed"}

    for client in (two.alice, two.bob):
        await client.query(await client.session(agent))

    assert asked == ["alice", "bob"]


async def test_a_conversation_of_the_same_name_is_another_one_for_each_principal(two: Two) -> None:
    for client in (two.alice, two.bob, two.alice):
        response = await client.post("/invoke", {"session": "telegram:-100", "text": "Hello"})
        assert response.text.endswith('data: {"type":"completed"}\n\n')

    for client, turns in ((two.alice, 2), (two.bob, 1)):
        sessions = (await client.get("/api/v1/sessions")).json()["sessions"]
        (session,) = [each for each in sessions if each["name"] == "telegram:-100"]
        events = await client.events(session["id"])
        assert [event["type"] for event in events].count("agent_run_end") == turns


async def test_without_a_token_everything_but_the_public_paths_is_a_401(shared: Serving) -> None:
    nobody, wrong = await shared.client(), await shared.client("a-wrong-token-a-wrong-token")
    private = [
        operation
        for operation in {**OF_A_SESSION, **dict.fromkeys(OF_NONE)}
        if operation[1] not in PUBLIC_PATHS
    ]
    for client in (nobody, wrong):
        for method, path in [*private, ("get", "/openapi.json"), ("get", "/docs"), ("get", "/nowhere")]:
            response = await (client.get(path) if method == "get" else client.post(path, {}))
            assert response.status_code == 401, path
            assert response.json()["code"] == "unauthenticated"
            assert response.headers["www-authenticate"] == "Bearer"
    for path in ("/healthz", "/readyz", "/api/v1/health", "/api/v1/version"):
        assert (await nobody.get(path)).status_code == 200


async def test_a_handshake_without_a_token_is_refused(shared: Serving) -> None:
    for token in (None, "a-wrong-token-a-wrong-token"):
        client = await shared.client(token)
        with pytest.raises(InvalidStatus) as caught:
            async with client.socket():
                pass
        assert caught.value.response.status_code == 401


@pytest.mark.parametrize(
    "origin", ["https://evil.example", "null", "http://127.0.0.1.evil.example", "http://localhost:1"]
)
async def test_a_handshake_from_a_foreign_page_is_refused(shared: Serving, origin: str) -> None:
    """D34: though a good token comes with it."""
    client = await shared.client("alice-token-alice-token")
    with pytest.raises(InvalidStatus) as caught:
        async with client.socket(origin=origin):
            pass
    assert caught.value.response.status_code == 403
    async with client.socket(origin=shared.url) as socket:
        await socket.ask({"type": "ping"}, "pong")
