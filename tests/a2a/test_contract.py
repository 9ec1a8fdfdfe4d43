"""Agent Kourier's agent contract, row by row: each test is named after what the row demands."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from app.agents.contract import AgentEvent, Prompt, Scope
from app.errors import StorageUnavailable
from tests.a2a.calling import Caller, accumulated, message_ids, state_of, status_text, texts_of
from tests.conftest import Server, own_database
from tests.server import COMPLETED, Client, Json, Script, Serving, Step, said, saying, serving, soon

ALICE, BOB = "alice-token-alice-token", "bob-token-bob-token-bob"


def waiting(step: Step, *events: AgentEvent) -> Script:
    """An agent that says something, waits, and completes."""

    async def agent(_: Scope, __: Prompt) -> AsyncIterator[AgentEvent]:
        for event in events:
            yield event
        await step.wait()
        yield said("done")
        yield COMPLETED

    return agent


def asking(question: str = "Which city?") -> Script:
    """An agent that asks, and says what it was answered."""

    async def agent(_: Scope, prompt: Prompt) -> AsyncIterator[AgentEvent]:
        if prompt["text"] == "ask":
            yield said("Let me see. ")
            yield {"type": "input_required", "text": question}
        else:
            yield said(f"It rains in {prompt['text']}.")
        yield COMPLETED

    return agent


def plays(client: Client, prompt: str, script: Script) -> None:
    client.server.agent.for_prompt[prompt] = script


# ── discovery and transport ──────────────────────────────────────────────────────────────────────────────────────────


async def test_serve_a2a_1_0_or_0_3_over_json_rpc(client: Client, caller: Caller) -> None:
    card = (await client.get("/.well-known/agent-card.json")).json()
    interfaces = {
        (interface["protocolBinding"], interface["protocolVersion"])
        for interface in card["supportedInterfaces"]
    }
    assert interfaces == {("JSONRPC", "1.0"), ("JSONRPC", "0.3")}
    for interface in card["supportedInterfaces"]:
        assert interface["url"] == f"{client.server.url}/a2a"
    assert state_of(await caller.send()) == "completed"


@pytest.mark.parametrize("endpoint", ["", "/a2a", "/agents/scripted/a2a"])
async def test_serve_its_card_at_the_endpoint_plus_the_well_known_path(client: Client, endpoint: str) -> None:
    """And at the host's root, and with the identity headers of every other call."""
    response = await client.http.get(
        f"{endpoint}/.well-known/agent-card.json", headers={"authorization": "Bearer x", "x-user-id": "alice"}
    )
    assert response.status_code == 200
    assert response.json()["url"] == client.server.url + (endpoint or "/a2a")
    slashed = await client.http.get(f"{endpoint}/.well-known/agent-card.json/")
    assert (slashed.status_code, slashed.content) == (200, response.content)


async def test_the_card_can_be_kept_and_asked_for_again(client: Client) -> None:
    first = await client.get("/a2a/.well-known/agent-card.json")
    assert first.headers["cache-control"] == "public, max-age=60"
    tag = first.headers["etag"]
    for known, status in ((tag, 304), (f'"x", W/{tag}', 304), ("*", 304), ('"x"', 200), ("", 200)):
        again = await client.http.get("/a2a/.well-known/agent-card.json", headers={"if-none-match": known})
        assert (again.status_code, again.headers["etag"]) == (status, tag)
        assert again.headers["cache-control"] == first.headers["cache-control"]
        assert again.headers["vary"] == "Host"
    port = client.server.url.rpartition(":")[2]
    other = await client.http.get("/a2a/.well-known/agent-card.json", headers={"host": f"localhost:{port}"})
    assert other.headers["etag"] != tag, "the card names the host that was asked"


async def test_the_card_names_the_public_address_where_one_is_set(embedded_server: Server) -> None:
    async with (
        own_database(embedded_server) as url,
        serving(url, public_url="https://agents.example/x/") as server,
    ):
        card = (await (await server.client()).get("/agents/scripted/a2a/.well-known/agent-card.json")).json()
    assert card["url"] == "https://agents.example/x/agents/scripted/a2a"


async def test_set_capabilities_streaming_true_on_the_card(client: Client) -> None:
    card = (await client.get("/.well-known/agent-card.json")).json()
    assert card["capabilities"]["streaming"] is True
    assert card["capabilities"]["pushNotifications"] is False


async def test_mark_no_extension_required(client: Client) -> None:
    card = (await client.get("/.well-known/agent-card.json")).json()
    assert "extensions" not in card["capabilities"]


