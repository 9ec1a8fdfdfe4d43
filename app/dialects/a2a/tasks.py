"""What can be done with tasks: send, get, list, cancel, follow. They are sessions and turns, and nothing beside them.

A context is a session, a task an exchange of its turns, whoever started them and however: what Tarko started is a task
here, and what was sent here is a turn there. A context that its caller has named lives in a session whose id follows
from the name; the session keeps the name. Everything is looked up for one principal and one agent: what belongs to
others was never there.
"""

import asyncio
from collections.abc import Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, replace

from a2a.utils.errors import InvalidParamsError, TaskNotCancelableError, TaskNotFoundError

from app.agents.prompt import prompt_of
from app.dialects.a2a.parts import Parts
from app.dialects.a2a.reading import MARKS, QUESTION_CLOSED, Fold
from app.dialects.a2a.requests import Cancel, Get, ListTasks, Send, page_place, page_token
from app.dialects.a2a.spelling import Task
from app.errors import NotFound, SessionDeleted, StorageUnavailable
from app.events.canonical import encode
from app.events.envelope import Draft, Envelope, now_ms
from app.events.ids import is_session_id, is_turn_id
from app.events.metadata import metadata
from app.log.history import HistoryQuery
from app.log.store import Dropped, Slice
from app.log.writers import append_event
from app.sessions.session import Session
from app.turns.admission import Admitted, Answering, Key, Query
from app.turns.exchanges import Exchange, ExchangePlace, State, Wanted

LIST_BYTES = 8 * 2**20
OUTAGE_PAUSE = 0.2
OPENING = 2
"""How many events open a turn: what the user says, and the start of the run."""

SKELETON = ("user_message", "agent_run_start", "error", "agent_run_end")

_STATES: dict[int, Sequence[State]] = {
    2: ("running",),
    3: ("completed",),
    4: ("failed", "interrupted"),
    5: ("aborted",),
    6: ("asking",),
}
"""By the number that the protocol gives a state; the others are never reached here."""


@dataclass(frozen=True, slots=True)
class Caller:
    """Who calls, and which agent is meant."""

    principal: str
    agent: str


@dataclass(frozen=True, slots=True)
class Sent:
    """A message that has become, or was already, a turn: its task is to be followed from `after`.

    `task` is where the task stands, if more than the new turn is to be told.
    """

    session_id: str
    context_id: str
    task_id: str
    turn_id: str
    after: int
    task: Task | None


@dataclass(frozen=True, slots=True)
class Listed:
    """A page of tasks."""

    tasks: Sequence[Task]
    total: int
    next_token: str


