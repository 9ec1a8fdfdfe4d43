"""Whatever is wrong with a call has its code, is never the server's fault, and leaves nothing behind."""

import json
from typing import Any

import pytest

from tests.a2a.calling import Caller, state_of
from tests.server import Client, Json

MISSING = "turn_" + "a" * 26
OK_PART = [{"text": "x"}]


async def sessions(client: Client) -> list[str]:
    return [
        session["id"] for session in (await client.get("/api/v1/sessions", limit=1000)).json()["sessions"]
    ]


def call(**changes: Any) -> Json:
    message = {"messageId": "m", "role": "ROLE_USER", "parts": OK_PART}
    body = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": message}}
    return {key: value for key, value in (body | changes).items() if value is not ...}


def message(**changes: Any) -> Json:
    body = {"messageId": "m", "role": "ROLE_USER", "parts": OK_PART}
    return call(
        params={"message": {key: value for key, value in (body | changes).items() if value is not ...}}
    )


def old(method: str, params: Any) -> Json:
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}


def old_message(**changes: Any) -> Json:
    body = {"messageId": "m", "role": "user", "parts": [{"kind": "text", "text": "x"}]}
    return old(
        "message/send",
        {"message": {key: value for key, value in (body | changes).items() if value is not ...}},
    )


NEW: dict[str, tuple[Any, int]] = {
    "no JSON": ("{", -32700),
    "no JSON that may be": ('{"x": NaN}', -32700),
    "bad UTF-8": (b'{"x": "\xff"}', -32700),
    "nesting without end": ("[" * 100_000, -32700),
    "nested too deeply": (json.dumps(message(metadata=json.loads("[" * 120 + "]" * 120))), -32700),
    "a batch": ([call()], -32600),
    "an empty batch": ([], -32600),
    "a text": ('"hi"', -32600),
    "an id of null": (call(id=None), -32600),
    "no id": (call(id=...), -32600),
    "an id that is true": (call(id=True), -32600),
    "an id that is a fraction": (call(id=1.5), -32600),
    "an id that is an object": (call(id={}), -32600),
    "another JSON-RPC": (call(jsonrpc="1.0"), -32600),
    "no JSON-RPC": (call(jsonrpc=...), -32600),
    "no method": (call(method=...), -32600),
    "a method that is no text": (call(method=5), -32600),
    "an unknown method": (call(method="Nonsense"), -32601),
    "a method of 0.3": (call(method="message/send"), -32009),
    "parameters that are a list": (call(params=[]), -32602),
    "no parameters": (call(params=...), -32602),
    "no message": (call(params={}), -32602),
    "a message that is a list": (call(params={"message": []}), -32602),
    "a message that is a text": (call(params={"message": "hi"}), -32602),
    "no message id": (message(messageId=...), -32602),
    "an empty message id": (message(messageId=""), -32602),
    "a message id that is a number": (message(messageId=5), -32602),
    "a huge message id": (message(messageId="x" * 257), -32602),
    "a message id with NUL": (message(messageId="x\0"), -32602),
    "a message id with half a character": (message(messageId="\ud800"), -32602),
    "no role": (message(role=...), -32602),
    "the agent's role": (message(role="ROLE_AGENT"), -32602),
    "no parts": (message(parts=[]), -32602),
    "parts that are no list": (message(parts={}), -32602),
    "an empty part": (message(parts=[{}]), -32602),
    "a data part": (message(parts=[{"data": {"a": 1}}]), -32005),
    "a file by address": (message(parts=[{"url": "http://example.org/x.png", "mediaType": "image/png"}]), -32005),
    "a file that is no image": (message(parts=[{"raw": "aGk=", "mediaType": "application/pdf"}]), -32005),
    "a file without a media type": (message(parts=[{"raw": "aGk="}]), -32005),
    "an image that is no base64": (message(parts=[{"raw": "!", "mediaType": "image/png"}]), -32005),
    "a huge context id": (message(contextId="x" * 129), -32602),
    "a context id with spaces": (message(contextId="a b"), -32602),
    "a context id with NUL": (message(contextId="a\0"), -32602),
    "the task of nobody": (message(taskId=MISSING), -32001),
    "a task id of another make": (message(taskId="1; DROP TABLE turns"), -32001),
    "metadata that is no object": (message(metadata=[1]), -32602),
    "a webhook": (
        call(params={"message": message()["params"]["message"], "configuration": {"taskPushNotificationConfig": {"url": "http://x"}}}),
        -32003,
    ),
    "less than no history": (
        call(params={"message": message()["params"]["message"], "configuration": {"historyLength": -1}}),
        -32602,
    ),
    "no task id": (call(method="GetTask", params={}), -32602),
    "a task id that is a number": (call(method="GetTask", params={"id": 5}), -32602),
    "an unknown task": (call(method="GetTask", params={"id": "x" * 5000}), -32001),
    "an unknown task to cancel": (call(method="CancelTask", params={"id": MISSING}), -32001),
    "an unknown task to follow": (call(method="SubscribeToTask", params={"id": MISSING}), -32001),
    "a history of less than nothing": (call(method="GetTask", params={"id": MISSING, "historyLength": -1}), -32602),
    "a page of nothing": (call(method="ListTasks", params={"pageSize": 0}), -32602),
    "a page too large": (call(method="ListTasks", params={"pageSize": 101}), -32602),
    "a page token of another make": (call(method="ListTasks", params={"pageToken": "x"}), -32602),
    "a list of a bad context": (call(method="ListTasks", params={"contextId": "\n"}), -32602),
    "a state that is none": (call(method="ListTasks", params={"status": "TASK_STATE_DONE"}), -32602),
    "a time that is none": (call(method="ListTasks", params={"statusTimestampAfter": "yesterday"}), -32602),
    "setting a webhook": (call(method="CreateTaskPushNotificationConfig", params={}), -32003),
    "the extended card": (call(method="GetExtendedAgentCard", params={}), -32004),
}  # fmt: skip

