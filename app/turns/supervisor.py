"""Runs turns: one a session, each to its ending, whatever happens to its agent, its callers or this process.

A turn belongs to its session, not to a connection: callers start it and follow the log. What this process runs is in
`_running`; what it has promised to run, a row that may be stored already included, is in `_claimed`, so that `recover`
can tell turns that nobody runs. `recover` takes such turns over and ends them `interrupted`, from what the log holds.
"""

import asyncio
import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from app.agents.contract import Agent, Prompt, Scope
from app.agents.driver import Bounds
from app.agents.translate import MAX_EVENT, MAX_TURN, Translation
from app.errors import BadRequest, NotFound, ShuttingDown
from app.events.canonical import NotJson
from app.events.ending import Ending
from app.events.envelope import Envelope, now_ms, place
from app.events.ids import is_turn_id, new_turn_id
from app.log.group_commit import GroupCommit
from app.log.logs import Logs
from app.log.session_log import Page
from app.log.store import Dropped, EventStore, Fence, Slice
from app.log.writers import TurnWriter
from app.sessions.session import Session
from app.turns.transcript import LogTranscript
from app.turns.turn import Receipt, Turn
from app.turns.turn_store import TurnRow, TurnStore

SHUTDOWN = Ending.aborted("server_shutdown", "The server stopped before the turn had ended.")
LAST_WRITES = 1.0

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Limits:
    """The largest event and the largest turn that an agent may write, in bytes, and how long it may take to stop."""

    max_event: int = MAX_EVENT
    max_turn: int = MAX_TURN
    bounds: Bounds = field(default_factory=Bounds)


@dataclass(frozen=True, slots=True)
class Query:
    """What starts a turn: the content as it came, the prompt that it is, and the trace it belongs to."""

    content: str | list[dict[str, Any]]
    prompt: Prompt
    trace_id: str | None = None


@dataclass(frozen=True, slots=True)
class Started:
    """A turn that runs, and the place before its first event."""

    turn_id: str
    after: int


