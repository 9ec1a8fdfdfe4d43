"""Runs turns: one a session, each to its ending, whatever happens to its agent, its callers or this process.

A turn belongs to its session, not to a connection: callers ask for it and follow the log. Of the turns in the database
this process runs those in `_running`; it has promised to run those in `_claimed`, a row that may be stored already
included, so that `recover` can tell turns that nobody runs. Turns that wait are left to `queue`, which says when the
next one starts; who wants one stopped asks `stops`.
"""

import asyncio
import time
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from app.agents.contract import Agent, Scope
from app.agents.translate import Translation
from app.errors import SessionBusy, ShuttingDown
from app.events.ending import Ending
from app.events.envelope import Draft, Placed, now_ms, place
from app.events.ids import new_session_id, new_turn_id
from app.log.group_commit import GroupCommit
from app.log.hints import Hints
from app.log.logs import Logs
from app.log.session_log import Page, SessionLog
from app.log.store import EventStore
from app.sessions.session import Session
from app.turns.admission import (
    Admitted,
    Key,
    KeyReused,
    NextTurn,
    NothingAsked,
    OnBusy,
    Query,
    QueuedTurn,
    QueueFull,
    TurnRemoved,
)
from app.turns.aside import ask_aside
from app.turns.errands import Errands
from app.turns.limits import Limits
from app.turns.queue import TurnQueue
from app.turns.queue_store import QueueStore
from app.turns.recovery import Recovery
from app.turns.roster import Roster
from app.turns.stops import Stops
from app.turns.turn import Receipt, Turn
from app.turns.turn_store import TurnStore

SHUTDOWN = Ending.aborted("server_shutdown", "The server stopped before the turn had ended.")
OUTAGE = Ending.failed("The database was away for too long.", code="storage_unavailable", is_recoverable=True)
LAST_WRITES = 1.0

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Stores:
    """Where turns, what waits, and events are kept."""

    turns: TurnStore
    queue: QueueStore
    events: EventStore


