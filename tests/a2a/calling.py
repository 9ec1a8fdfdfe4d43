"""A caller of A2A, as plain as can be: JSON in, JSON out, in both versions; and what its streams say."""

import itertools
import json
from collections.abc import AsyncIterator, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx
from a2a.compat.v0_3 import types as v03
from a2a.types import a2a_pb2 as pb
from google.protobuf.json_format import ParseDict

from tests.server import Client, Frame, Json, Stream, soon

_numbers = itertools.count(1)

OLD_NAMES = {
    "SendMessage": "message/send",
    "SendStreamingMessage": "message/stream",
    "GetTask": "tasks/get",
    "CancelTask": "tasks/cancel",
    "SubscribeToTask": "tasks/resubscribe",
}


@dataclass
class Caller:
    """One principal's caller, in one version of the protocol. What it is told is read with the SDK's types, too."""

    client: Client
    version: str = "1.0"
    path: str = "/a2a"
    headers: dict[str, str] = field(default_factory=dict)

    def message(self, text: str = "Hello", **fields: Any) -> Json:
        part = {"text": text} if self.version == "1.0" else {"kind": "text", "text": text}
        role = "ROLE_USER" if self.version == "1.0" else "user"
        return {"messageId": f"message-{next(_numbers)}", "role": role, "parts": [part], **fields}

    def _body(self, method: str, params: Any) -> tuple[Json, dict[str, str]]:
        name = method if self.version == "1.0" else OLD_NAMES.get(method, method)
        headers = {"A2A-Version": "1.0"} if self.version == "1.0" else {}
        body = {"jsonrpc": "2.0", "id": next(_numbers), "method": name, "params": params}
        return body, {"content-type": "application/json", **headers, **self.headers}

    async def post(self, method: str, params: Any) -> httpx.Response:
        body, headers = self._body(method, params)
        return await soon(self.client.http.post(self.path, content=json.dumps(body), headers=headers))

    async def call(self, method: str, params: Any) -> Json:
        """The result."""
        response = await self.post(method, params)
        assert response.status_code == 200, response.text
        answer: Json = response.json()
        assert "error" not in answer, answer
        result: Json = answer["result"]
        return result

    async def error(self, method: str, params: Any) -> int:
        """The code of the error that is answered."""
        response = await self.post(method, params)
        assert response.status_code == 200, response.text
        text = response.text.removeprefix("data: ")
        assert "Traceback" not in text
        assert "SELECT" not in text
        code: int = json.loads(text)["error"]["code"]
        return code

    async def send(self, text: str = "Hello", **fields: Any) -> Json:
        """Send a message and wait; the task."""
        result = await self.call("SendMessage", {"message": self.message(text, **fields)})
        task: Json = result["task"] if self.version == "1.0" else result
        return check_task(task, self.version)

    async def get(self, task_id: str, **fields: Any) -> Json:
        return check_task(await self.call("GetTask", {"id": task_id, **fields}), self.version)

    async def cancel(self, task_id: str) -> Json:
        return check_task(await self.call("CancelTask", {"id": task_id}), self.version)

    async def list(self, **params: Any) -> Json:
        return await self.call("ListTasks", params)

    @asynccontextmanager
    async def stream(self, method: str, params: Any) -> "AsyncIterator[Told]":
        body, headers = self._body(method, params)
        async with self.client.http.stream(
            "POST", self.path, content=json.dumps(body), headers=headers
        ) as response:
            assert response.status_code == 200, await response.aread()
            assert response.headers["content-type"].startswith("text/event-stream"), await response.aread()
            yield Told(Stream(response), self.version, body["id"])

    def send_stream(
        self, message: Json | str = "Hello", **fields: Any
    ) -> "AbstractAsyncContextManager[Told]":
        message = self.message(message, **fields) if isinstance(message, str) else message
        return self.stream("SendStreamingMessage", {"message": message})

    def subscribe(self, task_id: str) -> "AbstractAsyncContextManager[Told]":
        return self.stream("SubscribeToTask", {"id": task_id})


class Told:
    """What a stream tells, event by event, in one form for both versions: `(kind, body)`."""

    def __init__(self, stream: Stream, version: str, request_id: int) -> None:
        self.stream = stream
        self.version = version
        self._id = request_id

    async def next(self) -> tuple[str, Json] | None:
        """The next event; None at the end."""
        while True:
            frame = await self.stream.next()
            if frame is None:
                return None
            if frame.data is not None:
                return self._event(frame)

    def _event(self, frame: Frame) -> tuple[str, Json]:
        assert frame.json["jsonrpc"] == "2.0"
        assert frame.json["id"] == self._id
        result: Json = frame.json["result"]
        if self.version == "1.0":
            ParseDict(result, pb.StreamResponse())
            [(kind, body)] = result.items()
            return {"task": "task", "statusUpdate": "status", "artifactUpdate": "artifact"}[kind], body
        kind = result["kind"]
        v03.SendStreamingMessageSuccessResponse.model_validate(frame.json)
        return {"task": "task", "status-update": "status", "artifact-update": "artifact"}[kind], result

    async def first(self) -> tuple[str, Json]:
        """The next event, which there is."""
        event = await self.next()
        assert event is not None
        return event

    async def until(self, kind: str, state: str | None = None) -> Json:
        """The first event of this kind (and state)."""
        while (found := await self.next()) is not None:
            if found[0] == kind and state in (None, state_of(found[1])):
                return found[1]
        raise AssertionError(f"the stream ended without {kind} {state}")

    async def rest(self) -> list[tuple[str, Json]]:
        events = []
        while (event := await self.next()) is not None:
            events.append(event)
        return events


def state_of(told: Json) -> str:
    """The state of a task or a status event, as 0.3 spells it."""
    state: str = told["status"]["state"] if "status" in told else ""
    return state.removeprefix("TASK_STATE_").lower().replace("_", "-")


def check_task(task: Json, version: str) -> Json:
    """The task, after the SDK has read it."""
    if version == "1.0":
        ParseDict(task, pb.Task())
    else:
        v03.Task.model_validate(task)
    return task


def texts_of(told: Json) -> list[str]:
    """The texts of a task's or an artifact event's artifacts, part by part."""
    artifacts = told.get("artifacts", [told.get("artifact", {})])
    return [part["text"] for artifact in artifacts for part in artifact.get("parts", []) if "text" in part]


def status_text(told: Json) -> str:
    """The text of a status's message."""
    return "".join(part["text"] for part in told["status"]["message"]["parts"])


def message_ids(task: Json) -> list[str]:
    return [message["messageId"] for message in task["history"]]


def accumulated(events: Iterable[tuple[str, Json]]) -> dict[str, str]:
    """Each artifact's text, put together as a reader of the stream does."""
    texts: dict[str, str] = {}
    for kind, body in events:
        for artifact in body.get("artifacts", []) if kind == "task" else []:
            texts[artifact["artifactId"]] = "".join(texts_of({"artifact": artifact}))
        if kind == "artifact":
            name = body["artifact"]["artifactId"]
            assert not body.get("append") or name in texts, "appended to an unknown artifact"
            said = "".join(texts_of(body))
            texts[name] = texts[name] + said if body.get("append") else said
    return texts
