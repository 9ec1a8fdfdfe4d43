"""Queries, blocking and streamed, one-shot ones, client events, updates, deletes and the list of sessions."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from app.agents.contract import AgentEvent, Prompt, Scope
from app.dialects.tarko.answer import TurnAnswer
from app.errors import ConfigurationError
from app.events.envelope import Envelope
from app.log.session_log import Page
from app.settings import Settings
from app.wiring import running
from tests.conftest import Server, own_database
from tests.server import COMPLETED, HEADERS, Client, Json, Step, places, said, saying, serving, soon, types

QUERY = "/api/v1/sessions/query"
PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


def refusal(response: Any) -> tuple[int, str]:
    """A refusal's status and code, its shape checked."""
    body = response.json()
    assert set(body) <= {"error", "code", "details"}, body
    assert isinstance(body["error"], str)
    assert "Traceback" not in response.text
    return response.status_code, body["code"]


# ── what a query answers ─────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_completed_turn_is_answered_with_all_its_text(client: Client) -> None:
    session_id = await client.session(
        saying(
            {"type": "thinking", "delta": "not part of it"},
            said("one "),
            {"type": "tool_started", "id": "t", "name": "n", "args": {}},
            {"type": "tool_ended", "id": "t", "isError": False, "content": "r"},
            said("two"),
        )
    )

    response = await client.query(session_id)

    body = response.json()
    assert response.status_code == 200
    assert set(body) == {"response", "events", "status", "turnId"}
    assert (body["response"], body["status"]) == ("one two", "completed")
    assert body["events"] == (await client.events(session_id, deltas=False))[1:]
    assert body["events"][-1]["data"]["turnId"] == body["turnId"]


async def test_a_failed_turn_is_a_502_with_what_it_had_said(client: Client) -> None:
    failed: AgentEvent = {"type": "failed", "details": "no luck", "retryable": True, "code": "unlucky"}
    session_id = await client.session(saying(said("partial"), failed, ends=False))

    response = await client.query(session_id)

    assert refusal(response) == (502, "unlucky")
    body = response.json()
    assert body["error"] == "no luck"
    details = body["details"]
    assert set(details) == {"turnId", "status", "retryable", "response", "events"}
    assert (details["status"], details["retryable"], details["response"]) == ("failed", True, "partial")
    assert details["events"] == (await client.events(session_id, deltas=False))[1:]


async def test_a_failure_without_a_code_is_agent_failed(client: Client) -> None:
    failed: AgentEvent = {"type": "failed", "details": "no luck", "retryable": False}
    session_id = await client.session(saying(failed, ends=False))

    response = await client.query(session_id)

    assert refusal(response) == (502, "agent_failed")
    assert response.json()["details"]["retryable"] is False


async def test_a_turn_that_ran_out_of_time_is_a_504(client: Client) -> None:
    failed: AgentEvent = {"type": "failed", "details": "late", "retryable": True, "code": "deadline_exceeded"}
    session_id = await client.session(saying(failed, ends=False))

    assert refusal(await client.query(session_id)) == (504, "deadline_exceeded")


def test_an_answer_without_an_error_event_is_still_a_refusal() -> None:
    """An interrupted turn whose error cannot be read has an answer, too; deltas and other turns do not count."""
    event = Envelope("sess_x", 1, 1, "turn_x", "agent_run_end", 0, b'{"status":"interrupted"}', b"{}")
    answer = TurnAnswer("turn_x")
    answer.take(Page(0, 3, [event._replace(ordinal=None), event._replace(turn_id="turn_y"), event]))

    body = json.loads(answer.body())

    assert answer.http_status == 502
    assert (body["error"], body["code"]) == ("The turn failed.", "agent_failed")
    assert len(body["details"]["events"]) == 1


async def test_the_results_data_is_in_the_last_event(client: Client) -> None:
    session_id = await client.session(saying({"type": "completed", "data": {"n": [1, None]}}, ends=False))

    events = (await client.query(session_id)).json()["events"]

    assert events[-1]["data"]["data"] == {"n": [1, None]}


