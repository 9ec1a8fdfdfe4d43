"""Agents that break the contract, one way each. Each names the statements that it breaks."""

import asyncio
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable
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
    saying,
    text,
)

_kept: list[Any] = []


# ── they end by themselves ───────────────────────────────────────────────────────────────────────────────────────────


async def raises(_: Scope, __: Prompt) -> Events:
    yield text("a")
    raise ValueError("engine")


async def raises_at_once(_: Scope, __: Prompt) -> Events:
    raise ValueError("engine")
    yield


def raises_in_the_call(_: Scope, __: Prompt) -> Events:
    raise ValueError("call")


def returns_none(_: Scope, __: Prompt) -> None:
    return None


def returns_a_list(_: Scope, __: Prompt) -> list[AgentEvent]:
    return [COMPLETED]


async def returns_a_coroutine(_: Scope, __: Prompt) -> list[AgentEvent]:
    return [COMPLETED]


async def is_empty(_: Scope, __: Prompt) -> Events:
    return
    yield


async def has_no_terminal(_: Scope, __: Prompt) -> Events:
    yield text("a")


async def exits(_: Scope, __: Prompt) -> Events:
    yield text("a")
    raise SystemExit(3)


async def stops_iteration(_: Scope, __: Prompt) -> Events:
    yield text("a")
    raise StopIteration


async def leaks_a_cancel(_: Scope, __: Prompt) -> Events:
    yield text("a")
    raise asyncio.CancelledError


async def fails_untyped(_: Scope, __: Prompt) -> Events:
    yield {"type": "failed", "details": "no luck"}


async def gives_no_object(_: Scope, __: Prompt) -> Events:
    yield "text"  # type: ignore[misc]
    yield COMPLETED


async def chatters_on(_: Scope, __: Prompt) -> Events:
    yield COMPLETED
    yield text("late")


async def has_two_terminals(_: Scope, __: Prompt) -> Events:
    yield FAILED
    yield COMPLETED


async def raises_after_the_terminal(_: Scope, __: Prompt) -> Events:
    yield COMPLETED
    raise ValueError("too late")


# ── their events are wrong ───────────────────────────────────────────────────────────────────────────────────────────


async def copies_the_text(_: Scope, __: Prompt) -> Events:
    yield text("answer")
    yield {"type": "completed", "text": "answer"}


async def repeats_the_text(_: Scope, __: Prompt) -> Events:
    yield text("answer")
    yield {"type": "completed", "data": "answer"}


# ── only a stop shows it ─────────────────────────────────────────────────────────────────────────────────────────────


async def swallows_one_cancel(_: Scope, __: Prompt) -> Events:
    yield text("a")
    try:
        await asyncio.sleep(0.01)
    except asyncio.CancelledError:
        yield text("never mind")
    yield COMPLETED


async def swallows_a_second_cancel(_: Scope, __: Prompt) -> Events:
    yield text("a")
    try:
        await asyncio.sleep(0.01)
    except asyncio.CancelledError:
        try:
            await asyncio.sleep(0)
        except asyncio.CancelledError:
            yield text("never mind")
        raise
    yield COMPLETED


async def swallows_every_cancel(_: Scope, __: Prompt) -> Events:
    yield text("a")
    end = time.monotonic() + 0.5  # or the test's own loop could never be closed
    while time.monotonic() < end:
        try:
            await asyncio.sleep(0.01)
        except asyncio.CancelledError:
            continue
    yield COMPLETED


async def hands_over_a_failure(_: Scope, __: Prompt) -> Events:
    try:
        yield text("a")
        await asyncio.sleep(0.01)
        yield COMPLETED
    except BaseException as error:  # noqa: BLE001 - the mistake that is shown
        yield {"type": "failed", "details": str(error), "retryable": False}


async def yields_in_finally(_: Scope, __: Prompt) -> Events:
    try:
        yield text("a")
        yield COMPLETED
    finally:
        yield text("bye")


async def hangs_in_finally(_: Scope, __: Prompt) -> Events:
    is_over = False
    try:
        yield text("a")
        is_over = True
        yield COMPLETED
    finally:
        if not is_over:
            await asyncio.sleep(LONG)


async def raises_in_finally(_: Scope, __: Prompt) -> Events:
    is_over = False
    try:
        yield text("a")
        is_over = True
        yield COMPLETED
    finally:
        if not is_over:
            raise ValueError("in finally")