@pytest.mark.parametrize("endpoint", ["/a2a", "/a2a/", "/agents/scripted/a2a", "/agents/scripted/a2a/"])
async def test_answer_at_the_endpoint_itself_without_a_redirect(client: Client, endpoint: str) -> None:
    caller = Caller(client, path=endpoint)
    assert state_of(await caller.send()) == "completed"
    async with caller.send_stream() as told:
        await told.until("task", "completed")


async def test_send_response_headers_within_30_seconds_of_every_call_streams_included(
    client: Client, caller: Caller
) -> None:
    """At once, though the agent says nothing: the task comes first."""
    step = Step()
    plays(client, "silence", waiting(step))
    async with caller.send_stream("silence") as told:
        kind, task = await told.first()
        assert (kind, state_of(task)) == ("task", "submitted")
        async with caller.subscribe(task["id"]) as subscribed:
            assert state_of((await subscribed.first())[1]) == "working"
            step.passed.set()
            await subscribed.until("status", "completed")


# ── methods ──────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_send_streaming_message(caller: Caller) -> None:
    async with caller.send_stream() as told:
        events = await told.rest()
    assert [(kind, state_of(body)) for kind, body in events][:2] == [
        ("task", "submitted"),
        ("status", "working"),
    ]
    assert list(accumulated(events).values()) == ["Hello! I'm here to help."]
    assert state_of([body for kind, body in events if kind == "status"][-1]) == "completed"


async def test_get_task(caller: Caller) -> None:
    sent = await caller.send()
    assert await caller.get(sent["id"]) == sent
    assert (await caller.get(sent["id"], historyLength=1))["history"] == sent["history"]


async def test_subscribe_to_task(client: Client, caller: Caller) -> None:
    """After a dropped stream: what was said before is in the task, the rest follows."""
    step = Step()
    plays(client, "drop", waiting(step, said("be"), said("fore ")))
    async with caller.send_stream("drop") as told:
        task = (await told.first())[1]
        await soon(step.reached.wait())
        while "".join(texts_of(await told.until("artifact"))) != "fore ":
            pass
    async with caller.subscribe(task["id"]) as told:
        first = await told.first()
        assert (first[0], texts_of(first[1])) == ("task", ["before "])
        step.passed.set()
        events = [first, *await told.rest()]
    assert list(accumulated(e for e in events if e[0] != "task" or e is first).values()) == ["before done"]


async def test_cancel_task(client: Client, caller: Caller) -> None:
    """The one abort: whoever follows by whatever way sees the same end."""
    step = Step()
    plays(client, "cancel", waiting(step, said("partial")))
    async with caller.send_stream("cancel") as told:
        task = (await told.first())[1]
        await soon(step.reached.wait())
        canceled = await caller.cancel(task["id"])
        assert state_of(canceled) == "canceled"
        assert texts_of(canceled) == ["partial"]
        await told.until("status", "canceled")
    await soon(step.left.wait())
    assert await caller.error("CancelTask", {"id": task["id"]}) == -32002
    end = (await client.events(task["contextId"]))[-1]
    assert (end["type"], end["data"]["status"]) == ("agent_run_end", "aborted")


async def test_list_tasks_by_context_with_history_over_pages(new_caller: Caller) -> None:
    first = await new_caller.send("one")
    context = first["contextId"]
    others = [await new_caller.send(text, contextId=context) for text in ("two", "three")]
    found: list[Json] = []
    token = ""
    while True:
        page = await new_caller.list(contextId=context, pageSize=2, pageToken=token)
        assert page["totalSize"] == 3
        found += page["tasks"]
        token = page["nextPageToken"]
        if not token:
            break
    assert [task["id"] for task in found] == [task["id"] for task in reversed([first, *others])]
    sent = {message_id for task in [first, *others] for message_id in message_ids(task)}
    assert {message_id for task in found for message_id in message_ids(task)} == sent
    assert all("artifacts" not in task for task in found)


async def test_an_a2a_0_3_agent_is_never_asked_for_a_list(old_caller: Caller) -> None:
    assert await old_caller.error("tasks/list", {}) == -32601


# ── what Agent Kourier sends ─────────────────────────────────────────────────────────────────────────────────────────


async def test_every_send_is_one_user_message_with_exactly_one_text_part(
    client: Client, caller: Caller
) -> None:
    text = "[Slack: Ada (U123) <ada@example.org>]\nWhat now?"
    task = await caller.send(text)
    [event] = (await client.page(task["contextId"], types="user_message"))["events"]
    assert event["data"]["content"] == text