# ── clients that go ──────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("path", [QUERY, QUERY + "/stream"])
async def test_a_client_that_goes_stops_nothing(client: Client, path: str) -> None:
    step = Step()

    async def agent(_: Scope, __: Prompt) -> AsyncIterator[AgentEvent]:
        yield said("begun, ")
        await step.wait()
        yield said("ended")
        yield COMPLETED

    session_id = await client.session(agent)
    body = json.dumps({"sessionId": session_id, "query": "x"})
    asking = asyncio.create_task(client.http.post(path, content=body, headers=HEADERS))
    await soon(step.reached.wait())
    asking.cancel()
    await asyncio.wait([asking])
    async with client.stream(session_id) as stream:
        await stream.upto("assistant_message_delta")
        step.passed.set()
        events = await stream.upto("agent_run_end")

    assert events[-1]["data"]["status"] == "completed"
    assert events[-2]["data"]["content"] == "begun, ended"


# ── what is refused ──────────────────────────────────────────────────────────────────────────────────────────────────


async def test_the_defaults_may_be_said_aloud(client: Client) -> None:
    session_id = await client.session()

    response = await client.query(session_id, onBusy="reject", onDisconnect="continue", unknown={"x": 1})

    assert response.status_code == 200


@pytest.mark.parametrize("path", [QUERY, QUERY + "/stream"])
async def test_a_busy_session_refuses_with_the_running_turns_id(client: Client, path: str) -> None:
    step = Step()

    async def agent(_: Scope, __: Prompt) -> AsyncIterator[AgentEvent]:
        await step.wait()
        yield COMPLETED

    session_id = await client.session(agent)
    turn = asyncio.create_task(client.query(session_id))
    await soon(step.reached.wait())

    response = await client.post(path, {"sessionId": session_id, "query": "x"})
    step.passed.set()

    assert refusal(response) == (409, "session_busy")
    assert response.json()["details"] == {"turnId": (await soon(turn)).json()["turnId"]}


async def test_of_many_queries_at_once_one_runs_and_none_interleave(client: Client) -> None:
    """D11."""
    session_id = await client.session(saying(*(said("x") for _ in range(50))))

    answers = await asyncio.gather(*(client.query(session_id) for _ in range(20)))

    ran = [answer for answer in answers if answer.status_code == 200]
    assert {answer.status_code for answer in answers} == {200, 409}
    events = await client.events(session_id)
    ends = [event["data"]["turnId"] for event in events if event["type"] == "agent_run_end"]
    starts = [event["data"]["turnId"] for event in events if event["type"] == "agent_run_start"]
    assert starts == ends
    assert len(ends) == len(ran)


@pytest.mark.parametrize(
    "query",
    [
        None,
        5,
        {},
        [5],
        ["text"],
        [{}],
        [{"type": "text"}],
        [{"type": "text", "text": 5}],
        [{"type": "video", "url": "x"}],
        [{"type": "image_url", "image_url": {"url": "https://example.com/x.png"}}],
        [{"type": "image_url", "image_url": {"url": "data:image/png;base64,%%%"}}],
        [{"type": "image_url", "image_url": {"url": "data:image/png;base64,é"}}],
        [{"type": "image_url"}],
    ],
)
async def test_content_that_is_no_query_is_refused(client: Client, query: Any) -> None:
    session_id = await client.session()

    response = await client.query(session_id, query)

    assert response.status_code == 400
    assert refusal(response)[1] in ("bad_query", "bad_request")
    assert (await client.page(session_id))["total"] == 1


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ("{", "bad_json"),
        (b"\xff", "bad_json"),
        ('{"sessionId": NaN}', "bad_json"),
        ("[" * 100_000, "bad_json"),
        ("1" * 5000, "bad_json"),
        ("", "bad_request"),
        ("null", "bad_request"),
        ("[]", "bad_request"),
        ("{}", "bad_request"),
        ('{"sessionId": 5, "query": "x"}', "bad_request"),
        ('{"sessionId": "x"}', "bad_request"),
        ('{"sessionId": "x", "query": "x", "onBusy": "dance"}', "bad_request"),
        ('{"sessionId": "' + "x" * 201 + '", "query": "x"}', "bad_request"),
    ],
)
async def test_a_body_that_is_wrong_is_a_400_that_says_where(client: Client, body: Any, code: str) -> None:
    assert refusal(await client.post(QUERY, body)) == (400, code)


