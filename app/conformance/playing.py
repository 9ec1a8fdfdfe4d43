"""Plays one turn of an agent, as a caller that may leave wherever it likes; everything that came of it is written down.

One task makes the call, every step and the close. It is stepped by hand, so that a stop can be put exactly at the
agent's n-th wait. Every wait for the agent is bounded; one that ignores being stopped is left behind, and said to be
`overdue`. Nothing is judged here.
"""

import asyncio
import inspect
import types
from collections.abc import AsyncIterator, Callable, Coroutine, Generator
from dataclasses import dataclass, field
from typing import Any

from app.agents.contract import TERMINAL_TYPES, Agent, Prompt, Scope
from app.agents.reading import kind_of

_RECANCELS = 2
_LOOK = 0.02
_EVENTS_BEFORE_A_PAUSE = 64
_MOST_EVENTS = 100_000

_left_behind: set[asyncio.Task[None]] = set()


@dataclass(frozen=True, slots=True)
class Limits:
    """Seconds: `patience` for a whole turn, `stop` to end once stopped, `settle` for what goes away by itself,
    `quiet` without a step until an agent counts as waiting.
    """

    patience: float = 60.0
    stop: float = 3.0
    settle: float = 1.0
    quiet: float = 0.25


@dataclass(frozen=True, slots=True)
class Stop:
    """Where the caller leaves: before the first step, at a wait (counted from 1), after so many events, or once the
    agent is quiet. `is_doubled`: it is cancelled once more at the next wait.
    """

    before_first: bool = False
    at_wait: int = 0
    after_events: int = 0
    when_quiet: bool = False
    is_doubled: bool = False


@dataclass(slots=True)
class Turn:
    """What came of a turn.

    `waits` is how often the agent had waited before each event, and in all. `after` came after the terminal event,
    `late` after the stop.
    """

    events: list[Any] = field(default_factory=list)
    after: list[Any] = field(default_factory=list)
    late: list[Any] = field(default_factory=list)
    waits_before: list[int] = field(default_factory=list)
    waits: int = 0
    not_a_stream: str | None = None
    raised: BaseException | None = None
    raised_after: BaseException | None = None
    close_error: BaseException | None = None
    was_stopped: bool = False
    overdue: bool = False
    work_before_first: list[str] = field(default_factory=list)

    @property
    def terminal(self) -> Any:
        """The terminal event, if one came."""
        return self.events[-1] if self.events and is_terminal(self.events[-1]) else None

    @property
    def text(self) -> str:
        """The joined text deltas."""
        deltas = [event.get("delta") for event in self.events if kind_of(event) == "text"]
        return "".join(delta for delta in deltas if isinstance(delta, str))


def is_terminal(event: object) -> bool:
    """Whether it ends a stream."""
    kind = kind_of(event)
    return isinstance(kind, str) and kind in TERMINAL_TYPES


async def play(
    agent: Agent,
    scope: Scope,
    prompt: Prompt,
    limits: Limits,
    stop: Stop | None = None,
    *,
    seen: Callable[[Any], None] = lambda event: None,
) -> Turn:
    """Play a turn, to its end or to the stop. `seen` is told each event as it comes."""
    player = _Player(agent, scope, prompt, stop, seen)
    await player.play(limits)
    return player.turn


