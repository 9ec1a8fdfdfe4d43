"""Drives one turn of any agent to exactly one outcome.

What is promised, however the agent behaves:
- `ended` is called exactly once, at the moment the outcome is known: the first terminal event wins and is
  told at once, before the agent has cleaned up.
- After that, and after `cancel` was asked for, no event reaches the sink any more.
- The call to `invoke`, every step and `aclose` happen in one task, the pump: cancel scopes, task groups and
  context variables of the agent stay whole. Nobody else touches the iterator.
- Every wait for the agent is bounded once its turn has ended or was cancelled. An agent that ignores all of
  it is abandoned: Python can't end its task, so the task is kept aside and counted, and is silent.

Deliberate oddities: the pump swallows every exception of an agent, `SystemExit` and `KeyboardInterrupt`
included (asyncio would tear down the loop); only `GeneratorExit` passes, because it means that the pump
itself is being destroyed. `asyncio.wait_for` is avoided: on Python 3.11 it moves steps between tasks and can
swallow a cancel.

An agent that blocks the loop without awaiting, and whether events are JSON, are left to others. The sink must
take what it needs of an event before it returns: the agent may change the event afterwards.
"""

import asyncio
import inspect
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Protocol

from app.agents.contract import TERMINAL_TYPES, Agent, AgentEvent, Prompt, Scope
from app.agents.outcome import BadEvent, Cancelled, Failed, Outcome
from app.agents.reading import (
    EXCEPTION,
    NO_TERMINAL,
    NotAStream,
    described,
    iterator_of,
    kind_of,
    outcome_of,
    protocol_error,
    shown,
)
from app.errors import TarkoError, Unavailable

log = logging.getLogger(__name__)

_EVENTS_BEFORE_A_PAUSE = 64

_abandoned: set[asyncio.Task[None]] = set()


def abandoned_pumps() -> int:
    """How many agents are still running although they were cancelled and given up on."""
    return len(_abandoned)


@dataclass(frozen=True, slots=True)
class Bounds:
    """How long the agent may take, in seconds.

    `grace` after the first cancel; `recancel` after each of the `recancels` further ones, then it is
    abandoned. `close` for `aclose`; `tail` to end its iteration after its terminal event.
    """

    grace: float = 5.0
    recancel: float = 2.0
    recancels: int = 2
    close: float = 5.0
    tail: float = 5.0


DEFAULT_BOUNDS = Bounds()


class Sink(Protocol):
    """Takes the events that are not terminal, in order, one at a time."""

    def __call__(self, event: AgentEvent, /) -> Awaitable[None] | None:
        """Take the event, or return an awaitable that the pump waits for before it asks for more.

        Raises BadEvent to refuse it: the turn fails with the refusal's code.
        """
        ...


class _Rest(Enum):
    """What is left to do with an iterator once the outcome is known."""

    NOTHING = auto()
    CLOSE = auto()
    TAIL = auto()


class _Refused(Exception):
    """The sink raised its `__cause__`: tells its errors from those of the agent."""