async def test_a_body_of_another_type_is_a_400(client: Client) -> None:
    response = await client.http.post(QUERY, content="sessionId=x", headers={"content-type": "text/plain"})

    assert refusal(response) == (400, "bad_request")


async def test_values_nested_too_deeply_are_refused_wherever_they_are_kept(client: Client) -> None:
    session_id = await client.session()
    deep = "[" * 400 + "]" * 400
    for path, fields in (
        (QUERY, f'"query": [{{"type": "text", "text": "x", "deep": {deep}}}]'),
        ("/api/v1/sessions/events", f'"type": "note", "data": {deep}'),
        ("/api/v1/sessions/update", f'"metadata": {{"deep": {deep}}}'),
    ):
        response = await client.post(path, f'{{"sessionId": "{session_id}", {fields}}}')
        assert response.status_code == 400, path
        refusal(response)


@pytest.mark.parametrize(
    "odd", ["../../x", "%2e%2e", "\x00", "sess_" + "A" * 26, "\u202e", "", "sess_" + "a" * 26]
)
async def test_ids_of_no_session_are_not_found_on_every_route(client: Client, odd: str) -> None:
    """D30."""
    for path, fields in (
        (QUERY, {"query": "x"}),
        (QUERY + "/stream", {"query": "x"}),
        ("/api/v1/sessions/abort", {}),
        ("/api/v1/sessions/abort", {"turnId": "turn_" + "a" * 26}),
        ("/api/v1/sessions/update", {"name": "x"}),
        ("/api/v1/sessions/delete", {}),
        ("/api/v1/sessions/events", {"type": "note"}),
    ):
        response = await client.post(path, {"sessionId": odd, **fields})
        assert refusal(response) == (404, "session_not_found"), path
    for path in ("details", "status", "events", "events/stream"):
        response = await client.get(f"/api/v1/sessions/{path}", sessionId=odd)
        assert refusal(response) == (404, "session_not_found"), path


async def test_unknown_paths_and_methods_are_refused_in_the_same_shape(client: Client) -> None:
    assert refusal(await client.get("/api/v1/nothing")) == (404, "not_found")
    response = await client.get(QUERY)
    assert refusal(response) == (405, "method_not_allowed")
    assert response.headers["allow"] == "POST"


# ── images ───────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_images_reach_the_agent_and_stay_in_the_message_as_they_came(client: Client) -> None:
    got: list[Prompt] = []

    async def agent(_: Scope, prompt: Prompt) -> AsyncIterator[AgentEvent]:
        got.append(prompt)
        yield COMPLETED

    session_id = await client.session(agent)
    parts = [
        {"type": "text", "text": "What"},
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}", "detail": "low"}},
        {"type": "text", "text": "is this?"},
    ]

    events = (await client.query(session_id, parts)).json()["events"]

    assert got == [{"text": "What\nis this?", "images": [{"mimeType": "image/png", "data": PNG}]}]
    assert events[0]["data"] == {"content": parts, "role": "user"}


# ── one-shot ─────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_one_shot_query_tells_its_session(client: Client) -> None:
    response = await client.post(
        "/api/v1/oneshot/query", {"query": "Hello", "sessionName": "once", "sessionTags": ["a"]}
    )

    body = response.json()
    assert response.status_code == 200
    assert set(body) == {"sessionId", "response", "events", "status", "turnId"}
    details = (await client.get("/api/v1/sessions/details", sessionId=body["sessionId"])).json()["session"]
    assert (details["name"], details["tags"]) == ("once", ["a"])


async def test_a_one_shot_query_that_fails_tells_its_session_too(client: Client) -> None:
    failed: AgentEvent = {"type": "failed", "details": "no luck", "retryable": False}
    client.server.agent.for_prompt["one shot that fails"] = saying(failed, ends=False)

    response = await client.post("/api/v1/oneshot/query", {"query": "one shot that fails"})

    assert refusal(response) == (502, "agent_failed")
    assert (await client.page(response.json()["details"]["sessionId"]))["total"] == 7