class Supervisor:
    """The turns of one process. `replica_id` names the process in the turns that it owns."""

    def __init__(
        self,
        agents: Mapping[str, Agent],
        *,
        turns: TurnStore,
        events: EventStore,
        commit: GroupCommit,
        logs: Logs,
        replica_id: str,
        limits: Limits = Limits(),
    ) -> None:
        self._agents = agents
        self._turns = turns
        self._events = events
        self._commit = commit
        self._logs = logs
        self._replica_id = replica_id
        self._limits = limits
        self._running: dict[str, Turn] = {}
        self._latest: dict[str, Turn] = {}
        self._claimed: set[str] = set()
        self._starting: dict[asyncio.Task[Started], str] = {}
        self.is_draining = False
        self.ended: dict[str, int] = {}

    @property
    def running(self) -> int:
        """How many turns this process runs."""
        return len(self._running)

    async def start(self, session: Session, query: Query) -> Started:
        """Start a turn; returns when its first events are durable. The turn then runs on without the caller.

        Raises `SessionBusy`, `SessionDeleted`, `ShuttingDown`, `BadRequest` for content that is not JSON, `NotFound` when
        the session's agent is not served here, and `StorageUnavailable` (it may have started all the same, and is ended
        then).
        """
        if self.is_draining:
            raise ShuttingDown("The server is shutting down.")
        start = asyncio.create_task(self._start(session, query), name=f"start in {session.id}")
        self._starting[start] = session.id
        start.add_done_callback(lambda start: self._starting.pop(start))
        return await asyncio.shield(start)

    async def abort(self, session_id: str, turn_id: str | None = None) -> Receipt | None:
        """Abort the session's running turn, or the named one only; returns when its ending is durable.

        A turn that is just being started is running, too: a query and an abort that is sent right after it may meet here.
        Harmless when it has ended: the receipt then tells how. None when nothing runs and no turn was named. Raises
        `NotFound` for a turn that the session never had.
        """
        starting = [start for start, session in self._starting.items() if session == session_id]
        if starting and turn_id is None:
            await asyncio.wait(starting)
        running = self._running.get(session_id)
        if running is not None and not running.ended.done() and turn_id in (None, running.id):
            return await running.stop(Ending.aborted())
        if turn_id is None:
            return None
        row = await self._turns.get(turn_id) if is_turn_id(turn_id) else None
        if row is None or row.session_id != session_id:
            raise NotFound(f"The session has no turn {turn_id[:80]!r}.", code="turn_not_found")
        return Receipt(row.id, row.status or "interrupted", row.last_place)

    async def drain(self, grace: float) -> None:
        """Admit no more turns and end those that run, within `grace` seconds.

        Half of the time they may end by themselves; then they are aborted, and what their agents do is not waited for
        beyond the end.
        """
        self.is_draining = True
        deadline = time.monotonic() + grace
        await self._wait_for_turns(grace / 2)
        stops = [
            asyncio.create_task(turn.stop(SHUTDOWN), name=f"{turn.id} stops")
            for turn in self._running.values()
        ]
        await self._wait_for_turns(deadline - LAST_WRITES - time.monotonic())
        for turn in list(self._running.values()):
            turn.end_now(SHUTDOWN)
        await self._wait_for_turns(max(LAST_WRITES / 2, deadline - time.monotonic()))
        for stop in stops:
            stop.cancel()

    async def recover(self, *, is_alone: bool) -> int:
        """End the running turns that nobody runs; returns how many."""
        ended = 0
        for orphan in await self._turns.orphans(self._replica_id, self._claimed, is_alone=is_alone):
            if orphan.id in self._claimed:
                continue  # it was started while the question was under way
            taken = await self._turns.take_over(orphan, self._replica_id)
            if taken is not None and await self._interrupt(taken):
                ended += 1
        return ended

    async def retire(self, age: float) -> int:
        """Remove the deltas of turns that ended `age` seconds ago; returns of how many turns."""
        return await self._turns.retire(now_ms() - round(age * 1000))

    async def _start(self, session: Session, query: Query) -> Started:
        agent = self._agents.get(session.agent)
        if agent is None:
            raise NotFound(f"The agent {session.agent!r} is not served here.", code="agent_not_found")
        turn_id = new_turn_id()
        translation = self._translation(turn_id, session.agent, query.trace_id)
        try:
            drafts = translation.begin(query.content)
        except NotJson as error:
            raise BadRequest(f"The query can't be kept: {error}.", code="bad_query") from error
        self._claimed.add(turn_id)
        try:
            async with self._logs.opening(session.id) as opening:
                placed = await self._turns.start(
                    turn_id, session.id, drafts, owner=self._replica_id, trace_id=query.trace_id
                )
                log = opening.settle(placed.after)
        except BaseException:
            self._claimed.discard(turn_id)
            raise
        log.show(Page(placed.after, placed.last, place(session.id, turn_id, drafts, placed)))
        turn = Turn(
            turn_id,
            translation,
            lambda fenced: TurnWriter(
                self._commit, session.id, Fence(turn_id, 1), written=len(drafts), fenced=fenced
            ),
            lambda: self._turns.tool_ids(session.id),
            agent=agent,
            scope=self._scope(session, turn_id, query.trace_id, placed.after),
            prompt=query.prompt,
            bounds=self._limits.bounds,
        )
        self._running[session.id] = turn
        turn.ended.add_done_callback(lambda ended: self._has_ended(session.id, turn, ended.result()))
        previous, self._latest[session.id] = self._latest.get(session.id), turn
        turn.run(previous)
        return Started(turn_id, placed.after)

    def _translation(self, turn_id: str, agent: str, trace_id: str | None) -> Translation:
        limits = self._limits
        return Translation(
            turn_id, agent, trace_id=trace_id, max_event=limits.max_event, max_turn=limits.max_turn
        )

    def _scope(self, session: Session, turn_id: str, trace_id: str | None, before: int) -> Scope:
        scope: Scope = {
            "session": session.id,
            "turn": turn_id,
            "principal": session.principal,
            "transcript": LogTranscript(self._events, session.id, before),
        }
        if trace_id is not None:
            scope["trace"] = trace_id
        return scope

    def _has_ended(self, session_id: str, turn: Turn, receipt: Receipt) -> None:
        if self._running.get(session_id) is turn:  # else a reader of its last event has started the next one
            del self._running[session_id]
        self._claimed.discard(turn.id)
        self._logs.release(session_id)
        self.ended[receipt.status] = self.ended.get(receipt.status, 0) + 1
        if turn.is_over:
            self._forget(session_id, turn)
        else:
            over = asyncio.create_task(turn.over(), name=f"{turn.id} cleans up")
            over.add_done_callback(lambda _: self._forget(session_id, turn))

    def _forget(self, session_id: str, turn: Turn) -> None:
        if self._latest.get(session_id) is turn:
            del self._latest[session_id]

    async def _wait_for_turns(self, seconds: float) -> None:
        waiting: list[asyncio.Future[Any]] = [
            *(turn.ended for turn in self._running.values()),
            *self._starting,
        ]
        if waiting and seconds > 0:
            await asyncio.wait(waiting, timeout=seconds)

    async def _interrupt(self, turn: TurnRow) -> bool:
        translation = self._translation(turn.id, "", turn.trace_id)
        translation.recall(await self._events_of(turn))
        writer = TurnWriter(self._commit, turn.session_id, Fence(turn.id, turn.epoch), written=turn.stored)
        ending = Ending.interrupted()
        self._claimed.add(turn.id)
        try:
            await writer.end(translation.end(ending), ending)
        except Dropped:
            return False
        finally:
            self._claimed.discard(turn.id)
        _logger.warning("%s of %s had lost its process and was ended", turn.id, turn.session_id)
        self.ended["interrupted"] = self.ended.get("interrupted", 0) + 1
        return True

    async def _events_of(self, turn: TurnRow) -> list[Envelope]:
        events: list[Envelope] = []
        after = turn.first_place - 1
        while after < turn.last_place:
            page = await self._events.read(turn.session_id, Slice(after, turn.last_place))
            if not page:
                break
            events += [event for event in page if event.turn_id == turn.id]
            after = page[-1].place
        return events