class Tasks:
    """The tasks of all hosted agents."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    async def send(self, caller: Caller, send: Send, trace_id: str | None) -> Sent:
        """Start a turn with the message, or find the one that it has started before.

        Raises `SessionBusy` (nothing was recorded then), `NothingAsked` for an answer to a task that asks nothing,
        `TaskNotFoundError`, `InvalidParamsError`, and what `Supervisor.admit` raises.
        """
        exchange: Exchange | None = None
        if send.task_id:
            exchange, session = await self._find(caller, send.task_id)
            if send.context_id not in ("", context_of(session)):
                raise InvalidParamsError("The task belongs to another context.")
        else:
            session = await self._session_for(caller, send)
        query = Query(send.content, prompt_of(send.content), trace_id, marks={MARKS: dict(send.marks)})
        if exchange is not None:
            query = replace(query, answering=Answering(exchange.last_turn, exchange.id))
        # The same id is the same message, so its content is not compared.
        key = Key(f"a2a {send.message_id}", "a2a") if self._parts.is_idempotent else None
        admitted = await self._parts.supervisor.admit(session, query, key=key)
        return await self._sent(session, admitted, exchange)

    async def _sent(self, session: Session, admitted: Admitted, answered: Exchange | None) -> Sent:
        context_id = context_of(session)
        turn_id = admitted.turn_id
        if admitted.is_repeat:
            row = await self._parts.turns.get(turn_id)
            exchange = await self._exchange(row.continues or turn_id if row is not None else turn_id)
            turn_id = exchange.last_turn  # the task may have gone on since
        elif answered is not None:
            # As it stood when the answer began, so that all that follows is told.
            exchange = replace(
                answered, last_turn=turn_id, last_place=admitted.after + OPENING, state="running"
            )
        else:
            return Sent(session.id, context_id, turn_id, turn_id, admitted.after, None)
        task = await self._read(exchange, context_id)
        return Sent(session.id, context_id, exchange.id, turn_id, task.place, task)

    async def settled(self, sent: Sent) -> Task:
        """The task once the message's turn has ended, or the agent asks."""
        after = sent.after if sent.task is None else sent.task.place
        if sent.task is None or sent.task.status.state == "working":
            await self._until_end_of(sent.session_id, sent.turn_id, after)
        return await self.standing(sent)

    async def standing(self, sent: Sent) -> Task:
        """The task as it stands now."""
        return await self._read(await self._exchange(sent.task_id), sent.context_id)

    async def get(self, caller: Caller, get: Get) -> Task:
        """A task. Raises `TaskNotFoundError`."""
        return (await self.follow(caller, get.task_id)).task_now

    async def follow(self, caller: Caller, task_id: str) -> "Followed":
        """A task and how to follow it. Raises `TaskNotFoundError`."""
        exchange, session = await self._find(caller, task_id)
        context_id = context_of(session)
        task = await self._read(exchange, context_id)
        return Followed(session.id, context_id, task)

    async def cancel(self, caller: Caller, cancel: Cancel) -> Task:
        """Abort the task's turn, or close its question; the same abort as everywhere.

        Raises `TaskNotFoundError`, and `TaskNotCancelableError` when it is over.
        """
        exchange, session = await self._find(caller, cancel.task_id)
        was_open = False
        while exchange.state in ("running", "asking"):
            was_open = True
            if exchange.state == "running":
                await self._parts.supervisor.stops.abort(exchange.session_id, exchange.last_turn)
            elif await self._parts.exchanges.close_question(exchange):
                await self._tell_closed(exchange)
            exchange = await self._exchange(exchange.id)
        if not was_open or exchange.state != "aborted":
            raise TaskNotCancelableError(f"The task is over: it is {exchange.state}.")
        return await self._read(exchange, context_of(session))

    async def list(self, caller: Caller, asked: ListTasks) -> Listed:
        """A page of the caller's tasks, last updated first. It ends early when it has become large."""
        parts = self._parts
        after = page_place(asked.token)
        try:
            session = await self._named_session(caller, asked.context_id) if asked.context_id else None
        except SessionDeleted:
            session = None
        if asked.context_id and session is None:
            return Listed([], 0, "")
        states = _STATES.get(asked.state, ()) if asked.state else None
        wanted = Wanted(caller.principal, caller.agent, session.id if session else None, states, asked.since)
        page = await parts.exchanges.list(
            wanted, limit=asked.size, after=None if after is None else ExchangePlace(*after)
        )
        contexts = {} if session is None else {session.id: asked.context_id}
        tasks: list[Task] = []
        size = told = 0
        for exchange in page.exchanges:
            told += 1
            with suppress(NotFound):  # a session that was deleted meanwhile
                if exchange.session_id not in contexts:
                    found = await self._session(caller, exchange.session_id)
                    contexts[exchange.session_id] = context_of(found)
                context_id = contexts[exchange.session_id]
                tasks.append(await self._read(exchange, context_id, artifacts=asked.artifacts))
                size += sum(map(len, tasks[-1].texts.values()))
            if size > LIST_BYTES:
                break
        has_more = page.has_more or told < len(page.exchanges)
        token = page_token(exchange.updated_at, exchange.id) if has_more else ""
        return Listed(tasks, page.total, token)

    # ── contexts ─────────────────────────────────────────────────────────────────────────────────────────────────

    async def _session_for(self, caller: Caller, send: Send) -> Session:
        """The session that a message goes to which names no task; made if need be."""
        directory = self._parts.directory
        if not send.context_id:
            # The first message names its session, so that a repeat of it finds it.
            once = f"a2a message\n{caller.agent}\n{send.message_id}" if self._parts.is_idempotent else None
            return await directory.create(caller.principal, caller.agent, once=once)
        named = await self._named_session(caller, send.context_id)
        if named is not None:
            return named
        return await directory.create(
            caller.principal,
            caller.agent,
            attributes={MARKS: {"contextId": send.context_id}},
            once=_name(caller, send.context_id),
        )

    async def _named_session(self, caller: Caller, context_id: str) -> Session | None:
        """The session that a context id names: its own id, or the one that was made for the name."""
        names = [self._parts.directory.id_of(caller.principal, _name(caller, context_id))]
        if is_session_id(context_id):
            names.insert(0, context_id)
        for name in names:
            try:
                session = (await self._parts.directory.find(name, caller.principal)).session
            except SessionDeleted:
                raise
            except NotFound:
                continue
            if session.agent == caller.agent and context_of(session) == context_id:
                return session
        return None

    async def _session(self, caller: Caller, session_id: str) -> Session:
        return (await self._parts.directory.find(session_id, caller.principal)).session

    # ── reading ──────────────────────────────────────────────────────────────────────────────────────────────────

    async def _find(self, caller: Caller, task_id: str) -> tuple[Exchange, Session]:
        exchange = await self._parts.exchanges.get(task_id) if is_turn_id(task_id) else None
        if exchange is not None:
            with suppress(NotFound):
                session = await self._session(caller, exchange.session_id)
                if session.agent == caller.agent:
                    return exchange, session
        raise TaskNotFoundError(f"There is no task {task_id[:80]!r}.")

    async def _exchange(self, first_turn: str) -> Exchange:
        exchange = await self._parts.exchanges.get(first_turn)
        if exchange is None:
            raise SessionDeleted("The context was deleted.")
        return exchange

    async def _read(self, exchange: Exchange, context_id: str, *, artifacts: bool = True) -> Task:
        """The task, read from the log: all of it, or only what says how it went."""
        fold = Fold(exchange, context_id)
        after = exchange.first_place - 1
        while after < exchange.last_place:
            read = self._events if artifacts else self._skeleton
            events, after = await read(exchange, after)
            fold.take(events)
        return fold.task()

    async def _events(self, exchange: Exchange, after: int) -> tuple[Sequence[Envelope], int]:
        """Events after a place, and the place that they reach. What is at hand is not read once more: it may be large."""
        log, upto = self._parts.logs.live(exchange.session_id), exchange.last_place
        pages = None if log is None else log.recent(after)
        if pages:
            reached = min(upto, pages[-1].upto)
            return [event for page in pages for event in page.events if event.place <= upto], reached
        if log is not None and pages is None:
            upto = min(upto, log.window_after)
        whole = exchange.last_turn if exchange.state == "running" else ""
        events = await self._parts.events.read(exchange.session_id, Slice(after, upto, whole))
        return events, events[-1].place if events else upto

    async def _skeleton(self, exchange: Exchange, after: int) -> tuple[Sequence[Envelope], int]:
        """The same without what the agent says."""
        query = HistoryQuery(after=after, before=exchange.last_place + 1, types=SKELETON, limit=1000)
        events = (await self._parts.history.history(exchange.session_id, query)).events
        return events, events[-1].place if events else exchange.last_place

    async def _until_end_of(self, session_id: str, turn_id: str, after: int) -> None:
        async with self._parts.logs.open(session_id) as log:
            while True:
                try:
                    async with aclosing(log.follow(after)) as pages:
                        async for page in pages:
                            if page.end_of(turn_id) is not None:
                                return
                            after = page.upto
                    raise SessionDeleted("The context was deleted.")
                except StorageUnavailable:
                    await asyncio.sleep(OUTAGE_PAUSE)

    async def _tell_closed(self, exchange: Exchange) -> None:
        draft = Draft(QUESTION_CLOSED, now_ms(), encode({"turnId": exchange.id}), metadata("server"))
        try:
            await append_event(self._parts.commit, exchange.session_id, draft)
        except Dropped as error:
            raise SessionDeleted("The context was deleted.") from error


@dataclass(frozen=True, slots=True)
class Followed:
    """A task as it stands now."""

    session_id: str
    context_id: str
    task_now: Task


def context_of(session: Session) -> str:
    """The context that a session is: the name that its caller gave it, or its id."""
    marks = session.attributes.get(MARKS)
    name = marks.get("contextId") if isinstance(marks, dict) else None
    return name if isinstance(name, str) else session.id


def _name(caller: Caller, context_id: str) -> str:
    return f"a2a context\n{caller.agent}\n{context_id}"