async def test_a_one_shot_stream_begins_with_the_sessions_start(client: Client) -> None:
    async with client.http.stream(
        "POST", "/api/v1/oneshot/query/stream", content='{"query": "Hello"}', headers=HEADERS
    ) as response:
        text = (await response.aread()).decode()

    names = [line.removeprefix("event: ") for line in text.splitlines() if line.startswith("event: ")]
    assert names[0] == "session_start"
    assert names[-1] == "agent_run_end"


async def test_a_session_may_ask_for_an_agent_by_its_name(client: Client) -> None:
    session_id = await client.session(agent="scripted")
    refused = await client.post("/api/v1/sessions/create", {"agent": "nobody"})
    refused_once = await client.post("/api/v1/oneshot/query", {"query": "x", "agent": "nobody"})

    assert (await client.query(session_id)).status_code == 200
    for response in (refused, refused_once):
        assert refusal(response) == (400, "unknown_agent")
        assert response.json()["details"] == {"agents": ["scripted"]}


# ── events of a client's own ─────────────────────────────────────────────────────────────────────────────────────────


async def test_a_clients_event_lies_between_a_turns_events_and_belongs_to_none(client: Client) -> None:
    step = Step()

    async def agent(_: Scope, __: Prompt) -> AsyncIterator[AgentEvent]:
        yield {"type": "note"}
        await step.wait()
        yield COMPLETED

    session_id = await client.session(agent)
    turn = asyncio.create_task(client.query(session_id))
    await soon(step.reached.wait())

    appended = await client.append(session_id, "user_feedback", {"rating": 5, "comment": "helpful"})
    step.passed.set()
    answer = (await soon(turn)).json()

    assert appended.status_code == 201
    [event] = (await client.page(session_id, types="user_feedback"))["events"]
    assert appended.json() == {"id": event["id"]}
    assert event["data"] == {"rating": 5, "comment": "helpful"}
    assert event["metadata"] == {"source": "client", "version": "1.0"}
    assert "user_feedback" not in types(answer["events"])
    assert places(answer["events"])[0] < places([event])[0] < places(answer["events"])[-1]
    assert (await client.page(session_id, turnId=answer["turnId"]))["events"] == answer["events"]


@pytest.mark.parametrize("data", [None, 5, "text", [], {}, [{"a": [None]}], 10**30, 1.5, "\x00"])
async def test_a_clients_event_may_hold_any_json(client: Client, data: Any) -> None:
    session_id = await client.session()

    assert (await client.append(session_id, "note", data)).status_code == 201

    assert (await client.page(session_id))["events"][-1]["data"] == data


async def test_a_clients_event_may_leave_its_data_out(client: Client) -> None:
    session_id = await client.session()

    await client.post("/api/v1/sessions/events", {"sessionId": session_id, "type": "note"})

    assert (await client.page(session_id))["events"][-1]["data"] is None


async def test_the_protocols_own_types_are_refused(client: Client) -> None:
    session_id = await client.session()
    for event_type in ("user_message", "agent_run_end", "session_end", "error", "pong", "agent.error"):
        assert refusal(await client.append(session_id, event_type)) == (400, "reserved_type")
    for event_type in ("", "x" * 201, "a\nb"):
        assert (await client.append(session_id, event_type)).status_code == 400
    assert (await client.page(session_id))["total"] == 1


async def test_nothing_is_added_to_a_session_that_is_being_deleted(client: Client) -> None:
    """Its tombstone is there, its end is not yet."""
    session_id = await client.session()
    parts = client.server.parts.parts
    standing = await parts.directory.find(session_id, "local")
    await parts.directory.bury(session_id, "local")

    async def find(*_: Any) -> Any:
        return standing

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(parts.directory), "find", find)
        assert refusal(await client.append(session_id, "note")) == (404, "session_deleted")
        assert refusal(await client.query(session_id)) == (404, "session_deleted")


