"""What a probe sees, and that it leaves the loop as it was."""

import asyncio
import os
import sys
import threading
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Any

import pytest

from app.conformance import probes
from app.conformance.probes import Probe

SOURCE = """
async def words():
    yield "a"
    yield "b"
"""


def words_of(file_name: str) -> Callable[[], AsyncGenerator[str, None]]:
    """An async generator function that was written in a file of that name."""
    names: dict[str, Any] = {}
    exec(compile(SOURCE, file_name, "exec"), names)  # noqa: S102 - our own source
    words: Callable[[], AsyncGenerator[str, None]] = names["words"]
    return words


async def test_what_is_left_is_told_by_its_kind() -> None:
    is_over, release = asyncio.Event(), threading.Event()
    with Probe() as probe:
        tasks = [asyncio.create_task(is_over.wait(), name=f"task {number}") for number in range(4)]
        thread = threading.Thread(target=release.wait, name="a thread")
        thread.start()
        await asyncio.to_thread(lambda: None)  # its worker waits for more work afterwards
        words = words_of("agent.py")()
        await anext(words)
        found = (await probe.leaks(0)).found
        is_over.set()
        release.set()
        thread.join()
        await words.aclose()
        await asyncio.wait(tasks)
        nothing = (await probe.leaks(0)).found
    assert found == "4 tasks (task 0, task 1, task 2); 1 thread (a thread); 1 open async generator (words)"
    assert nothing == ""


async def test_a_generator_at_work_is_no_leak_but_its_task_is() -> None:
    is_over = asyncio.Event()

    async def waits() -> AsyncGenerator[str, None]:
        await is_over.wait()
        yield "a"

    with Probe() as probe:
        words = waits()
        task = asyncio.create_task(anext(words), name="reads")
        await asyncio.sleep(0)
        found = (await probe.leaks(0)).found
        is_over.set()
        await task
        await words.aclose()
    assert found == "1 task (reads)"


async def test_what_a_library_drops_is_not_the_agents_affair() -> None:
    with Probe() as probe:
        for name in ("venv/site-packages/library.py", "agent.py"):
            async for _ in words_of(name)():
                break
        leaks = await probe.leaks(0)
    assert leaks.dropped == ["words"]


async def test_what_is_held_by_itself_alone_is_dropped() -> None:
    with Probe() as probe:
        held: list[Any] = [words_of("agent.py")()]
        await anext(held[0])
        held.append(held)
        del held
        leaks = await probe.leaks(0)
    assert leaks.dropped == ["words"]


async def test_a_descriptor_that_is_closed_in_time_is_none() -> None:
    loop = asyncio.get_running_loop()
    with Probe() as probe:
        descriptor = os.open(os.devnull, os.O_RDONLY)
        loop.call_soon(loop.call_soon, os.close, descriptor)
        assert (await probe.leaks(60)).descriptors == 0


async def test_where_descriptors_can_not_be_seen_there_are_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probes, "_DESCRIPTORS", tmp_path / "nothing")
    with Probe() as probe:
        assert (await probe.leaks(0)).descriptors == 0


def test_the_loop_closes_generators_as_it_does_without_a_probe() -> None:
    closed: list[str] = []
    kept: list[AsyncGenerator[str, None]] = []

    async def words(name: str) -> AsyncGenerator[str, None]:
        try:
            yield name
        finally:
            closed.append(name)

    async def main() -> None:
        with Probe():
            async for _ in words("dropped"):
                break
            for _step in range(5):
                await asyncio.sleep(0)
            kept.append(words("kept"))
            await anext(kept[0])
        assert closed == ["dropped"]

    asyncio.run(main())
    assert closed == ["dropped", "kept"]


async def test_afterwards_nothing_listens_any_more() -> None:
    loop = asyncio.get_running_loop()

    def listeners() -> tuple[Any, ...]:
        return (*sys.get_asyncgen_hooks(), sys.unraisablehook, loop.get_exception_handler())

    before = listeners()
    with Probe():
        assert not set(listeners()) & {each for each in before if each is not None}
    assert listeners() == before