async def test_message_id_is_kept_and_metadata_actor_comes_back(client: Client, caller: Caller) -> None:
    actor = {"agentkourier.dev/actor": {"id": "U123", "name": "Ada", "n": 12345678901234567890}}
    message = caller.message("Hello", metadata=actor)
    task = await caller.call("SendMessage", {"message": message})
    task = task.get("task", task)
    [told] = task["history"]
    assert (told["messageId"], told["metadata"]) == (message["messageId"], actor)
    [event] = (await client.page(task["contextId"], types="user_message"))["events"]
    assert event["metadata"]["a2a"] == {"messageId": message["messageId"], "metadata": actor}


async def test_w3c_trace_context_is_kept_on_the_turn(client: Client, caller: Caller) -> None:
    traced: list[Any] = []

    async def agent(scope: Scope, _: Prompt) -> AsyncIterator[AgentEvent]:
        traced.append(scope.get("trace"))
        yield COMPLETED

    plays(client, "trace", agent)
    parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    caller.headers = {"traceparent": parent, "tracestate": "vendor=1"}
    task = await caller.send("trace")
    events = [e for e in await client.events(task["contextId"]) if e["type"] != "session_start"]
    assert {event["metadata"]["traceId"] for event in events} == {parent[3:35]}
    marks = events[0]["metadata"]["a2a"]
    assert (marks["traceparent"], marks["tracestate"]) == (parent, "vendor=1")
    assert traced == [parent[3:35]]


async def test_a_trace_header_that_is_too_long_is_left_out(client: Client, new_caller: Caller) -> None:
    parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    for length, is_kept in ((512, True), (513, False)):
        new_caller.headers = {"traceparent": parent, "tracestate": "v=" + "x" * (length - 2)}
        task = await new_caller.send()
        marks = (await client.events(task["contextId"]))[1]["metadata"]["a2a"]
        assert marks["traceparent"] == parent
        assert ("tracestate" in marks) is is_kept


async def test_the_longest_message_id_is_kept(caller: Caller) -> None:
    message = {**caller.message(), "messageId": "m" * 256}
    sent = await caller.call("SendMessage", {"message": message})
    assert message_ids(sent.get("task", sent)) == [message["messageId"]]


async def test_the_extensions_header_is_no_reason_to_refuse(caller: Caller) -> None:
    caller.headers = {"A2A-Extensions": "https://kagent.dev/extensions/hitl/v1", "X-User-Id": "alice"}
    assert state_of(await caller.send()) == "completed"


# ── replies ──────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_answer_a_send_with_task_events_that_name_the_task_and_its_context(caller: Caller) -> None:
    async with caller.send_stream() as told:
        events = await told.rest()
    task = events[0][1]
    for kind, body in events:
        assert (body["id"] if kind == "task" else body["taskId"]) == task["id"]
        assert body["contextId"] == task["contextId"]


async def test_create_a_context_id_on_a_threads_first_turn_and_keep_it(caller: Caller) -> None:
    first = await caller.send("one")
    second = await caller.send("two", contextId=first["contextId"])
    assert first["contextId"]
    assert second["contextId"] == first["contextId"]
    assert second["id"] != first["id"]


async def test_a_context_id_of_the_callers_own_is_kept_too(caller: Caller) -> None:
    name = f"thread/{caller.version}"
    first = await caller.send("one", contextId=name)
    second = await caller.send("two", contextId=name)
    assert first["contextId"] == second["contextId"] == name
    assert (await caller.get(first["id"]))["contextId"] == name
    if caller.version == "1.0":
        listed = await caller.list(contextId=name)
        assert {task["id"] for task in listed["tasks"]} == {first["id"], second["id"]}
        assert {task["contextId"] for task in listed["tasks"]} == {name}


async def test_put_the_answer_in_artifact_text_parts(client: Client, caller: Caller) -> None:
    """All text of the turn, also around tools, is one part; thinking is none of it."""
    plays(
        client,
        "tools",
        saying(
            {"type": "thinking", "delta": "hm"},
            said("I look. "),
            {"type": "tool_started", "id": "a", "name": "n", "args": {}},
            {"type": "tool_ended", "id": "a", "isError": False, "content": "x"},
            said("It is"),
            said(" noon."),
        ),
    )
    async with caller.send_stream("tools") as told:
        events = await told.rest()
    assert list(accumulated(events).values()) == ["I look. It is noon."]
    task = await caller.get(events[0][1]["id"])
    assert texts_of(task) == ["I look. It is noon."]
    assert "message" not in task["status"]


