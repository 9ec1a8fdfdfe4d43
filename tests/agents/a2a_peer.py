"""A scripted A2A agent on loopback, in either version: one task, told step by step, over streams that break where told.

A step is a status (`status("working", "text")`), a piece of an artifact (`piece("a1", "text", append=True)`) or any other
result in the version's own spelling. The task is as far as its streams have told it whole steps; `finishes` makes it go
on to its end by itself when a stream breaks. `cuts` are the bytes after which the next streams' bodies break off, `hold`
the number of steps behind which a stream waits until the task is canceled.
"""

import asyncio
import copy
import json
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.agents.scripted_http import Json, Reply, Request, ScriptedServer, send

NEW_NAMES = {
    "message/send": "SendMessage",
    "message/stream": "SendStreamingMessage",
    "tasks/get": "GetTask",
    "tasks/cancel": "CancelTask",
    "tasks/resubscribe": "SubscribeToTask",
}
CARD_PATH = "/.well-known/agent-card.json"
SETTLED = ("completed", "failed", "canceled", "rejected", "input-required", "auth-required")


@dataclass(frozen=True)
class Step:
    """One thing that happens to the task. `raw` is a result as it is, instead."""

    state: str = ""
    text: str = ""
    artifact: str = ""
    parts: Sequence[Json] = ()
    append: bool = False
    metadata: Json | None = None
    raw: Any = None
    is_endless: bool = False


def status(state: str, text: str = "", metadata: Json | None = None) -> Step:
    return Step(state=state, text=text, metadata=metadata)


def piece(artifact: str, text: str = "", *parts: Json, append: bool = False) -> Step:
    return Step(artifact=artifact, parts=[{"text": text}, *parts] if text else parts, append=append)