OLD: dict[str, tuple[Any, int]] = {
    "no JSON": ("{", -32700),
    "a batch": ([old_message()], -32600),
    "an id of null": (old_message() | {"id": None}, -32600),
    "an unknown method": (old("nonsense", {}), -32601),
    "a method of 1.0": (call(), -32009),
    "parameters that are a list": (old("message/send", []), -32602),
    "no parameters": (old("message/send", {}), -32602),
    "no message id": (old_message(messageId=...), -32602),
    "no role": (old_message(role=...), -32602),
    "the agent's role": (old_message(role="agent"), -32602),
    "no parts": (old_message(parts=[]), -32602),
    "a data part": (old_message(parts=[{"kind": "data", "data": {}}]), -32005),
    "a file by address": (old_message(parts=[{"kind": "file", "file": {"uri": "http://x"}}]), -32005),
    "a file that is no base64": (
        old_message(parts=[{"kind": "file", "file": {"bytes": "a", "mimeType": "image/png"}}]),
        -32602,
    ),
    "a text with half a character": (old_message(parts=[{"kind": "text", "text": "\ud800"}]), -32602),
    "a part of no kind": (old_message(parts=[{"kind": "smell", "smell": "x"}]), -32602),
    "a huge context id": (old_message(contextId="x" * 129), -32602),
    "the task of nobody": (old_message(taskId=MISSING), -32001),
    "no task id": (old("tasks/get", {}), -32602),
    "an empty task id": (old("tasks/get", {"id": ""}), -32602),
    "less than no history": (old("tasks/get", {"id": MISSING, "historyLength": -1}), -32602),
    "an unknown task": (old("tasks/get", {"id": MISSING}), -32001),
    "an unknown task to cancel": (old("tasks/cancel", {"id": MISSING}), -32001),
    "setting a webhook": (old("tasks/pushNotificationConfig/set", {}), -32003),
    "the extended card": (old("agent/getAuthenticatedExtendedCard", {}), -32007),
}


async def refused(client: Client, body: Any, code: int, headers: Json) -> None:
    before = await sessions(client)
    content = body if isinstance(body, str | bytes) else json.dumps(body)

    response = await client.http.post(
        "/a2a", content=content, headers={"content-type": "application/json", **headers}
    )

    assert response.status_code == 200, response.text
    error = response.json()["error"]
    assert error["code"] == code, error
    assert response.json()["jsonrpc"] == "2.0"
    for word in ("Traceback", "SELECT", "asyncpg", 'File "'):
        assert word not in response.text
    assert await sessions(client) == before, "something was recorded"


@pytest.mark.parametrize("name", NEW)
async def test_a_wrong_call_of_1_0(client: Client, name: str) -> None:
    body, code = NEW[name]
    await refused(client, body, code, {"a2a-version": "1.0"})


@pytest.mark.parametrize("name", OLD)
async def test_a_wrong_call_of_0_3(client: Client, name: str) -> None:
    body, code = OLD[name]
    await refused(client, body, code, {})