class Drive:
    """One turn being driven: not started, running, ended, over.

    *Ended* means that the outcome is known and told; *over* that the pump's task is gone too, or abandoned.
    The first outcome wins: `_settle` is the only place that tells it.
    """

    __slots__ = (
        "_agent",
        "_bounds",
        "_ended",
        "_escalation",
        "_guard",
        "_name",
        "_over",
        "_prompt",
        "_pump_task",
        "_scope",
        "_sink",
        "_stopping",
        "abandoned",
        "has_ended",
        "violations",
    )

    def __init__(
        self,
        agent: Agent,
        scope: Scope,
        prompt: Prompt,
        sink: Sink,
        ended: Callable[[Outcome], None],
        *,
        bounds: Bounds = DEFAULT_BOUNDS,
        name: str,
    ) -> None:
        self._agent = agent
        self._scope = scope
        self._prompt = prompt
        self._sink = sink
        self._ended = ended
        self._bounds = bounds
        self._name = name
        self._pump_task: asyncio.Task[None] | None = None
        self._escalation: asyncio.Task[None] | None = None
        self._guard: asyncio.TimerHandle | None = None
        self._over = asyncio.Event()
        self._stopping = False
        self.has_ended = False
        self.abandoned = False
        self.violations: list[str] = []

    def start(self) -> None:
        """Start the pump, in a copy of the current context. Does nothing if `cancel` came first."""
        if self._pump_task is not None:
            raise RuntimeError(f"{self._name} was started already")
        if not self._stopping:
            self._pump_task = asyncio.create_task(self._pump(), name=self._name)
            self._pump_task.add_done_callback(self._pump_is_over)

    async def cancel(self) -> None:
        """Stop the agent and wait until it is over. Any number of callers share one escalation.

        A caller that is cancelled itself stops waiting; the escalation goes on.
        """
        self._begin_to_stop()
        if self._escalation is not None:
            await asyncio.shield(self._escalation)
        else:
            await self._over.wait()

    @property
    def is_over(self) -> bool:
        """Whether the pump's task is gone, or was abandoned."""
        return self._over.is_set()

    async def wait(self) -> None:
        """Wait until the agent is over: its clean-up included, or abandoned."""
        await self._over.wait()

    def _begin_to_stop(self) -> None:
        if self._stopping:
            return
        self._stopping = True
        if self._pump_task is None:
            self._settle(Cancelled())
            self._over.set()
        elif not self._pump_task.done():
            self._pump_task.cancel()
            self._escalation = asyncio.create_task(
                self._escalate(self._pump_task), name=f"{self._name} (cancel)"
            )

    async def _escalate(self, pump: asyncio.Task[None]) -> None:
        """See the first cancel through. `asyncio.wait` neither cancels what it waits for nor raises."""
        await asyncio.wait({pump}, timeout=self._bounds.grace)
        for _ in range(self._bounds.recancels):
            if pump.done():
                return
            pump.cancel()
            await asyncio.wait({pump}, timeout=self._bounds.recancel)
        if not pump.done():
            self._abandon(pump)

    def _abandon(self, pump: asyncio.Task[None]) -> None:
        self.abandoned = True
        _abandoned.add(pump)
        pump.add_done_callback(_abandoned.discard)
        log.error("%s: the agent ignored every cancel and was abandoned", self._name)
        self._settle(Cancelled())
        self._over.set()

    def _settle(self, outcome: Outcome) -> None:
        if self.has_ended:
            return
        self.has_ended = True
        try:
            self._ended(outcome)
        except Exception:
            log.exception("%s: telling the outcome failed", self._name)

    def _pump_is_over(self, pump: asyncio.Task[None]) -> None:
        """Also the last resort: a task that is cancelled before its first step runs nothing of `_pump`."""
        if self._guard is not None:
            self._guard.cancel()
        for violation in self.violations:
            log.warning("%s: the agent broke its contract: %s", self._name, violation)
        error = None if pump.cancelled() else pump.exception()
        if error is not None:
            log.error("%s: the pump broke", self._name, exc_info=error)
        if error is None or self._stopping:
            self._settle(Cancelled())
        else:
            self._settle(Failed(described(error), retryable=False, code=EXCEPTION))
        self._over.set()

    async def _pump(self) -> None:
        iterator = await self._open()
        if iterator is None:
            return
        rest = await self._read_to_the_outcome(iterator)
        self._guard = asyncio.get_running_loop().call_later(
            self._bounds.tail + self._bounds.close, self._begin_to_stop
        )
        _forget_cancels()
        if rest is _Rest.TAIL:
            rest = await self._tail(iterator)
        if rest is _Rest.CLOSE:
            await self._close(iterator)

    async def _open(self) -> AsyncIterator[AgentEvent] | None:
        try:
            stream: Any = self._agent.invoke(self._scope, self._prompt)
            if not hasattr(stream, "__aiter__") and inspect.isawaitable(stream):
                self.violations.append("invoke returned an awaitable, not an async iterable")
                stream = await stream
            return iterator_of(stream)
        except GeneratorExit:
            raise
        except BaseException as error:  # noqa: BLE001 - the agent's code may raise anything
            self._agent_raised(error)
            return None

    async def _read_to_the_outcome(self, iterator: AsyncIterator[AgentEvent]) -> _Rest:
        try:
            return await self._read(iterator.__anext__)
        except GeneratorExit:
            raise
        except _Refused as refused:
            self._sink_raised(refused.__cause__ or refused)
            return _Rest.CLOSE
        except BaseException as error:  # noqa: BLE001 - the agent's code may raise anything
            return self._agent_raised(error)

    async def _read(self, step: Callable[[], Awaitable[AgentEvent]]) -> _Rest:
        """The hot path. The stop flag is read after every await, before anything is done with what came."""
        sink = self._sink
        until_a_pause = _EVENTS_BEFORE_A_PAUSE
        while not self._stopping:
            event = await step()
            kind = event.get("type") if type(event) is dict else kind_of(event)
            if self._stopping or not isinstance(kind, str) or kind in TERMINAL_TYPES:
                return self._last(event, kind)
            try:
                pending = sink(event)
                if pending is not None:
                    await pending
            except (Exception, asyncio.CancelledError) as error:
                raise _Refused from error
            until_a_pause -= 1
            if not until_a_pause:
                # An agent that never awaits would otherwise keep the loop for itself.
                until_a_pause = _EVENTS_BEFORE_A_PAUSE
                await asyncio.sleep(0)
        self._settle(Cancelled())
        return _Rest.CLOSE

    def _last(self, event: AgentEvent, kind: object) -> _Rest:
        """End with this event: a terminal one, one that is no event, or one that came after the cancel."""
        is_terminal = isinstance(kind, str) and kind in TERMINAL_TYPES
        if self._stopping:
            self._settle(Cancelled())
        elif is_terminal:
            self._settle(outcome_of(event, str(kind)))
        else:
            self._settle(protocol_error(f"an event is an object with a string `type`, not {shown(event)}"))
        return _Rest.TAIL if is_terminal else _Rest.CLOSE

    def _agent_raised(self, error: BaseException) -> _Rest:
        exhausted = isinstance(error, StopAsyncIteration)
        if self._stopping:
            if not exhausted and not isinstance(error, asyncio.CancelledError):
                self.violations.append(f"raised while it was cancelled: {described(error)}")
            self._settle(Cancelled())
        elif exhausted:
            self._settle(NO_TERMINAL)
        elif isinstance(error, NotAStream):
            self._settle(protocol_error(str(error)))
        else:
            log.error("%s: the agent raised", self._name, exc_info=error)
            self._settle(Failed(described(error), retryable=False, code=EXCEPTION))
        return _Rest.NOTHING if exhausted else _Rest.CLOSE

    def _sink_raised(self, error: BaseException) -> None:
        if self._stopping:
            self._settle(Cancelled())
        elif isinstance(error, BadEvent):
            self._settle(Failed(str(error), retryable=False, code=error.code))
        elif isinstance(error, TarkoError):
            self._settle(Failed(str(error), retryable=isinstance(error, Unavailable), code=error.code))
        else:
            log.error("%s: an event could not be taken", self._name, exc_info=error)
            self._settle(Failed("an event could not be taken", retryable=False, code=TarkoError.code))

    async def _tail(self, iterator: AsyncIterator[AgentEvent]) -> _Rest:
        """Ask once more, so that code after the agent's last yield runs where the agent expects it."""
        try:
            async with asyncio.timeout(self._bounds.tail):
                await iterator.__anext__()
        except StopAsyncIteration:
            return _Rest.NOTHING
        except GeneratorExit:
            raise
        except BaseException as error:  # noqa: BLE001 - the agent's code may raise anything
            self.violations.append(f"did not end after its terminal event: {described(error)}")
        else:
            self.violations.append("an event came after the terminal one")
        return _Rest.CLOSE

    async def _close(self, iterator: AsyncIterator[AgentEvent]) -> None:
        """Close once: a second `aclose` can't help a generator that refused the first."""
        aclose = getattr(iterator, "aclose", None)
        if aclose is None:
            return
        try:
            async with asyncio.timeout(self._bounds.close):
                await aclose()
        except GeneratorExit:
            raise
        except BaseException as error:  # noqa: BLE001 - the agent's code may raise anything
            self.violations.append(f"did not close: {described(error)}")


def _forget_cancels() -> None:
    """The cancel has done its work: the agent's task groups must not see it again in clean-up."""
    task = asyncio.current_task()
    while task is not None and task.cancelling():
        task.uncancel()
