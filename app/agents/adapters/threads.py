"""Runs a synchronous function, and the generator that it may return, in a thread of its own for one turn.

What it gives comes in order, at most `_AHEAD` pieces ahead of the reader. Python can't stop a thread: when the reader
leaves, a generator is closed at its next piece, in its own thread, and nothing is asked of it again. A thread that is
still busy after `_PATIENCE` is abandoned: it is counted, told in the log, and keeps neither the turn nor the process.
"""

import asyncio
import contextvars
import logging
import threading
from collections.abc import AsyncGenerator, Callable, Iterator
from dataclasses import dataclass
from typing import Any

log = logging.getLogger(__name__)

_AHEAD = 64
_PATIENCE = 0.05  # seconds; an abort shall be told within 0.1

_abandoned: set[threading.Thread] = set()


def abandoned_threads() -> int:
    """How many threads still run for a turn that is over."""
    _abandoned.difference_update([each for each in _abandoned if not each.is_alive()])
    return len(_abandoned)


@dataclass(frozen=True, slots=True)
class Piece:
    """What a generator yielded."""

    value: Any


@dataclass(frozen=True, slots=True)
class Result:
    """What the function, or its generator, returned. It is the last."""

    value: Any


@dataclass(frozen=True, slots=True)
class _Raised:
    error: BaseException


async def in_a_thread(function: Callable[[], Any], name: str) -> AsyncGenerator[Piece | Result, None]:
    """What the function gives; whatever it raises is raised here, SystemExit as RuntimeError."""
    run = _Run(function, asyncio.get_running_loop())
    context = contextvars.copy_context()
    thread = threading.Thread(target=context.run, args=(run.work,), name=name, daemon=True)
    thread.start()
    try:
        while True:
            given = await run.given.get()
            run.slots.release()
            if isinstance(given, _Raised):
                raise _crossing(given.error)
            yield given
            if isinstance(given, Result):
                return
    finally:
        await _left(run, thread)


async def _left(run: "_Run", thread: threading.Thread) -> None:
    run.is_over.set()
    run.slots.release()
    try:
        async with asyncio.timeout(_PATIENCE):
            await run.has_ended.wait()
    except TimeoutError:
        _abandoned.add(thread)
        log.warning("%s runs on in its thread: it can't be stopped, only ignored", thread.name)
    else:
        # It has told so with its last breath.
        thread.join()


class _Run:
    """What the thread and its reader share."""

    def __init__(self, function: Callable[[], Any], loop: asyncio.AbstractEventLoop) -> None:
        self.given: asyncio.Queue[Piece | Result | _Raised] = asyncio.Queue()
        self.slots = threading.Semaphore(_AHEAD)
        self.is_over = threading.Event()
        self.has_ended = asyncio.Event()
        self._function = function
        self._loop = loop

    def work(self) -> None:
        """All that happens in the thread."""
        try:
            self._give(self._run())
        except BaseException as error:  # noqa: BLE001 - the function's code may raise anything
            self._give(_Raised(error))
        finally:
            self._tell(self.has_ended.set)

    def _run(self) -> Result:
        made = self._function()
        if not isinstance(made, Iterator):
            return Result(made)
        try:
            while not self.is_over.is_set():
                self._give(Piece(next(made)))
        except StopIteration as end:
            return Result(end.value)
        finally:
            getattr(made, "close", _nothing)()
        return Result(None)

    def _give(self, what: Piece | Result | _Raised) -> None:
        self.slots.acquire()
        if self.is_over.is_set():
            self.slots.release()
        else:
            self._tell(self.given.put_nowait, what)

    def _tell(self, call: Callable[..., object], *arguments: object) -> None:
        try:
            self._loop.call_soon_threadsafe(call, *arguments)
        except RuntimeError:
            log.debug("the loop closed before a thread of a turn that is over had ended")


def _nothing() -> None:
    """An iterator that is no generator has nothing to close."""


def _crossing(error: BaseException) -> Exception:
    """An error that may cross into the loop: it stops at SystemExit, and a generator turns StopIteration into its own."""
    if isinstance(error, Exception) and not isinstance(error, StopIteration):
        return error
    return RuntimeError(f"{type(error).__name__}: {error}")