async def test_an_artifact_update_with_append_adds_and_any_other_replaces(caller: Caller) -> None:
    async with caller.send_stream() as told:
        updates = [body for kind, body in await told.rest() if kind == "artifact"]
    assert [update.get("append", False) for update in updates] == [False, True, True]


async def test_end_the_stream_with_a_full_task(client: Client, new_caller: Caller) -> None:
    plays(client, "ask", asking())
    for text, state in (("Hello", "completed"), ("ask", "input-required")):
        async with new_caller.send_stream(text) as told:
            kind, task = (await told.rest())[-1]
        assert (kind, state_of(task)) == ("task", state)
        assert task == await new_caller.get(task["id"])


@pytest.mark.parametrize(("wanted", "bobs"), [("carol, alice", "status"), ("*", "task")])
async def test_end_a_stream_of_0_3_so_only_for_whom_it_is_set(
    embedded_server: Server, wanted: str, bobs: str
) -> None:
    """a2a-sdk 0.3 refuses a second task in a stream."""
    tokens = f"alice={ALICE},bob={BOB}"
    async with (
        own_database(embedded_server) as url,
        serving(url, tokens=tokens, a2a_final_task=wanted) as server,
    ):
        last = {}
        for name, token in (("alice", ALICE), ("bob", BOB)):
            async with Caller(await server.client(token), "0.3").send_stream() as told:
                last[name] = (await told.rest())[-1][0]
    assert last == {"alice": "task", "bob": bobs}


async def test_send_an_event_at_least_every_5_minutes(embedded_server: Server) -> None:
    """After silence the status is said again; thinking, which is told to nobody here, is silence."""
    step, thought = Step(), asyncio.Event()

    async def agent(_: Scope, __: Prompt) -> AsyncIterator[AgentEvent]:
        while not step.passed.is_set():
            yield {"type": "thinking", "delta": "hm"}
            thought.set()
            await asyncio.sleep(0.005)
        yield COMPLETED

    async with (
        own_database(embedded_server) as url,
        serving(url, a2a_heartbeat=0.1, ping_interval=0.05) as server,
    ):
        client = await server.client()
        plays(client, "think", agent)
        for version in ("1.0", "0.3"):
            step.passed.clear()
            async with Caller(client, version).send_stream("think") as told:
                beats = [await told.until("status", "working") for _ in range(3)]
                step.passed.set()
                await told.until("status", "completed")
            assert all("message" not in beat["status"] for beat in beats)
            assert beats[1]["status"]["timestamp"] < beats[2]["status"]["timestamp"]
            assert version == "1.0" or not any(beat["final"] for beat in beats)


async def test_run_one_task_per_context_at_a_time(client: Client, caller: Caller) -> None:
    """Also beside a turn that was started through Tarko; the refused message can be sent again."""
    step = Step()
    session_id = await client.session(waiting(step))
    turn = asyncio.create_task(client.query(session_id))
    await soon(step.reached.wait())
    before = await client.events(session_id)
    message = caller.message("later", contextId=session_id)

    for method in ("SendMessage", "SendStreamingMessage"):
        assert await caller.error(method, {"message": message}) == -32004

    assert await client.events(session_id) == before, "a refused message was recorded"
    step.passed.set()
    await soon(turn)
    sent = await caller.call("SendMessage", {"message": message})
    assert message_ids(sent.get("task", sent)) == [message["messageId"]]


@pytest.mark.parametrize("context", ["none", "named", "known"])
async def test_treat_a_repeated_message_id_as_the_same_turn(
    client: Client, caller: Caller, context: str
) -> None:
    """Also a first one without a context, whether its turn still runs or has ended, and many at once."""
    step, runs = Step(), []

    async def agent(_: Scope, prompt: Prompt) -> AsyncIterator[AgentEvent]:
        runs.append(prompt["text"])
        yield said("once")
        await step.wait()
        yield COMPLETED

    plays(client, f"repeat {context} {caller.version}", agent)
    fields: Json = {}
    if context == "named":
        fields["contextId"] = f"repeated-{caller.version}"
    elif context == "known":
        fields["contextId"] = (await caller.send())["contextId"]
    params = {"message": caller.message(f"repeat {context} {caller.version}", **fields)}

    async with caller.stream("SendStreamingMessage", params) as first:
        task = (await first.first())[1]
        await soon(step.reached.wait())
        async with caller.stream("SendStreamingMessage", params) as second:
            again = (await second.first())[1]
            assert (again["id"], state_of(again)) == (task["id"], "working")
            repeats = [asyncio.create_task(caller.call("SendMessage", params)) for _ in range(3)]
            step.passed.set()
            await second.until("status", "completed")
    settled = [found.get("task", found) for found in await asyncio.gather(*repeats)]
    assert {found["id"] for found in settled} == {task["id"]}
    async with caller.stream("SendStreamingMessage", params) as late:
        [(kind, found)] = await late.rest()
    assert (kind, found["id"], state_of(found)) == ("task", task["id"], "completed")
    assert len(runs) == 1