class Supervisor:
    """The turns of one process. `replica_id` names the process in the turns that it owns.

    `options` is what each agent lets people choose in a session.
    """

    def __init__(
        self,
        agents: Mapping[str, Agent],
        *,
        stores: Stores,
        commit: GroupCommit,
        logs: Logs,
        hints: Hints,
        replica_id: str,
        limits: Limits = Limits(),  # noqa: B008 - it is frozen
    ) -> None:
        """Raises `AgentLoadError` when what an agent declares is not well formed."""
        self._roster = Roster(agents, turns=stores.turns, events=stores.events, commit=commit, limits=limits)
        self.options = self._roster.options
        self._stores = stores
        self._commit = commit
        self._logs = logs
        self._hints = hints
        self._replica_id = replica_id
        self._limits = limits
        self._running: dict[str, Turn] = {}
        self._latest: dict[str, Turn] = {}
        self._claimed: set[str] = set()
        self._admitting: dict[asyncio.Task[Any], str] = {}
        self._aside = Errands()
        self.queue = TurnQueue(
            queue=stores.queue,
            turns=stores.turns,
            hints=hints,
            limit=limits.queue,
            running=self._running.keys(),
            claimed=self._claimed,
            start=self._start_waiting,
            errands=self._aside,
        )
        self.stops = Stops(
            running=self._running,
            starting=lambda session_id: [
                admit for admit, session in self._admitting.items() if session == session_id
            ],
            queue=self.queue,
            turns=stores.turns,
            events=stores.events,
            hints=hints,
            replica_id=replica_id,
            errands=self._aside,
        )
        self._recovery = Recovery(
            turns=stores.turns,
            events=stores.events,
            commit=commit,
            replica_id=replica_id,
            claimed=self._claimed,
            translation=lambda turn: self._roster.translation(turn.id, "", turn.trace_id, turn.continues),
        )
        self.is_draining = False
        self.ended: dict[str, int] = {}

    @property
    def running(self) -> int:
        """How many turns this process runs."""
        return len(self._running)

    # ── admission ────────────────────────────────────────────────────────────────────────────────────────────────

    async def admit(
        self, session: Session, query: Query, *, on_busy: OnBusy = "reject", key: Key | None = None
    ) -> Admitted:
        """Admit a turn; returns when it is durable that it runs or waits. It then goes on without the caller.

        Raises `SessionBusy`, `QueueFull`, `KeyReused`, `TurnRemoved` (of a repeated key), `SessionDeleted`,
        `NothingAsked`, `ShuttingDown`, `BadRequest` for content that is not JSON, `NotFound` when the session's agent is not served
        here, and `StorageUnavailable` (it may have started all the same, and is ended then).
        """
        if self.is_draining:
            raise ShuttingDown("The server is shutting down.")
        return await self._see_through(self._admit(session, query, on_busy, key), session.id)

    async def _see_through(self, work: Coroutine[Any, Any, T], session_id: str) -> T:
        """Do what may start a turn in a task of its own: its caller may go, a drain and an abort wait for it."""
        admit = asyncio.create_task(work, name=f"admit in {session_id}")
        self._admitting[admit] = session_id
        admit.add_done_callback(self._was_seen_through)
        return await asyncio.shield(admit)

    def _was_seen_through(self, admit: asyncio.Task[Any]) -> None:
        del self._admitting[admit]
        if not admit.cancelled():
            admit.exception()  # is nobody's when the caller has gone, and no fault

    async def _admit(self, session: Session, query: Query, on_busy: OnBusy, key: Key | None) -> Admitted:
        turn_id = new_turn_id()
        try:
            return await self._start(turn_id, session, query, key)
        except KeyReused:
            assert key is not None  # noqa: S101 - only a key can be reused
            return await self._repeated(session.id, key)
        except (SessionBusy, NothingAsked):
            if key is not None and await self._stores.queue.turn_of_key(session.id, key) is not None:
                return await self._repeated(session.id, key)
            if on_busy == "reject" or query.answering is not None:
                raise
        try:
            return await self._enqueue(turn_id, session.id, query, key, interrupts=on_busy == "interrupt")
        except (KeyReused, QueueFull):
            if key is None or await self._stores.queue.turn_of_key(session.id, key) is None:
                raise
            return await self._repeated(session.id, key)

    async def _start(self, turn_id: str, session: Session, query: Query, key: Key | None) -> Admitted:
        self._roster.agent_of(session)
        translation, drafts = self._roster.begin(turn_id, session, query)
        self._claimed.add(turn_id)
        try:
            async with self._logs.opening(session.id) as opening:
                placed = await self._stores.turns.start(
                    turn_id,
                    session.id,
                    drafts,
                    owner=self._replica_id,
                    trace_id=query.trace_id,
                    key=key,
                    answering=query.answering,
                )
                log = opening.settle(placed.after)
        except BaseException:
            self._claimed.discard(turn_id)
            raise
        self._run(turn_id, session, query, translation, drafts, placed, log)
        return Admitted(turn_id, placed.after)

    async def _enqueue(
        self, turn_id: str, session_id: str, query: Query, key: Key | None, *, interrupts: bool
    ) -> Admitted:
        admitted = await self.queue.join(turn_id, session_id, query, key, first=interrupts)
        if interrupts:
            self.stops.interrupt(session_id, admitted.after, by=turn_id)
        return admitted

    async def _start_waiting(self, following: NextTurn) -> None:
        """Start the next turn of a queue, if it may start here."""
        if following.session.agent in self._roster and not self.is_draining:
            start = self._start_queued(following.turn, following.session)
            await self._see_through(start, following.session.id)

    async def _start_queued(self, turn: QueuedTurn, session: Session) -> None:
        translation, drafts = self._roster.begin(turn.turn_id, session, turn.query)
        self._claimed.add(turn.turn_id)
        try:
            async with self._logs.opening(session.id) as opening:
                placed = await self.queue.take(turn, drafts, owner=self._replica_id)
                if placed is None:
                    self._claimed.discard(turn.turn_id)
                    return
                log = opening.settle(placed.after)
        except BaseException:
            self._claimed.discard(turn.turn_id)
            raise
        self._run(turn.turn_id, session, turn.query, translation, drafts, placed, log)

    async def _repeated(self, session_id: str, key: Key) -> Admitted:
        turn_id = await self._stores.queue.turn_of_key(session_id, key)
        if turn_id is None:
            raise TurnRemoved("The turn of this Idempotency-Key is gone.")
        # The head first: a turn that still waits afterwards begins behind it.
        head = await self._stores.events.head(session_id)
        waiting = await self.queue.rejoin(turn_id, session_id, head.place if head else 0)
        if waiting is not None:
            return waiting
        row = await self._stores.turns.get(turn_id)
        if row is None:
            raise TurnRemoved(
                "The turn of this Idempotency-Key was removed from the queue.", details={"turnId": turn_id}
            )
        return Admitted(turn_id, row.first_place - 1, is_repeat=True)

    # ── upkeep ───────────────────────────────────────────────────────────────────────────────────────────────────

    def fail_turns_in_an_outage(self) -> None:
        """Fail the running turns when the database has been away for too long; it is written when it is back."""
        if self._commit.failing_for > self._limits.outage:
            for turn in self._running.values():
                turn.stop_aside(OUTAGE)

    async def ask_aside(self, session: Session, text: str, patience: float) -> str | None:
        """What the session's agent says to a text outside of the session; None when it does not say so in time.

        Raises `NotFound` when the agent is not served here, `ShuttingDown`.
        """
        if self.is_draining:
            raise ShuttingDown("The server is shutting down.")
        agent = self._roster.agent_of(session)
        scope: Scope = {"session": new_session_id(), "principal": session.principal}
        bounds = self._limits.bounds
        return await ask_aside(agent, scope, {"text": text}, patience=patience, bounds=bounds)

    async def drain(self, grace: float) -> None:
        """Admit no more turns and end those that run, within `grace` seconds. Turns that wait are left to others.

        Half of the time they may end by themselves; then they are aborted, and what their agents do is not waited for
        beyond the end.
        """
        self.is_draining = True
        deadline = time.monotonic() + grace
        await self._wait_for_turns(grace / 2)
        for turn in self._running.values():
            self._aside.send(turn.stop(SHUTDOWN), f"{turn.id} stops")
        await self._wait_for_turns(deadline - LAST_WRITES - time.monotonic())
        for turn in list(self._running.values()):
            turn.end_now(SHUTDOWN)
        await self._wait_for_turns(max(LAST_WRITES / 2, deadline - time.monotonic()))
        self._aside.give_up()

    async def recover(self, *, is_alone: bool) -> int:
        """End the running turns that nobody runs, and start what waited behind them; returns how many."""
        sessions = await self._recovery.run(is_alone=is_alone)
        if sessions:
            self.ended["interrupted"] = self.ended.get("interrupted", 0) + len(sessions)
        for session_id in sessions:
            await self.queue.dispatch(session_id)
        return len(sessions)

    async def retire(self, age: float) -> int:
        """Remove the deltas of turns that ended `age` seconds ago; returns of how many turns."""
        return await self._stores.turns.retire(now_ms() - round(age * 1000))

    async def forget_keys(self, age: float) -> int:
        """Let idempotency keys go that are older than `age` seconds; returns how many."""
        return await self._stores.turns.forget_keys(now_ms() - round(age * 1000))

    # ── running ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _run(
        self,
        turn_id: str,
        session: Session,
        query: Query,
        translation: Translation,
        drafts: Sequence[Draft],
        placed: Placed,
        log: SessionLog,
    ) -> None:
        log.show(Page(placed.after, placed.last, place(session.id, turn_id, drafts, placed)))
        self._hints.moved({session.id: placed.last})
        turn = self._roster.turn(
            turn_id, session, query, translation, written=len(drafts), before=placed.after
        )
        if (taken_over := self._running.get(session.id)) is not None:
            # Else the new turn would wait for an agent that nobody stops any more.
            taken_over.stop_aside(Ending.aborted())
        self._running[session.id] = turn
        turn.ended.add_done_callback(lambda ended: self._has_ended(session.id, turn, ended.result()))
        previous, self._latest[session.id] = self._latest.get(session.id), turn
        turn.run(previous)

    def _has_ended(self, session_id: str, turn: Turn, receipt: Receipt) -> None:
        if self._running.get(session_id) is turn:  # else a reader of its last event has started the next one
            del self._running[session_id]
        self._claimed.discard(turn.id)
        self._logs.release(session_id)
        if receipt.last_place:  # else whoever took it over has ended it, and counts it
            self.ended[receipt.status] = self.ended.get(receipt.status, 0) + 1
        if turn.is_over:
            self._forget(session_id, turn)
        else:
            self._aside.send(turn.over(), f"{turn.id} cleans up").add_done_callback(
                lambda _: self._forget(session_id, turn)
            )
        self.queue.dispatch_behind(session_id)

    def _forget(self, session_id: str, turn: Turn) -> None:
        if self._latest.get(session_id) is turn:
            del self._latest[session_id]

    async def _wait_for_turns(self, seconds: float) -> None:
        """Wait until no turn runs or is being started, so many seconds at most."""
        deadline = time.monotonic() + seconds
        while (under_way := self._under_way()) and (left := deadline - time.monotonic()) > 0:
            await asyncio.wait(under_way, timeout=left)

    def _under_way(self) -> list[asyncio.Future[Any]]:
        work = (*(turn.ended for turn in self._running.values()), *self._admitting)
        return [each for each in work if not each.done()]