async def yields_in_a_task_group(_: Scope, __: Prompt) -> Events:
    async with asyncio.TaskGroup() as group:
        group.create_task(asyncio.sleep(0.01))
        yield text("a")
    yield COMPLETED


async def works_on_after_preparing(_: Scope, __: Prompt) -> Events:
    try:
        await asyncio.sleep(0.01)
    except asyncio.CancelledError:
        await asyncio.sleep(0)
    yield text("a")
    yield COMPLETED


def starts_before_it_is_asked(_: Scope, __: Prompt) -> Events:
    work = asyncio.get_running_loop().create_task(asyncio.sleep(0.05), name="eager work")

    async def events() -> Events:
        await work
        yield COMPLETED

    return events()


async def leaves_a_task(_: Scope, __: Prompt) -> Events:
    _kept.append(asyncio.create_task(asyncio.sleep(LONG), name="left work"))
    yield text("a")
    await asyncio.sleep(0)
    yield COMPLETED


async def leaves_a_thread(_: Scope, __: Prompt) -> Events:
    await asyncio.sleep(0)
    worker = threading.Thread(target=time.sleep, args=(2.5,), name="left thread", daemon=True)
    worker.start()
    yield text("a")
    await asyncio.sleep(0)
    yield COMPLETED


async def leaves_a_socket(_: Scope, __: Prompt) -> Events:
    _kept.append([end.detach() for end in socket.socketpair()])
    yield text("a")
    await asyncio.sleep(0)
    yield COMPLETED


async def _model() -> AsyncIterator[str]:
    while True:
        await asyncio.sleep(0)
        yield "a"


async def leaves_a_stream_open(_: Scope, __: Prompt) -> Events:
    model = _model()
    _kept.append(model)
    async for word in model:
        yield text(word)
        break
    await asyncio.sleep(0)
    yield COMPLETED


async def drops_a_stream(_: Scope, __: Prompt) -> Events:
    async for word in _model():
        yield text(word)
        break
    await asyncio.sleep(0)
    yield COMPLETED


# ── their scopes are wrong ───────────────────────────────────────────────────────────────────────────────────────────


async def bears_no_unknown_keys(scope: Scope, prompt: Prompt) -> Events:
    if set(scope) - {"session", "transcript"} or set(prompt) - {"text", "images"}:
        yield FAILED
    else:
        yield COMPLETED


async def chokes_on_images(_: Scope, prompt: Prompt) -> Events:
    if "images" in prompt:
        raise ValueError("an image")
    yield COMPLETED


def mixes_sessions() -> Acting:
    """An agent whose turns share an attribute."""
    asked: list[str] = [""]

    async def invoke(_: Scope, prompt: Prompt) -> Events:
        asked[0] = prompt["text"]
        await asyncio.sleep(0)
        yield text(asked[0])
        yield COMPLETED

    return Acting(invoke)


def refuses_late() -> Acting:
    """An agent that says something before it finds its session busy."""
    busy: set[str] = set()

    async def invoke(scope: Scope, _: Prompt) -> Events:
        yield text("let me see")
        if scope["session"] in busy:
            yield {"type": "failed", "details": "busy", "retryable": True, "code": "session_busy"}
            return
        busy.add(scope["session"])
        try:
            await asyncio.sleep(0)
            yield text("a")
        finally:
            busy.discard(scope["session"])
        yield COMPLETED

    return Acting(_holding_at_once(busy, invoke))


def refuses_for_good() -> Acting:
    """An agent that says of a busy session that trying again is of no use."""
    busy: set[str] = set()

    async def invoke(scope: Scope, _: Prompt) -> Events:
        if scope["session"] in busy:
            yield {"type": "failed", "details": "busy", "retryable": False, "code": "session_busy"}
            return
        busy.add(scope["session"])
        try:
            yield text("a")
        finally:
            busy.discard(scope["session"])
        yield COMPLETED

    return Acting(invoke)


def _holding_at_once(
    busy: set[str], invoke: Callable[[Scope, Prompt], Events]
) -> Callable[[Scope, Prompt], Events]:
    """The first event of a turn that is not refused comes once it holds its session."""

    async def holding(scope: Scope, prompt: Prompt) -> Events:
        if scope["session"] in busy:
            async for event in invoke(scope, prompt):
                yield event
            return
        busy.add(scope["session"])
        try:
            yield text("a")
        finally:
            busy.discard(scope["session"])
        yield COMPLETED

    return holding