async def test_a_repeated_message_id_is_the_same_turn_whatever_its_words(caller: Caller) -> None:
    message = caller.message("Hello")
    first = await caller.call("SendMessage", {"message": message})
    task = first.get("task", first)
    for words in ("Hello", "Other words"):
        again = {**caller.message(words, contextId=task["contextId"]), "messageId": message["messageId"]}
        found = await caller.call("SendMessage", {"message": again})
        assert found.get("task", found)["id"] == task["id"]


async def test_a_repeated_message_id_is_a_new_turn_where_that_is_switched_off(
    embedded_server: Server,
) -> None:
    async with own_database(embedded_server) as url, serving(url, a2a_idempotency=False) as server:
        caller = Caller(await server.client())
        params = {"message": caller.message()}
        first = (await caller.call("SendMessage", params))["task"]
        params["message"]["contextId"] = first["contextId"]
        second = (await caller.call("SendMessage", params))["task"]
    assert first["id"] != second["id"]


# ── task states ──────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_submitted_working_completed(caller: Caller) -> None:
    async with caller.send_stream() as told:
        states = [state_of(body) for _, body in await told.rest() if state_of(body)]
    assert states == ["submitted", "working", "completed", *(["completed"] * (caller.version == "1.0"))]


async def test_failed_with_text_and_code_in_the_status(client: Client, caller: Caller) -> None:
    failed: AgentEvent = {"type": "failed", "details": "Too many.", "retryable": True, "code": "rate_limited"}
    plays(client, "fail", saying(said("Partial"), failed, ends=False))
    async with caller.send_stream("fail") as told:
        status = await told.until("status", "failed")
    codes = {"code": "rate_limited", "error_code": "rate_limit", "retryable": True}
    assert status_text(status) == "Too many."
    assert status["metadata"] == status["status"]["message"]["metadata"] == codes
    task = await caller.get(status["taskId"])
    assert (state_of(task), status_text(task), task["metadata"]) == ("failed", "Too many.", codes)
    assert texts_of(task) == ["Partial"]


async def test_an_agent_that_raises_or_says_no_end_is_failed(client: Client, caller: Caller) -> None:
    async def broken(_: Scope, __: Prompt) -> AsyncIterator[AgentEvent]:
        yield said("x")
        raise RuntimeError("it broke")

    plays(client, "raise", broken)
    plays(client, "stop", saying(ends=False))
    for text, code in (("raise", "agent_exception"), ("stop", "agent_protocol_error")):
        task = await caller.send(text)
        assert (state_of(task), task["metadata"]["code"]) == ("failed", code)
        assert "Traceback" not in json.dumps(task)


async def test_canceled_by_whoever_aborts_the_turn(client: Client, caller: Caller) -> None:
    step = Step()
    plays(client, "abort", waiting(step))
    async with caller.send_stream("abort") as told:
        task = (await told.first())[1]
        await soon(step.reached.wait())
        assert (await client.abort(task["contextId"]))["turnId"] == task["id"]
        await told.until("status", "canceled")
    assert state_of(await caller.get(task["id"])) == "canceled"


