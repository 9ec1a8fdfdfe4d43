"""The OpenAPI document is valid, and the server does what it says, whatever it is sent."""

import asyncio
import json
import random
from typing import Any

import hypothesis
import jsonschema
import pytest
import requests
import schemathesis
from hypothesis import HealthCheck
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.core.errors import SerializationNotPossible
from schemathesis.specs.openapi import checks

from app.agents.contract import AgentEvent
from tests.server import Client, Json, said, saying

STREAM = "GET /api/v1/sessions/events/stream"
"""It never ends, so it is tried apart."""

CHECKS = [
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_headers_conformance,
    checks.response_schema_conformance,
]
FAILED_TURN = (502, 504)
EXAMPLES = 12
OPERATIONS = [
    "POST /api/v1/sessions/create",
    "GET /api/v1/sessions",
    "GET /api/v1/sessions/details",
    "GET /api/v1/sessions/status",
    "GET /api/v1/sessions/queue",
    "POST /api/v1/sessions/update",
    "POST /api/v1/sessions/delete",
    "GET /api/v1/sessions/events",
    "POST /api/v1/sessions/events",
    "GET /api/v1/events/schema",
    "POST /api/v1/sessions/query",
    "POST /api/v1/sessions/query/stream",
    "POST /api/v1/sessions/abort",
    "POST /api/v1/oneshot/query",
    "POST /api/v1/oneshot/query/stream",
    "POST /invoke",
    "GET /healthz",
    "GET /readyz",
    "GET /api/v1/health",
    "GET /api/v1/version",
    "GET /metrics",
    "GET /api/v1/overview",
    "POST /ui/api/v1/sessions/create",
    "GET /ui/api/v1/sessions",
    "GET /ui/api/v1/sessions/details",
    "GET /ui/api/v1/sessions/status",
    "POST /ui/api/v1/sessions/update",
    "POST /ui/api/v1/sessions/delete",
    "GET /ui/api/v1/sessions/events",
    "GET /ui/api/v1/sessions/events/spelling",
    "GET /ui/api/v1/sessions/events/latest",
    "POST /ui/api/v1/sessions/query",
    "POST /ui/api/v1/sessions/query/stream",
    "POST /ui/api/v1/sessions/abort",
    "POST /ui/api/v1/sessions/generate-summary",
    "POST /ui/api/v1/sessions/share",
    "GET /ui/api/v1/share/config",
    "GET /ui/api/v1/models",
    "POST /ui/api/v1/sessions/model",
    "GET /ui/api/v1/agent/options",
    "GET /ui/api/v1/runtime-settings",
    "POST /ui/api/v1/runtime-settings",
    "GET /ui/api/v1/sessions/runtime-settings",
    "POST /ui/api/v1/sessions/runtime-settings",
    "GET /ui/api/v1/sessions/workspace/search",
    "POST /ui/api/v1/sessions/workspace/validate",
    "GET /ui/api/v1/sessions/workspace/files",
    "POST /ui/api/v1/oneshot/query",
    "POST /ui/api/v1/oneshot/query/stream",
    "GET /ui/api/v1/health",
    "GET /ui/api/v1/version",
]


@pytest.fixture
async def document(client: Client) -> Json:
    found: Json = (await client.get("/openapi.json")).json()
    return found


def operations(document: Json) -> dict[str, Json]:
    return {
        f"{method.upper()} {path}": operation
        for path, item in document["paths"].items()
        for method, operation in item.items()
    }


async def test_the_document_is_valid(document: Json) -> None:
    schemathesis.openapi.from_dict(document).validate()


async def test_every_operation_is_tried_and_described(document: Json) -> None:
    assert set(operations(document)) == {*OPERATIONS, STREAM}
    for name, operation in operations(document).items():
        assert operation.get("description"), name
        assert operation["tags"], name


async def test_every_refusal_has_the_one_shape(document: Json) -> None:
    for name, operation in operations(document).items():
        for status, response in operation["responses"].items():
            if status[0] in "45" and (name, status) != ("GET /readyz", "503"):
                schema = response["content"]["application/json"]["schema"]
                assert schema == {"$ref": "#/components/schemas/Refusal"}, (name, status)
        takes_keys = any(each["name"] == "idempotency-key" for each in operation.get("parameters", ()))
        assert ("422" in operation["responses"]) == takes_keys, name


async def test_bodies_have_examples_that_are_right(document: Json) -> None:
    for name in ("CreateSession", "ClientEvent", "Created"):
        properties = document["components"]["schemas"][name]["properties"]
        assert any("examples" in field for field in properties.values()), name
    example = operations(document)[STREAM]["responses"]["200"]["content"]["text/event-stream"]["example"]
    event = json.loads(example.split("data: ")[1])
    schema = {**document["components"]["schemas"]["EventEnvelope"], "components": document["components"]}
    jsonschema.validate(event, schema)


