"""Sound agents of odd shapes, with which nobody may find fault."""

import asyncio
import contextvars
from collections.abc import Iterator, Mapping
from typing import Any

from app.agents.contract import AgentEvent, Prompt, Scope
from app.conformance.gallery.exhibit import (
    COMPLETED,
    FAILED,
    LONG,
    Acting,
    Events,
    Exhibit,
    exhibit_of,
    text,
)


class Handmade:
    """An iterator without `aclose`, whose steps are futures."""

    def __init__(self) -> None:
        self._left: list[AgentEvent] = [text("a"), COMPLETED]

    def __aiter__(self) -> "Handmade":
        return self

    def __anext__(self) -> "asyncio.Future[AgentEvent]":
        step: asyncio.Future[AgentEvent] = asyncio.get_running_loop().create_future()
        if self._left:
            step.set_result(self._left.pop(0))
        else:
            step.set_exception(StopAsyncIteration())
        return step


class Dictlike(Mapping[str, Any]):
    """A mapping that is no dict."""

    def __init__(self, **fields: Any) -> None:
        self._fields = fields

    def __getitem__(self, key: str) -> Any:
        return self._fields[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._fields)

    def __len__(self) -> int:
        return len(self._fields)


async def converses(scope: Scope, prompt: Prompt) -> Events:
    """Keeps nothing: what was said before is in the transcript."""
    messages = await scope["transcript"].messages() if "transcript" in scope else []
    for message in messages:
        yield text(f"{message['content']} ")
    yield {"type": "thinking", "delta": "hm"}
    yield {"type": "tool_started", "id": "t", "name": "wait", "args": {"for": [1, None]}}
    await asyncio.sleep(0)
    yield {"type": "tool_ended", "id": "t", "isError": False, "content": {"ok": True}}
    yield {"type": "unheard_of", "x": [None]}
    await asyncio.sleep(0)
    yield text(prompt["text"])
    yield {"type": "completed", "data": {"length": len(prompt["text"])}}


async def fails(_: Scope, __: Prompt) -> Events:
    yield text("a")
    await asyncio.sleep(0)
    yield FAILED


async def in_a_timeout(_: Scope, __: Prompt) -> Events:
    async with asyncio.timeout(LONG):
        await asyncio.sleep(0)
        yield text("a")
        await asyncio.sleep(0)
    yield COMPLETED


_variable: contextvars.ContextVar[int] = contextvars.ContextVar("conformance")


async def with_a_context_variable(_: Scope, __: Prompt) -> Events:
    token = _variable.set(1)
    try:
        await asyncio.sleep(0)
        yield text("a")
        await asyncio.sleep(0)
    finally:
        _variable.reset(token)
    yield COMPLETED


async def in_a_thread(_: Scope, __: Prompt) -> Events:
    yield text(await asyncio.to_thread(lambda: "a"))
    yield COMPLETED


async def says_mappings(_: Scope, __: Prompt) -> Events:
    yield Dictlike(type="text", delta="a")
    yield Dictlike(type="completed", data=1)


def refuses_when_busy() -> Acting:
    """One turn a session at a time, refused as the specification's example does."""
    busy: set[str] = set()

    async def invoke(scope: Scope, prompt: Prompt) -> Events:
        if scope["session"] in busy:
            yield {"type": "failed", "details": "busy", "retryable": True, "code": "session_busy"}
            return
        busy.add(scope["session"])
        try:
            yield text(prompt["text"])
            await asyncio.sleep(0)
        finally:
            busy.discard(scope["session"])
        yield COMPLETED

    return Acting(invoke)


SOUND = (
    exhibit_of(converses, is_failure=False),
    exhibit_of(fails),
    exhibit_of(in_a_timeout, is_failure=False),
    exhibit_of(with_a_context_variable, is_failure=False),
    exhibit_of(in_a_thread, is_failure=False),
    exhibit_of(says_mappings, is_failure=False),
    Exhibit("handmade", lambda: Acting(lambda _, __: Handmade()), is_failure=False),
    Exhibit("refuses_when_busy", refuses_when_busy, is_failure=False),
)