async def test_input_required_is_a_status_message_of_text_and_its_answer_resumes_the_task(
    client: Client, caller: Caller
) -> None:
    plays(client, "ask", asking("Which city?"))
    plays(client, "Aarhus", asking())
    async with caller.send_stream("ask") as told:
        events = await told.rest()
    asked = [body for kind, body in events if kind == "status"][-1]
    assert (state_of(asked), status_text(asked)) == ("input-required", "Which city?")
    assert caller.version == "1.0" or asked["final"]
    paused = await caller.get(asked["taskId"])
    assert (state_of(paused), status_text(paused)) == ("input-required", "Which city?")
    assert len(paused["history"]) == 1

    answer = caller.message("Aarhus", taskId=paused["id"])
    async with caller.send_stream(answer) as told:
        kind, resumed = await told.first()
        assert (kind, resumed["id"], resumed["contextId"]) == ("task", paused["id"], paused["contextId"])
        await told.rest()
    task = await caller.get(paused["id"])
    assert state_of(task) == "completed"
    assert texts_of(task) == ["Let me see. ", "It rains in Aarhus."]
    ids = message_ids(task)
    assert (ids[1], ids[2]) == (asked["status"]["message"]["messageId"], answer["messageId"])

    again = await caller.call("SendMessage", {"message": answer})
    assert again.get("task", again)["id"] == paused["id"], "an answer that is sent again answers once"
    assert message_ids(await caller.get(paused["id"])) == ids
    late = caller.message("Too late", taskId=paused["id"])
    assert await caller.error("SendMessage", {"message": late}) == -32004


async def test_auth_required_is_never_said(client: Client) -> None:
    from app.dialects.a2a.reading import STATES

    assert "auth-required" not in STATES.values()


# ── errors ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
async def closed(embedded_server: Server) -> AsyncIterator[Serving]:
    """A server that asks for tokens."""
    async with own_database(embedded_server) as url, serving(url, tokens=f"alice={ALICE}") as server:
        yield server


@pytest.mark.parametrize("method", ["SendStreamingMessage", "GetTask", "CancelTask", "Nonsense"])
@pytest.mark.parametrize("version", ["1.0", "0.3"])
async def test_http_401_or_403_at_any_call(closed: Serving, method: str, version: str) -> None:
    for token in (None, "a-wrong-token-a-wrong-token"):
        caller = Caller(await closed.client(token), version)
        assert (await caller.post(method, {})).status_code == 401
    caller = Caller(await closed.client(ALICE), version, headers={"origin": "https://evil.example"})
    assert (await caller.post(method, {})).status_code == 403


async def test_the_card_says_how_to_be_let_in(closed: Serving) -> None:
    nobody = await closed.client()
    card = (await nobody.get("/a2a/.well-known/agent-card.json")).json()
    assert (await nobody.get("/a2a/.well-known/agent-card.json/")).json() == card
    assert card["securitySchemes"]["bearer"]["httpAuthSecurityScheme"]["scheme"] == "bearer"
    assert card["securityRequirements"] == [{"schemes": {"bearer": {"list": []}}}]
    assert state_of(await Caller(await closed.client(ALICE)).send()) == "completed"


async def test_minus_32001_only_when_the_session_is_gone_or_somebody_elses(
    client: Client, caller: Caller
) -> None:
    task = await caller.send()
    missing = "turn_" + "a" * 26
    for method in ("GetTask", "CancelTask", "SubscribeToTask"):
        assert await caller.error(method, {"id": missing}) == -32001
    await client.delete(task["contextId"])
    assert await caller.error("GetTask", {"id": task["id"]}) == -32001
    for fields in ({"contextId": task["contextId"]}, {"taskId": task["id"]}):
        assert await caller.error("SendMessage", {"message": caller.message(**fields)}) == -32001


async def test_http_503_with_retry_after_when_the_store_is_away(
    client: Client, caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So never -32603 for an answer, never -32001 for a task that is there, and no word of the database."""
    task = await caller.send()

    async def away(*_: Any, **__: Any) -> Any:
        raise StorageUnavailable("SELECT secret FROM turns")

    monkeypatch.setattr("app.postgres.exchange_store.PostgresExchangeStore.get", away)
    monkeypatch.setattr("app.postgres.session_store.PostgresSessionStore.get", away)
    message = caller.message(contextId=task["contextId"])
    calls: list[tuple[str, Json]] = [
        ("GetTask", {"id": task["id"]}),
        ("CancelTask", {"id": task["id"]}),
        ("SubscribeToTask", {"id": task["id"]}),
        ("SendMessage", {"message": message}),
        ("SendStreamingMessage", {"message": message}),
    ]
    for method, params in calls:
        response = await caller.post(method, params)
        assert response.status_code == 503
        assert int(response.headers["retry-after"]) > 0
        assert "SELECT" not in response.text


async def test_a_draining_server_is_a_503_too(embedded_server: Server) -> None:
    async with own_database(embedded_server) as url, serving(url) as server:
        caller = Caller(await server.client())
        server.parts.parts.supervisor.is_draining = True
        assert (await caller.post("SendMessage", {"message": caller.message()})).status_code == 503
        server.parts.parts.supervisor.is_draining = False