@pytest.mark.parametrize("name", OPERATIONS)
async def test_whatever_is_sent_the_answer_is_one_that_the_document_declares(
    client: Client, document: Json, name: str
) -> None:
    """F8. Half of what is sent names a session that there is."""
    failed: AgentEvent = {"type": "failed", "details": "no", "retryable": False}
    client.server.agent.for_prompt[""] = saying(said("x"), failed, ends=False)
    session_id = await client.session()
    await client.query(session_id)
    await asyncio.to_thread(fuzz, client.server.url, document, name, session_id)


def fuzz(url: str, document: Json, name: str, session_id: str) -> None:
    operation = schemathesis.openapi.from_dict(document).find_operation_by_label(name)
    assert operation is not None
    cases = st.one_of(
        [operation.as_strategy(mode) for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE)]
    )
    with requests.Session() as session:
        session.trust_env = False

        @hypothesis.settings(
            max_examples=EXAMPLES,
            derandomize=True,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
        )
        @hypothesis.given(case=cases, names_session=st.booleans())
        def sends(case: Any, names_session: bool) -> None:
            for part in (case.body, case.query):
                if names_session and isinstance(part, dict) and "sessionId" in part:
                    part["sessionId"] = session_id
            try:
                response = case.call(base_url=url, session=session, timeout=60)
            except SerializationNotPossible:
                return
            assert response.status_code < 500 or response.status_code in FAILED_TURN, response.text
            assert b"Traceback" not in response.content
            assert b'File "' not in response.content
            if response.status_code < 300 and "text/event-stream" in response.headers["content-type"][0]:
                return
            case.validate_response(response, checks=CHECKS)

        try:
            sends()
        except BaseExceptionGroup as failures:  # no Exception: it would end the loop of all tests
            raise AssertionError(str(failures)) from failures


async def test_the_live_stream_refuses_what_is_wrong_and_opens_otherwise(client: Client) -> None:
    chance = random.Random(0)  # noqa: S311 - the same requests each time
    session_id = await client.session()
    values = [
        "",
        "0",
        "1",
        "-1",
        "now",
        "start",
        "\x00",
        "é",
        "x" * 300,
        "evt_1",
        f"evt_{session_id[5:]}_1~1",
        "1" * 30,
    ]
    for _ in range(60):
        names = chance.sample(["after", "from", "sessionId", "last"], k=chance.randrange(1, 5))
        params = {"sessionId": session_id} | {name: chance.choice(values) for name in names}
        last = params.pop("last", "").encode().replace(b"\x00", b"")
        request = client.http.build_request(
            "GET", "/api/v1/sessions/events/stream", params=params, headers=[(b"last-event-id", last)]
        )
        response = await client.http.send(request, stream=True)
        if response.status_code == 200:
            assert response.headers["content-type"].startswith("text/event-stream")
            assert (await anext(response.aiter_raw())).startswith(b"retry: ")
        else:
            assert response.status_code in (400, 404), params
            assert set(json.loads(await response.aread())) <= {"error", "code", "details"}
        await response.aclose()


async def test_every_event_of_a_mixed_session_is_what_the_schema_says(client: Client) -> None:
    """Every type that the server writes is among them."""
    session_id = await client.session()
    schema = (await client.get("/api/v1/events/schema")).json()
    validator = jsonschema.Draft202012Validator(schema)
    validator.check_schema(schema)
    tools: list[AgentEvent] = [
        {"type": "thinking", "delta": "hm"},
        said("a"),
        {"type": "tool_started", "id": "t", "name": "n", "args": 5},
        {"type": "tool_started", "id": "t", "name": "n", "args": None},
        {"type": "tool_ended", "id": "t", "isError": True, "content": {"x": 1}},
        {"type": "tool_ended", "id": "unknown", "isError": False, "content": None},
        {"type": "retrying", "attempt": 1, "maxAttempts": 2, "delayMs": 5, "reason": "r"},
        {"type": "user_message", "odd": True},
        said("b"),
    ]
    failed: AgentEvent = {"type": "failed", "details": "no", "retryable": True}
    for script in (
        saying(*tools),
        saying(*tools, failed, ends=False),
        saying(*tools, ends=False),
        saying({"type": "completed", "data": None}, ends=False),
    ):
        client.server.agent.in_session[session_id] = script
        await client.query(session_id, [{"type": "text", "text": "parts"}])
    await client.append(session_id, "user_feedback", [1, 2])
    async with client.stream(session_id, last="0") as stream:
        await stream.upto("user_feedback")
        await client.delete(session_id)
        await stream.rest()

    events = [json.loads(line[6:]) for line in bytes(stream.raw).splitlines() if line.startswith(b"data: ")]

    for event in events:
        validator.validate(event)
    known = {variant["properties"]["type"].get("const") for variant in schema["oneOf"]} - {None}
    assert {event["type"] for event in events} >= known
    assert {event["type"] for event in events} - known == {"retrying", "agent.user_message", "user_feedback"}


def test_the_schema_refuses_an_event_with_a_wrong_field() -> None:
    from app.dialects.tarko.schema import event_schema

    event = {
        "id": "e",
        "type": "error",
        "timestamp": 1,
        "sessionId": "s",
        "metadata": {},
        "data": {"error": "x"},
    }

    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(event, event_schema())