def remembers_by_itself() -> Acting:
    """An agent whose conversation is in its own memory."""
    said: list[str] = []

    async def invoke(_: Scope, prompt: Prompt) -> Events:
        yield text(" ".join(said) or "nothing yet")
        said.append(prompt["text"])
        yield COMPLETED

    return Acting(invoke)


async def keeps_the_loop(_: Scope, __: Prompt) -> Events:
    time.sleep(0.4)  # noqa: ASYNC251 - the mistake that is shown
    yield COMPLETED


def _saying(name: str, *events: Any, breaks: tuple[str, ...]) -> Exhibit:
    return Exhibit(name, lambda: saying(*events, COMPLETED), frozenset(breaks), is_failure=False)


SELF_ENDING = (
    exhibit_of(raises, "A1", "A2"),
    exhibit_of(raises_at_once, "A1", "A2"),
    exhibit_of(raises_in_the_call, "A1", "A2"),
    exhibit_of(returns_none, "A0"),
    exhibit_of(returns_a_list, "A0"),
    exhibit_of(returns_a_coroutine, "A0"),
    exhibit_of(is_empty, "A1"),
    exhibit_of(has_no_terminal, "A1"),
    exhibit_of(exits, "A2"),
    exhibit_of(stops_iteration, "A2"),
    exhibit_of(leaks_a_cancel, "A2"),
    exhibit_of(fails_untyped, "A2", "A4b"),
    exhibit_of(gives_no_object, "A4"),
    exhibit_of(chatters_on, "A1b", is_failure=False),
    exhibit_of(has_two_terminals, "A1b"),
    exhibit_of(raises_after_the_terminal, "A1b", is_failure=False),
)
"""Their stream ends or fails without a stop, and without holding anybody up: what a host or a middleware must turn into
one terminal event."""

MISBEHAVING = (
    *SELF_ENDING,
    _saying("says_what_is_no_json", {"type": "odd", "value": object()}, breaks=("A4",)),
    _saying("says_nan", {"type": "odd", "value": float("nan")}, breaks=("A4",)),
    _saying("has_keys_that_are_numbers", {"type": "odd", 1: "one"}, breaks=("A4",)),
    _saying("says_a_tuple", {"type": "odd", "value": (1, 2)}, breaks=("A4",)),
    _saying("has_a_wrong_delta", {"type": "text", "delta": None}, breaks=("A4b",)),
    _saying("lacks_a_field", {"type": "tool_ended", "id": "t", "content": "x"}, breaks=("A4b",)),
    exhibit_of(copies_the_text, "A5", is_failure=False),
    exhibit_of(repeats_the_text, "A5", is_failure=False),
    exhibit_of(swallows_one_cancel, "A3", is_failure=False),
    exhibit_of(swallows_a_second_cancel, "A3", is_failure=False),
    exhibit_of(swallows_every_cancel, "A3", is_failure=False),
    exhibit_of(yields_in_finally, "A1b", "A3b", is_failure=False),
    exhibit_of(hangs_in_finally, "A3b", is_failure=False),
    exhibit_of(raises_in_finally, "A3b", is_failure=False),
    exhibit_of(yields_in_a_task_group, "A3b", is_failure=False),
    exhibit_of(works_on_after_preparing, "A3d", is_failure=False),
    exhibit_of(starts_before_it_is_asked, "A3c", is_failure=False),
    exhibit_of(leaves_a_task, "A3", "A3e", is_failure=False),
    exhibit_of(leaves_a_thread, "A3", "A3e", is_failure=False),
    exhibit_of(leaves_a_socket, "A3", "A3e", is_failure=False),
    exhibit_of(leaves_a_stream_open, "A3", "A3e", is_failure=False),
    exhibit_of(bears_no_unknown_keys, "A6", is_failure=False),
    exhibit_of(chokes_on_images, "A6", is_failure=False),
    Exhibit("mixes_sessions", mixes_sessions, frozenset({"A7"}), is_failure=False),
    Exhibit("refuses_late", refuses_late, frozenset({"A8"}), is_failure=False),
    Exhibit("refuses_for_good", refuses_for_good, frozenset({"A8"}), is_failure=False),
    Exhibit("remembers_by_itself", remembers_by_itself, frozenset({"A9"}), is_failure=False),
)

DUBIOUS = (
    exhibit_of(hands_over_a_failure, "A3", is_failure=False),
    exhibit_of(drops_a_stream, "A3", is_failure=False),
    exhibit_of(keeps_the_loop, "A10", is_failure=False),
)
"""Of these the kit warns."""