# ── sessions ─────────────────────────────────────────────────────────────────────────────────────────────────────────


async def details(client: Client, session_id: str) -> Json:
    found: Json = (await client.get("/api/v1/sessions/details", sessionId=session_id)).json()["session"]
    return found


async def test_a_session_can_be_created_with_an_empty_body(client: Client) -> None:
    for body in ("", "{}", "null"):
        response = await client.post("/api/v1/sessions/create", body)
        assert response.status_code == 201, body


async def test_names_and_tags_are_plain_text_of_bounded_length(client: Client) -> None:
    for fields in (
        {"name": "x" * 201},
        {"name": "a\nb"},
        {"name": 5},
        {"tags": "x"},
        {"tags": ["x" * 201]},
        {"tags": ["x"] * 101},
        {"tags": [None]},
    ):
        response = await client.post("/api/v1/sessions/create", fields)
        assert refusal(response) == (400, "bad_request"), fields


async def test_details_tell_all_of_a_session(client: Client) -> None:
    session_id = await client.session(name="My Session", tags=["tag1", "tag2"])

    found = await details(client, session_id)

    assert set(found) == {
        "id", "createdAt", "updatedAt", "name", "tags", "agent", "metadata", "status", "lastEventId",
    }  # fmt: skip
    assert (found["name"], found["tags"], found["agent"]) == ("My Session", ["tag1", "tag2"], "scripted")
    assert found["metadata"] == {}
    assert found["status"] == {"isProcessing": False, "state": "idle", "queued": 0}
    assert found["lastEventId"] == f"evt_{session_id.removeprefix('sess_')}_1"


async def test_status_is_true_from_the_acceptance_to_the_end(client: Client) -> None:
    step = Step()

    async def agent(_: Scope, __: Prompt) -> AsyncIterator[AgentEvent]:
        await step.wait()
        yield COMPLETED

    session_id = await client.session(agent)
    turn = asyncio.create_task(client.query(session_id))
    await soon(step.reached.wait())
    during = await client.status(session_id)
    step.passed.set()
    turn_id = (await soon(turn)).json()["turnId"]

    assert during == {"isProcessing": True, "state": "executing", "turnId": turn_id, "queued": 0}
    assert (await client.status(session_id)) == {
        "isProcessing": False,
        "state": "idle",
        "queued": 0,
        "lastEnding": "completed",
    }


async def test_updates_merge_and_take_both_spellings(client: Client) -> None:
    session_id = await client.session(name="old", tags=["a"])

    async def update(**fields: Any) -> Json:
        response = await client.post("/api/v1/sessions/update", {"sessionId": session_id, **fields})
        assert response.status_code == 200, response.text
        session: Json = response.json()["session"]
        return session

    await update(name="top")
    await update(metadata={"color": "red", "deep": {"a": 1}})
    await update(metadata={"name": "within", "tags": ["b"], "size": 1})
    turning = "\u202egnp.\u2066"
    assert (await update(name=turning))["name"] == turning, "kept as it was given; who shows it isolates it"
    found = await update(name="top wins", metadata={"name": "loses", "color": "blue"})
    unchanged = await update()

    assert (found["name"], found["tags"]) == ("top wins", ["b"])
    assert found["metadata"] == {"color": "blue", "deep": {"a": 1}, "size": 1}
    assert {key: unchanged[key] for key in ("name", "tags", "metadata")} == {
        key: found[key] for key in ("name", "tags", "metadata")
    }


async def test_concurrent_updates_lose_nothing(client: Client) -> None:
    session_id = await client.session()

    await asyncio.gather(
        *(
            client.post("/api/v1/sessions/update", {"sessionId": session_id, "metadata": {f"k{n}": n}})
            for n in range(20)
        )
    )

    assert (await details(client, session_id))["metadata"] == {f"k{n}": n for n in range(20)}


