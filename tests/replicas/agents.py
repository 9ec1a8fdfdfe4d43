"""Agents for replicas in processes of their own: the prompt says what to do, files say when to go on."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

from app.agents.contract import AgentEvent, Prompt, Scope


async def obedient(_: Scope, prompt: Prompt) -> AsyncIterator[AgentEvent]:
    """`wait <dir>`, `tick <dir>`, `steps <dir> <n>`, `much <n> <size>`; whatever else is repeated."""
    match prompt["text"].split():
        case ["wait", directory]:
            script = _wait(Path(directory))
        case ["tick", directory]:
            script = _tick(Path(directory))
        case ["steps", directory, count]:
            script = _steps(Path(directory), int(count))
        case ["much", count, size]:
            script = _much(int(count), int(size))
        case words:
            script = _repeat(words)
    async for event in script:
        yield event
    yield {"type": "completed"}


async def _repeat(words: list[str]) -> AsyncIterator[AgentEvent]:
    for word in words:
        yield {"type": "text", "delta": f"{word} "}


async def _much(count: int, size: int) -> AsyncIterator[AgentEvent]:
    """So many pieces of so many characters, as fast as they are taken."""
    for number in range(count):
        yield {"type": "text", "delta": f"{number} ".ljust(size, "x")}
        await asyncio.sleep(0)


async def _wait(directory: Path) -> AsyncIterator[AgentEvent]:
    """Says something, then nothing, for ever; a file `stopped` says that it was stopped."""
    try:
        yield {"type": "text", "delta": "waiting"}
        await asyncio.Event().wait()
    finally:
        (directory / "stopped").touch()


async def _tick(directory: Path) -> AsyncIterator[AgentEvent]:
    """The same, but it never stops talking."""
    try:
        while True:
            yield {"type": "text", "delta": "tick "}
            await asyncio.sleep(0.02)
    finally:
        (directory / "stopped").touch()


async def _steps(directory: Path, count: int) -> AsyncIterator[AgentEvent]:
    """Says each number, then waits for the file of its name."""
    for number in range(count):
        yield {"type": "text", "delta": f"{number} "}
        while not (directory / str(number)).exists():  # noqa: ASYNC110 - the test is another process
            await asyncio.sleep(0.005)