class _Player:
    def __init__(
        self, agent: Agent, scope: Scope, prompt: Prompt, stop: Stop | None, seen: Callable[[Any], None]
    ) -> None:
        self.turn = Turn()
        self._agent = agent
        self._scope = scope
        self._prompt = prompt
        self._stop = stop or Stop()
        self._seen = seen
        self._stopping = False
        self._task: asyncio.Task[None] | None = None

    async def play(self, limits: Limits) -> None:
        stepped = _stepped(self._pump(), self._waits)
        self._task = task = asyncio.create_task(_awaited(stepped), name="conformance: the agent's task")
        if self._stop.when_quiet:
            await self._until_quiet(task, limits)
            self._cancel(task)
        else:
            await self._until_stopped_or_done(task, limits)
        if not task.done() and not self.turn.was_stopped:
            self.turn.overdue = True
            self._cancel(task)
        await asyncio.wait({task}, timeout=limits.stop)
        for _ in range(_RECANCELS):
            if not task.done():
                self.turn.overdue = True
                task.cancel()
                await asyncio.wait({task}, timeout=limits.stop / 10)
        if not task.done():
            _left_behind.add(task)

    async def _until_stopped_or_done(self, task: "asyncio.Task[None]", limits: Limits) -> None:
        """Until the turn is over, or `stop` seconds after the stop was put: what comes later is waited for outside."""
        deadline = asyncio.get_running_loop().time() + limits.patience
        while not task.done() and not self.turn.was_stopped:
            left = deadline - asyncio.get_running_loop().time()
            if left <= 0:
                return
            await asyncio.wait({task}, timeout=min(_LOOK, left))

    async def _until_quiet(self, task: "asyncio.Task[None]", limits: Limits) -> None:
        deadline = asyncio.get_running_loop().time() + limits.patience
        waits = -1
        while not task.done() and waits != self.turn.waits and asyncio.get_running_loop().time() < deadline:
            waits = self.turn.waits
            await asyncio.wait({task}, timeout=limits.quiet)

    def _cancel(self, task: "asyncio.Task[None]") -> None:
        if not task.done():
            self._stopping = True
            self.turn.was_stopped = True
            task.cancel()

    def _waits(self, count: int) -> None:
        self.turn.waits = count
        assert self._task is not None  # noqa: S101 - only that task steps
        if self._stop.at_wait == count:
            self._cancel(self._task)
        elif self._stop.is_doubled and self._stopping and count == self._stop.at_wait + 1:
            self._task.cancel()

    async def _pump(self) -> None:
        turn = self.turn
        before = asyncio.all_tasks()
        iterator = self._opened()
        if iterator is None:
            return
        if self._stop.before_first:
            turn.was_stopped = True
            turn.work_before_first = [task.get_name() for task in asyncio.all_tasks() - before]
            await self._close(iterator)
            return
        if await self._read(iterator):
            await self._close(iterator)

    def _opened(self) -> AsyncIterator[Any] | None:
        turn = self.turn
        try:
            stream: Any = self._agent.invoke(self._scope, self._prompt)
            if not hasattr(stream, "__aiter__"):
                turn.not_a_stream = f"invoke returned a {type(stream).__name__}"
                if inspect.iscoroutine(stream):
                    stream.close()
                return None
            iterator = stream.__aiter__()
        except BaseException as error:  # noqa: BLE001 - the agent's code may raise anything
            turn.raised = error
            return None
        if not hasattr(iterator, "__anext__"):
            turn.not_a_stream = f"__aiter__ returned a {type(iterator).__name__}"
            return None
        return iterator  # type: ignore[no-any-return]

    async def _read(self, iterator: AsyncIterator[Any]) -> bool:
        """Read to the end or the stop; returns whether there is something to close."""
        turn = self.turn
        while True:
            try:
                if turn.waits_before and len(turn.waits_before) % _EVENTS_BEFORE_A_PAUSE == 0:
                    await asyncio.sleep(0)
                event = await iterator.__anext__()
            except GeneratorExit:
                raise
            except StopAsyncIteration:
                return False
            except BaseException as error:  # noqa: BLE001 - the agent's code may raise anything
                if not (self._stopping and isinstance(error, asyncio.CancelledError)):
                    self._note_raised(error)
                return True
            self._note(event)
            if self._stopping or turn.after:
                return True
            if len(turn.events) == _MOST_EVENTS:
                turn.overdue = True
                return True
            if self._stop.after_events and len(turn.events) == self._stop.after_events:
                turn.was_stopped = True
                return True

    def _note(self, event: Any) -> None:
        turn = self.turn
        if self._stopping:
            turn.late.append(event)
        elif turn.terminal is not None:
            turn.after.append(event)
        else:
            turn.events.append(event)
            turn.waits_before.append(turn.waits)
            self._seen(event)

    def _note_raised(self, error: BaseException) -> None:
        if self.turn.terminal is not None:
            self.turn.raised_after = error
        else:
            self.turn.raised = error

    async def _close(self, iterator: AsyncIterator[Any]) -> None:
        aclose = getattr(iterator, "aclose", None)
        if aclose is None:
            return
        try:
            await aclose()
        except GeneratorExit:
            raise
        except BaseException as error:  # noqa: BLE001 - the agent's code may raise anything
            self.turn.close_error = error


async def _awaited(stepped: Any) -> None:
    await stepped


@types.coroutine
def _stepped(work: Coroutine[Any, Any, None], waits: Callable[[int], None]) -> Generator[Any, Any, None]:
    """Run a coroutine and tell each of its waits, before it waits."""
    count = 0
    came: Any = None
    thrown: BaseException | None = None
    while True:
        try:
            pending = work.send(came) if thrown is None else work.throw(thrown)
        except StopIteration:
            return
        count += 1
        waits(count)
        came, thrown = None, None
        try:
            came = yield pending
        except BaseException as error:  # noqa: BLE001 - whatever comes belongs to the coroutine
            thrown = error