@pytest.mark.parametrize("metadata", [{"name": 5}, {"tags": "x"}, {"name": "a\nb"}, {"tags": ["x"] * 101}])
async def test_a_wrong_field_within_metadata_is_refused_as_one_on_top_is(
    client: Client, metadata: Json
) -> None:
    session_id = await client.session()

    response = await client.post("/api/v1/sessions/update", {"sessionId": session_id, "metadata": metadata})

    assert refusal(response) == (400, "bad_request")
    assert f"metadata.{next(iter(metadata))}" in response.json()["error"]


async def test_deleting_a_running_session_ends_its_turn_and_its_streams(client: Client) -> None:
    step = Step()

    async def agent(_: Scope, __: Prompt) -> AsyncIterator[AgentEvent]:
        yield said("partial")
        await step.wait()
        yield COMPLETED

    session_id = await client.session(agent)
    async with client.stream(session_id) as stream, client.query_stream(session_id) as query:
        await soon(step.reached.wait())
        assert (await client.delete(session_id)).json() == {"success": True}
        streamed = [frame.json for frame in await stream.rest() if frame.data is not None]
        of_query = [frame.json for frame in await query.rest() if frame.data is not None]

    assert step.left.is_set()
    assert types(streamed)[-4:] == ["assistant_message", "error", "agent_run_end", "session_end"]
    assert streamed[-1]["data"]["messageCount"] == 2
    assert types(of_query)[-1] == "agent_run_end"
    assert refusal(await client.delete(session_id)) == (404, "session_deleted")
    assert refusal(await client.query(session_id)) == (404, "session_deleted")
    for path in ("details", "status", "events"):
        response = await client.get(f"/api/v1/sessions/{path}", sessionId=session_id)
        assert refusal(response) == (404, "session_deleted")


async def test_of_two_deletes_at_once_one_is_told_that_it_was_deleted(client: Client) -> None:
    for _ in range(5):
        session_id = await client.session()
        answers = await asyncio.gather(client.delete(session_id), client.delete(session_id))
        assert sorted(answer.status_code for answer in answers) == [200, 404]


async def test_the_list_is_newest_first_and_its_pages_give_every_session_once(client: Client) -> None:
    mine = [await client.session(name=str(n)) for n in range(7)]
    await client.delete(mine[3])

    found: list[Json] = []
    params: dict[str, Any] = {"limit": 3}
    while True:
        page = (await client.get("/api/v1/sessions", **params)).json()
        found += page["sessions"]
        if "nextAfter" not in page:
            break
        params["after"] = page["nextAfter"]

    ids = [session["id"] for session in found]
    assert len(ids) == len(set(ids))
    assert [i for i in ids if i in mine] == [i for i in reversed(mine) if i != mine[3]]
    created = [session["createdAt"] for session in found]
    assert created == sorted(created, reverse=True)


@pytest.mark.parametrize(
    "params",
    [
        {"after": "x"},
        {"after": "1.sess_x"},
        {"after": ".sess_" + "a" * 26},
        {"after": "\u0661.sess_" + "a" * 26},
        {"after": "1" * 16 + ".sess_" + "a" * 26},
        {"after": "\x00"},
        {"limit": 0},
        {"limit": 1001},
    ],
)
async def test_wrong_cursors_and_limits_of_the_list_are_refused(client: Client, params: Json) -> None:
    response = await client.get("/api/v1/sessions", **params)

    assert response.status_code == 400
    assert refusal(response)[1] == ("bad_cursor" if "after" in params else "bad_request")


async def test_the_settings_put_middleware_around_the_agent(embedded_server: Server) -> None:
    words = "redact('Hel+o'), budget(tools=0)"
    async with own_database(embedded_server) as url, serving(url, middleware=words) as server:
        client = await server.client()
        response = await client.query(await client.session())
        assert response.json()["response"] == "[redacted]! I'm here to help."
        tool: AgentEvent = {"type": "tool_started", "id": "t", "name": "pay", "args": {}}
        response = await client.query(await client.session(saying(tool)))
        assert (response.status_code, response.json()["code"]) == (502, "budget_exceeded")


async def test_middleware_that_can_not_be_made_keeps_the_server_from_starting() -> None:
    with pytest.raises(ConfigurationError, match="TARKO_MIDDLEWARE"):
        async with running(Settings(middleware="no_such")):
            pass