@pytest.mark.parametrize("version", ["0.2", "2.0", "1.0beta", "x" * 200, "1.0, 0.3"])
async def test_a_version_that_is_not_spoken(client: Client, version: str) -> None:
    for body in (call(), old_message()):
        await refused(client, body, -32009, {"a2a-version": version})


@pytest.mark.parametrize("version", ["1", "1.0", "1.0.1", "1.9"])
async def test_every_1_is_1_0(client: Client, version: str) -> None:
    response = await client.post("/a2a", call(method="ListTasks", params={}), A2A_Version=version)
    assert "tasks" in response.json()["result"]


@pytest.mark.parametrize(
    "media_type", ["text/plain", "", "application/x-www-form-urlencoded", "application/jsonp"]
)
async def test_another_media_type(client: Client, media_type: str) -> None:
    response = await client.http.post(
        "/a2a", content=json.dumps(call()), headers={"content-type": media_type, "a2a-version": "1.0"}
    )
    assert (response.status_code, response.json()["error"]["code"]) == (415, -32005)


async def test_a_refused_stream_of_0_3_is_a_stream_with_the_error(client: Client) -> None:
    response = await client.post("/a2a", old("tasks/resubscribe", {"id": MISSING}))
    assert response.headers["content-type"].startswith("text/event-stream")
    assert json.loads(response.text.removeprefix("data: "))["error"]["code"] == -32001


async def test_an_unknown_agent_and_another_http_method(client: Client) -> None:
    assert (await client.post("/agents/nobody/a2a", call())).status_code == 404
    assert (await client.get("/agents/nobody/a2a/.well-known/agent-card.json")).status_code == 404
    assert (await client.get("/a2a")).status_code == 405


async def test_the_id_comes_back_as_it_was(client: Client) -> None:
    for request_id in (0, -5, "", "é\u2028😀", 2**70):
        response = await client.post(
            "/a2a", call(id=request_id, method="ListTasks", params={}), A2A_Version="1.0"
        )
        assert response.json()["id"] == request_id, request_id


async def test_the_task_of_another_context(caller: Caller) -> None:
    task = await caller.send()
    other = await caller.send()
    wrong = caller.message(taskId=task["id"], contextId=other["contextId"])
    assert await caller.error("SendMessage", {"message": wrong}) == -32602


async def test_a_context_of_another_agent_is_another_context(new_caller: Caller, client: Client) -> None:
    """An id that was never a context here is accepted as the caller's own name for a new one."""
    unknown = "sess_" + "a" * 26
    task = await new_caller.send(contextId=unknown)
    assert (task["contextId"], state_of(task)) == (unknown, "completed")
    assert unknown not in await sessions(client)
    assert (await new_caller.list(contextId=unknown))["totalSize"] == 1
    assert (await new_caller.list(contextId="never-was"))["tasks"] == []


async def test_images_by_value_reach_the_agent(client: Client, caller: Caller) -> None:
    data = "aGk="
    if caller.version == "1.0":
        parts: list[Json] = [{"text": "look"}, {"raw": data, "mediaType": "image/png"}]
    else:
        file = {"bytes": data, "mimeType": "image/png"}
        parts = [{"kind": "text", "text": "look"}, {"kind": "file", "file": file}]
    seen: list[Any] = []

    async def agent(_: Any, prompt: Any) -> Any:
        seen.append(prompt)
        yield {"type": "completed", "data": [1.5, 2**70, {"deep": True}]}

    client.server.agent.for_prompt["look"] = agent
    task = await caller.call("SendMessage", {"message": caller.message() | {"parts": parts}})
    task = task.get("task", task)
    assert seen == [{"text": "look", "images": [{"mimeType": "image/png", "data": data}]}]
    assert [dict(part) for part in task["history"][0]["parts"]] == parts
    [artifact] = task["artifacts"]
    told = artifact["parts"][0]["data"]
    assert (told if caller.version == "1.0" else told["value"]) == [1.5, 2**70, {"deep": True}]


async def test_a_message_that_should_not_be_waited_for(client: Client, caller: Caller) -> None:
    from tests.a2a.test_contract import waiting
    from tests.server import Step

    step = Step()
    client.server.agent.for_prompt["no wait"] = waiting(step)
    configuration = {"returnImmediately": True} if caller.version == "1.0" else {"blocking": False}
    params = {"message": caller.message("no wait"), "configuration": configuration}
    task = await caller.call("SendMessage", params)
    task = task.get("task", task)
    assert state_of(task) == "working"
    async with caller.subscribe(task["id"]) as told:
        step.passed.set()
        await told.rest()
    assert await caller.error("SubscribeToTask", {"id": task["id"]}) == -32004