@dataclass
class A2APeer(ScriptedServer):
    steps: Sequence[Step]
    version: str = "1.0"
    streams: bool = True
    finishes: bool = False
    hold: int | None = None
    cuts: deque[int | None] = field(default_factory=deque)
    snapshot_first: bool = True
    ends_with_task: bool = False
    names: frozenset[str] = frozenset(
        {"SendMessage", "SendStreamingMessage", "GetTask", "CancelTask", "SubscribeToTask", "ListTasks"}
    )
    card: Any = None
    task_id: str = "task-1"
    context_id: str = "context-1"
    told: int = 0
    turns: int = 0
    taken: list[Json] = field(default_factory=list)
    canceled: asyncio.Event = field(default_factory=asyncio.Event)
    held: asyncio.Event = field(default_factory=asyncio.Event)
    end: Step | None = None

    def name_of(self, request: Request) -> str:
        if not isinstance(request.body, dict):
            return request.path
        method: str = request.body["method"]
        return NEW_NAMES.get(method, method)

    @property
    def old(self) -> bool:
        return self.version == "0.3"

    async def answer(self, request: Request, writer: asyncio.StreamWriter) -> None:
        if request.method == "GET":
            await self._show_card(request, writer)
            return
        name = self.name_of(request)
        is_old_name = request.body["method"] in NEW_NAMES
        if name not in self.names or is_old_name is not self.old:
            await self.refuse(writer, request, -32601, "no such method")
            return
        assert request.headers.get("a2a-version") == (None if self.old else "1.0")
        await getattr(self, f"_{name}")(request, writer)

    async def _SendStreamingMessage(self, request: Request, writer: asyncio.StreamWriter) -> None:  # noqa: N802
        self._take(request)
        await self._stream(request, writer, self._results(0))

    async def _SubscribeToTask(self, request: Request, writer: asyncio.StreamWriter) -> None:  # noqa: N802
        if self.state in SETTLED:
            await self.refuse(writer, request, -32004, "the task is over")
            return
        first = [(None, self._wrapped("task", self.snapshot()))] if self.snapshot_first else []
        await self._stream(request, writer, first + self._results(self.told))

    async def _SendMessage(self, request: Request, writer: asyncio.StreamWriter) -> None:  # noqa: N802
        self._take(request)
        raw = self.steps[0].raw
        await self.result(writer, request, self._wrapped("task", self.snapshot()) if raw is None else raw)

    async def _GetTask(self, request: Request, writer: asyncio.StreamWriter) -> None:  # noqa: N802
        await self.result(writer, request, self.snapshot())
        if not self.streams or self.finishes:
            self.told = min(self.told + 1, len(self.steps))

    async def _ListTasks(self, request: Request, writer: asyncio.StreamWriter) -> None:  # noqa: N802
        await self.result(writer, request, {"tasks": [self.snapshot()] if self.taken else []})

    async def _CancelTask(self, request: Request, writer: asyncio.StreamWriter) -> None:  # noqa: N802
        self.end = status("canceled")
        self.canceled.set()
        await self.result(writer, request, self.snapshot())

    async def _show_card(self, request: Request, writer: asyncio.StreamWriter) -> None:
        if self.card is False or request.path != CARD_PATH:
            await send(writer, Reply(404, "nothing here"))
            return
        await send(writer, Reply(body=self.card or self.own_card()))

    def own_card(self, **changes: Any) -> Json:
        card: Json = {"name": "peer", "capabilities": {"streaming": self.streams}}
        if self.old:
            return card | {"url": f"{self.url}/", "protocolVersion": "0.3.0"} | changes
        interface = {"url": f"{self.url}/", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
        return card | {"supportedInterfaces": [interface]} | changes

    def _take(self, request: Request) -> None:
        message = request.body["params"]["message"]
        if message["messageId"] not in [known["messageId"] for known in self.taken]:
            self.turns += 1
            self.taken.append(message)

    @property
    def state(self) -> str:
        states = [step.state for step in self._happened() if step.state]
        return states[-1] if states else "submitted"

    def _happened(self) -> list[Step]:
        return [*self.steps[: self.told], *([self.end] if self.end else [])]

    def snapshot(self) -> Json:
        """The whole task, as far as it is."""
        artifacts: dict[str, list[Json]] = {}
        last = status("submitted")
        for step in self._happened():
            if step.artifact:
                known = artifacts.get(step.artifact, []) if step.append else []
                artifacts[step.artifact] = known + [self._part(part) for part in step.parts]
            elif step.state:
                last = step
        task: Json = {
            "id": self.task_id,
            "contextId": self.context_id,
            "status": self._status(last),
            "artifacts": [{"artifactId": name, "parts": parts} for name, parts in artifacts.items()],
            "history": copy.deepcopy(self.taken),
        }
        return task | ({"kind": "task"} if self.old else {})

    def _results(self, after: int) -> list[tuple[int | None, Json]]:
        found: list[tuple[int | None, Json]] = []
        if after == 0:
            found.append((None, self._wrapped("task", self.snapshot())))
        for number, step in enumerate(self.steps[after:], after + 1):
            found.append((number, self._event(step)))
        if self.ends_with_task:
            told, self.told = self.told, len(self.steps)
            found.append((None, self._wrapped("task", self.snapshot())))
            self.told = told
        return found

    def _event(self, step: Step) -> Json:
        if step.raw is not None:
            raw: Json = step.raw
            return raw
        ids: Json = {"taskId": self.task_id, "contextId": self.context_id}
        if step.artifact:
            artifact = {"artifactId": step.artifact, "parts": [self._part(part) for part in step.parts]}
            event = {**ids, "artifact": artifact, "append": step.append}
            return event | {"kind": "artifact-update"} if self.old else {"artifactUpdate": event}
        event = {**ids, "status": self._status(step)}
        if self.old:
            return event | {"kind": "status-update", "final": step.state in SETTLED}
        return {"statusUpdate": event}

    def _status(self, step: Step) -> Json:
        spelled = step.state if self.old else f"TASK_STATE_{step.state.upper().replace('-', '_')}"
        found: Json = {"state": spelled, "timestamp": f"2026-01-01T00:00:{self._place(step):02}Z"}
        if step.text or step.metadata is not None:
            found["message"] = {
                "messageId": f"said-{self._place(step)}",
                "role": "agent" if self.old else "ROLE_AGENT",
                "parts": [self._part({"text": step.text})],
                "metadata": step.metadata or {},
            }
        return found

    def _place(self, step: Step) -> int:
        places = [number for number, each in enumerate(self.steps, 1) if each is step]
        return places[0] if places else 0

    def _part(self, part: Json) -> Json:
        if not self.old:
            return part
        kind = "text" if "text" in part else "data" if "data" in part else "file"
        return {"kind": kind, **part}

    def _wrapped(self, name: str, found: Json) -> Json:
        return found if self.old else {name: found}

    async def result(self, writer: asyncio.StreamWriter, request: Request, result: Any) -> None:
        await send(writer, Reply(body={"jsonrpc": "2.0", "id": request.body["id"], "result": result}))

    async def refuse(self, writer: asyncio.StreamWriter, request: Request, code: int, message: str) -> None:
        error = {"code": code, "message": message}
        await send(writer, Reply(body={"jsonrpc": "2.0", "id": request.body["id"], "error": error}))

    async def _stream(
        self, request: Request, writer: asyncio.StreamWriter, results: list[tuple[int | None, Json]]
    ) -> None:
        writer.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
            b"transfer-encoding: chunked\r\nconnection: close\r\n\r\n"
        )
        left = self.cuts.popleft() if self.cuts else None
        total = self.told
        for number, result in results:
            if self.hold is not None and number is not None and number > self.hold:
                self.held.set()
                await self.canceled.wait()
                return
            while number and self.steps[number - 1].is_endless and self.told < len(self.steps):
                writer.write(b"9\r\n: ping!\n\n\r\n")
                await writer.drain()
                await asyncio.sleep(0)
            body = {"jsonrpc": "2.0", "id": request.body["id"], "result": result}
            if isinstance(result, dict) and "error" in result:
                body = {**result, "jsonrpc": "2.0"}
            frame = result if isinstance(result, bytes) else b"data: %b\n\n" % json.dumps(body).encode()
            if left is not None and left < len(frame):
                # As much as fits of a chunk that is longer: the connection breaks in its middle.
                writer.write(b"%x\r\n%b" % (len(frame), frame[:left]))
                await writer.drain()
                self.told = len(self.steps) if self.finishes else max(total, self.told)
                return
            left = None if left is None else left - len(frame)
            self.told = max(self.told, number or 0)
            writer.write(b"%x\r\n%b\r\n" % (len(frame), frame))
            await writer.drain()
            await asyncio.sleep(0)
        writer.write(b"0\r\n\r\n")
        await writer.drain()


def busy(number: int = -32004) -> Reply:
    return Reply(body={"jsonrpc": "2.0", "id": 1, "error": {"code": number, "message": "no"}})
