"""A plain function of text as an agent: `def answer(text)`, asynchronous or not, returning or yielding.

A string is text of the answer. A generator may also yield whole events: `thinking`, tools, its own. What a function
returns, or a generator's `return`, is more text if it is a string and the turn's structured result otherwise. A
parameter `messages` gets the conversation so far and `images` the prompt's pictures.

Synchronous functions run in a thread (`threads.py` says what an abort can do to it), asynchronous ones in the turn.
"""

import inspect
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Mapping
from contextlib import aclosing
from functools import partial
from typing import Any

from app.agents.adapters.failures import AgentFailure, guarded
from app.agents.adapters.python_tools import json_of
from app.agents.adapters.threads import Piece, in_a_thread
from app.agents.contract import TERMINAL_TYPES, AgentEvent, Prompt, Scope

_OFFERED = frozenset({"messages", "images"})


class FunctionAgent:
    """`function` takes the prompt's text, and `messages` and `images` by name if it has such parameters."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self._title = getattr(function, "__name__", "function")
        self.description = first_paragraph(function.__doc__) if inspect.isroutine(function) else ""
        self._wanted = _OFFERED & set(inspect.signature(function).parameters)

    def invoke(self, scope: Scope, prompt: Prompt, /) -> AsyncGenerator[AgentEvent, None]:
        return guarded(self._turn(scope, prompt))

    async def _turn(self, scope: Scope, prompt: Prompt) -> AsyncGenerator[AgentEvent, None]:
        async with aclosing(self._events(await self._call(scope, prompt))) as events:
            async for event in events:
                yield event
                if event["type"] in TERMINAL_TYPES:
                    return

    async def _call(self, scope: Scope, prompt: Prompt) -> Callable[[], Any]:
        extras: dict[str, Any] = {}
        if "messages" in self._wanted:
            transcript = scope.get("transcript")
            extras["messages"] = await transcript.messages() if transcript is not None else []
        if "images" in self._wanted:
            extras["images"] = prompt.get("images", [])
        return partial(self._function, prompt["text"], **extras)

    async def _events(self, call: Callable[[], Any]) -> AsyncGenerator[AgentEvent, None]:
        if _is_asynchronous(self._function):
            made = call()
        else:
            made = None
            async with aclosing(in_a_thread(call, f"agent {self._title}")) as given:
                async for each in given:
                    if isinstance(each, Piece):
                        yield self._event(each.value)
                    else:
                        made = each.value
        # A plain function may return what an asynchronous one does.
        if isinstance(made, AsyncIterable):
            async with aclosing(_generator(made)) as pieces:
                async for piece in pieces:
                    yield self._event(piece)
            made = None
        elif inspect.isawaitable(made):
            made = await made
        if isinstance(made, str):
            yield {"type": "text", "delta": made}
            made = None
        yield {"type": "completed"} if made is None else {"type": "completed", "data": json_of(made)}

    def _event(self, piece: object) -> AgentEvent:
        if isinstance(piece, str):
            return {"type": "text", "delta": piece}
        if isinstance(piece, Mapping) and isinstance(piece.get("type"), str):
            return piece
        kind = type(piece).__name__
        raise AgentFailure(f"{self._title} yields strings or events, not {kind}", "agent_protocol_error")


def first_paragraph(documentation: str | None) -> str:
    """What a documentation says first, as one line."""
    return " ".join(inspect.cleandoc(documentation or "").partition("\n\n")[0].split())


def is_text_function(function: Callable[..., Any]) -> bool:
    """Whether it takes one thing, the text, besides what is offered by name."""
    try:
        parameters = inspect.signature(function).parameters
    except ValueError:
        return False
    needed = [
        each
        for each in parameters.values()
        if each.default is each.empty and each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)
    ]
    others = [each for each in needed if each.name not in _OFFERED]
    return len(others) == 1 and others[0] is needed[0] and others[0].kind is not others[0].KEYWORD_ONLY


def _is_asynchronous(function: Callable[..., Any]) -> bool:
    called = function if inspect.isroutine(function) else getattr(function, "__call__", function)  # noqa: B004
    return any(
        test(inspect.unwrap(each.func if isinstance(each, partial) else each))
        for test in (inspect.iscoroutinefunction, inspect.isasyncgenfunction)
        for each in (function, called)
    )


async def _generator(pieces: AsyncIterable[Any]) -> AsyncGenerator[Any, None]:
    """The pieces; closing it closes where they come from."""
    iterator = aiter(pieces)
    try:
        async for piece in iterator:
            yield piece
    finally:
        aclose = getattr(iterator, "aclose", None)
        if aclose is not None:
            await aclose()
