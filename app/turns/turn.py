"""One turn: running, then ended. Who may end it: its agent, somebody who stops it, a drain. The first ending stands.

`_end` is the one place where a turn ends: it closes what is open, queues the last events together with the turn's
new state, and `ended` is told when they are durable. If another process took the turn over (the writes are fenced), the
agent is stopped and this process says nothing more of the turn.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from app.agents.contract import Agent, AgentEvent, Prompt, Scope
from app.agents.driver import Bounds, Drive
from app.agents.outcome import BadEvent, Completed, Failed, Outcome
from app.agents.translate import Translation
from app.events.ending import Ending
from app.events.envelope import Placed
from app.events.vocabulary import EndingStatus, is_event_type
from app.log.store import Dropped
from app.log.writers import TurnWriter

MAX_MESSAGE = 16_384


@dataclass(frozen=True, slots=True)
class Receipt:
    """How a turn ended, and the place of its last event. `is_new`: the asker is who ended it.

    A turn that was removed from the queue has had no events.
    """

    turn_id: str
    status: EndingStatus | Literal["removed"]
    last_place: int
    is_new: bool = False


@dataclass(frozen=True, slots=True)
class Watch:
    """How long a turn may take, and how long its agent may say nothing, in seconds; None for no bound."""

    deadline: float | None = None
    silence: float | None = None


class Turn:
    """A turn that this process runs."""

    def __init__(
        self,
        turn_id: str,
        translation: Translation,
        open_writer: Callable[[Callable[[], None]], TurnWriter],
        tool_ids: Callable[[], Awaitable[Sequence[str]]],
        *,
        agent: Agent,
        scope: Scope,
        prompt: Prompt,
        bounds: Bounds,
        watch: Watch = Watch(),
    ) -> None:
        """`open_writer` is given what to call when the turn is fenced."""
        self.id = turn_id
        self.ended: asyncio.Future[Receipt] = asyncio.get_running_loop().create_future()
        self._translation = translation
        self._writer = open_writer(self._fenced)
        self._tool_ids = tool_ids
        self._watch = watch
        self._previous: Turn | None = None
        self._heard: float | None = None
        self._timers: list[asyncio.TimerHandle] = []
        take = self._take if watch.silence is None else self._take_and_note
        self._drive = Drive(agent, scope, prompt, take, self._said, bounds=bounds, name=turn_id)
        self._ending: Ending | None = None
        self._stop: Ending | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def run(self, previous: "Turn | None" = None) -> None:
        """Start the agent, once the agent of the session's previous turn has cleaned up."""
        self._start_watch()
        if previous is None or previous.is_over:
            self._start()
        else:
            self._previous = previous
            self._spawn(self._start_after(previous))

    @property
    def is_over(self) -> bool:
        """Whether the agent's code has stopped running, or was given up on; that of the turn before included."""
        return self._drive.is_over and self._previous is None

    async def over(self) -> None:
        """Wait until it is."""
        if self._previous is not None:
            await self._previous.over()
        await self._drive.wait()

    async def stop(self, ending: Ending) -> Receipt:
        """Cancel the agent and end the turn so, unless it has ended already; returns when its ending is durable."""
        is_first = self._ending is None and self._stop is None
        if is_first:
            self._stop = ending
        await self._drive.cancel()
        receipt = await asyncio.shield(self.ended)
        return Receipt(
            receipt.turn_id, receipt.status, receipt.last_place, is_first and self._ending is ending
        )

    def stop_aside(self, ending: Ending) -> None:
        """Do the same without waiting, unless it is being stopped already."""
        if self._ending is None and self._stop is None:
            self._spawn(self.stop(ending))

    def end_now(self, ending: Ending) -> None:
        """End the turn without waiting for its agent any longer."""
        self._end(ending)

    def _start_watch(self) -> None:
        loop = asyncio.get_running_loop()
        if self._watch.deadline is not None:
            late = Ending.failed(
                f"The turn took longer than {self._watch.deadline:g} s.",
                code="deadline_exceeded",
                is_recoverable=True,
            )
            self._timers.append(loop.call_later(self._watch.deadline, self.stop_aside, late))
        if self._watch.silence is not None:
            self._timers.append(loop.call_later(self._watch.silence, self._listen, self._watch.silence))

    def _listen(self, silence: float) -> None:
        loop = asyncio.get_running_loop()
        # Nothing was heard while it could not speak: it has not been started, or waits for room.
        quiet = 0.0 if self._heard is None else loop.time() - self._heard
        if quiet < silence:
            self._timers.append(loop.call_later(silence - quiet, self._listen, silence))
        else:
            message = f"The agent said nothing for {silence:g} s."
            self.stop_aside(Ending.failed(message, code="agent_silent", is_recoverable=True))

    async def _start_after(self, previous: "Turn") -> None:
        await previous.over()
        self._previous = None
        self._start()

    def _start(self) -> None:
        self._heard = asyncio.get_running_loop().time()
        self._drive.start()

    def _take_and_note(self, event: AgentEvent) -> Awaitable[None] | None:
        room = self._take(event)
        if room is not None:
            return self._take_and_wait(room)
        self._heard = asyncio.get_running_loop().time()
        return None

    async def _take_and_wait(self, room: Awaitable[None]) -> None:
        self._heard = None
        await room
        self._heard = asyncio.get_running_loop().time()

    def _take(self, event: AgentEvent) -> Awaitable[None] | None:
        if self._translation.needs_tool_ids(event):
            return self._take_with_tool_ids(event)
        drafts = self._translation.take(event)
        return self._writer.append(drafts) if drafts else None

    async def _take_with_tool_ids(self, event: AgentEvent) -> None:
        self._translation.know_tool_ids(await self._tool_ids())
        room = self._writer.append(self._translation.take(event))
        if room is not None:
            await room

    def _said(self, outcome: Outcome) -> None:
        if isinstance(outcome, Completed):
            self._end(self._completed(outcome))
        elif isinstance(outcome, Failed):
            self._end(_failed(outcome))
        else:
            self._end(self._stop or Ending.aborted())

    def _completed(self, outcome: Completed) -> Ending:
        question = self._translation.question
        if not outcome.has_data:
            return Ending.completed(question=question)
        try:
            self._translation.check_result(outcome.data)
        except BadEvent as error:
            return Ending.failed(str(error), code=error.code, is_recoverable=False)
        return Ending.completed(outcome.data, question=question)

    def _end(self, ending: Ending) -> None:
        if self._ending is not None:
            return
        self._ending = ending
        for timer in self._timers:
            timer.cancel()
        stored = self._writer.end(self._translation.end(ending), ending)
        stored.add_done_callback(lambda stored: self._stored(stored, ending))

    def _stored(self, stored: "asyncio.Future[Placed]", ending: Ending) -> None:
        try:
            receipt = Receipt(self.id, ending.status, stored.result().last)
        except Dropped:
            # Whoever took the turn over writes its ending.
            receipt = Receipt(self.id, "interrupted", 0)
        self.ended.set_result(receipt)

    def _fenced(self) -> None:
        self._spawn(self._drive.cancel())

    def _spawn(self, work: "Awaitable[object]") -> None:
        async def run() -> None:
            await work

        task = asyncio.create_task(run(), name=f"{self.id} aside")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _failed(outcome: Failed) -> Ending:
    code = outcome.code if outcome.code and is_event_type(outcome.code) else "agent_failed"
    return Ending.failed(outcome.details[:MAX_MESSAGE], code=code, is_recoverable=outcome.retryable)
