"""Finds what an agent leaves behind: tasks, threads at work, descriptors, async generators, complaints.

A `Probe` notes what there is when it opens, and `leaks` tells what is new and has not gone away within a time. Threads
of a pool that wait for work are not counted; nor is a descriptor that stays for the next turn, so they are told as a
number, to be judged over several turns.
"""

import asyncio
import gc
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import thread as pool
from dataclasses import dataclass, field
from pathlib import Path
from types import AsyncGeneratorType, TracebackType
from typing import Any, Self
from weakref import WeakSet

_LOOK = 0.01
_LIBRARIES = ("site-packages", "dist-packages")
_DESCRIPTORS = Path("/dev/fd")

Generator = AsyncGeneratorType[Any, Any]


@dataclass(frozen=True, slots=True)
class Leaks:
    """What is left, in words.
    `dropped` are async generators, but for those of libraries, that nobody closed: the loop had to, in another task."""

    tasks: list[str] = field(default_factory=list)
    threads: list[str] = field(default_factory=list)
    generators: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)
    dropped: list[str] = field(default_factory=list)
    descriptors: int = 0

    @property
    def found(self) -> str:
        """What is left, but for descriptors and what was dropped; empty when nothing is."""
        kinds = {
            "task": self.tasks,
            "thread": self.threads,
            "open async generator": self.generators,
            "complaint": self.complaints,
        }
        return "; ".join(
            f"{len(left)} {kind}{'s' if len(left) > 1 else ''} ({', '.join(left[:3])})"
            for kind, left in kinds.items()
            if left
        )


class Probe:
    """Use as a context manager, in a running loop."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()
        self._threads: set[threading.Thread] = set()
        self._descriptors = 0
        self._generators: WeakSet[Generator] = WeakSet()
        self._dropped: list[str] = []
        self._complaints: list[str] = []
        self._undo: list[Callable[[], None]] = []

    def __enter__(self) -> Self:
        self._tasks = asyncio.all_tasks()
        self._threads = set(threading.enumerate())
        self._descriptors = _open_descriptors()
        self._listen_to_generators()
        self._listen_to_complaints()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for undo in reversed(self._undo):
            undo()

    async def leaks(self, within: float) -> Leaks:
        """What is left when nothing more goes away, or `within` seconds are over."""
        gc.collect()
        deadline = time.monotonic() + within  # only now: a collection may take longer than that
        while True:
            await asyncio.sleep(0)
            found = self._look()
            if not (found.found or found.descriptors > 0) or time.monotonic() > deadline:
                return found
            await asyncio.sleep(_LOOK)

    def _look(self) -> Leaks:
        tasks = asyncio.all_tasks() - self._tasks - {asyncio.current_task()}
        frames = sys._current_frames()  # noqa: SLF001 - the only way to see what a thread does
        threads = [
            thread.name
            for thread in set(threading.enumerate()) - self._threads
            if not _is_idle_worker(frames.get(thread.ident or 0))
        ]
        generators = [
            generator.__qualname__
            for generator in self._generators
            if generator.ag_frame is not None and not generator.ag_running
        ]
        return Leaks(
            sorted(task.get_name() for task in tasks),
            sorted(threads),
            generators,
            list(self._complaints),
            list(self._dropped),
            _open_descriptors() - self._descriptors,
        )

    def _listen_to_generators(self) -> None:
        first, last = sys.get_asyncgen_hooks()

        def begun(generator: Any) -> None:
            self._generators.add(generator)
            if first is not None:
                first(generator)

        def dropped(generator: Any) -> None:
            if not _is_of_a_library(generator):
                self._dropped.append(generator.__qualname__)
            if last is not None:
                last(generator)

        sys.set_asyncgen_hooks(begun, dropped)
        self._undo.append(lambda: sys.set_asyncgen_hooks(first, last))

    def _listen_to_complaints(self) -> None:
        loop = asyncio.get_running_loop()
        handler, unraisable = loop.get_exception_handler(), sys.unraisablehook
        loop.set_exception_handler(lambda _, context: self._complaints.append(str(context.get("message"))))
        sys.unraisablehook = lambda seen: self._complaints.append(f"{seen.err_msg or seen.exc_type.__name__}")
        self._undo.append(lambda: loop.set_exception_handler(handler))
        self._undo.append(lambda: setattr(sys, "unraisablehook", unraisable))


def _is_of_a_library(generator: Any) -> bool:
    """Whether a library made it for itself; what it holds is found as a descriptor or a task."""
    return any(part in generator.ag_code.co_filename for part in _LIBRARIES)


def _open_descriptors() -> int:
    try:
        return sum(1 for _ in _DESCRIPTORS.iterdir())
    except OSError:
        return 0


def _is_idle_worker(frame: Any) -> bool:
    """Whether a thread of `concurrent.futures` waits for work, or is gone."""
    return frame is None or (frame.f_code.co_filename == pool.__file__ and frame.f_code.co_name == "_worker")
