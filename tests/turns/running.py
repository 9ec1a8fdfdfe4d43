"""Helpers of the supervisor's tests: a process with scripted agents, over memory or a database."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from app.agents.contract import Agent, AgentEvent, Prompt, Scope
from app.agents.driver import Bounds
from app.agents.options import options_of
from app.events.canonical import decode
from app.events.envelope import Envelope
from app.log.group_commit import GroupCommit
from app.log.hints import ALONE
from app.log.logs import Logs
from app.sessions.directory import Directory
from app.sessions.session import Session
from app.turns.admission import Query
from app.turns.limits import Limits
from app.turns.supervisor import Stores as TurnStores
from app.turns.supervisor import Supervisor
from tests.log.storing import Stores

SHORT = Bounds(grace=0.05, recancel=0.02, recancels=2, close=0.05, tail=0.05)
PATIENCE = 60.0
HI = Query("hi", {"text": "hi"})
COMPLETED: AgentEvent = {"type": "completed"}

Run = Callable[[Scope, Prompt], AsyncIterator[AgentEvent]]


def text(delta: str) -> AgentEvent:
    return {"type": "text", "delta": delta}


@dataclass(frozen=True)
class ScriptedAgent:
    """An async generator function of the test, as an agent."""

    run: Run

    def invoke(self, scope: Scope, prompt: Prompt, /) -> AsyncIterator[AgentEvent]:
        return self.run(scope, prompt)


@dataclass
class Moments:
    """What a scripted agent tells the test, and what it waits for."""

    has_begun: asyncio.Event = field(default_factory=asyncio.Event)
    may_go_on: asyncio.Event = field(default_factory=asyncio.Event)
    has_cleaned_up: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass
class Process:
    """A server's core: everything that runs turns, under one replica id."""

    stores: Stores
    logs: Logs
    commit: GroupCommit
    supervisor: Supervisor
    directory: Directory
    agents: dict[str, Agent]

    async def new_session(self, run: Run, principal: str = "alice") -> Session:
        """A session whose agent is this one."""
        name = f"agent {len(self.agents)}"
        self.agents[name] = agent = ScriptedAgent(run)
        self.supervisor.options[name] = options_of(agent)
        return await self.directory.create(principal, name)

    async def start(self, session: Session, query: Query = HI) -> str:
        """Start a turn; returns its id."""
        return str((await self.supervisor.admit(session, query)).turn_id)

    async def until(self, session: Session, event_type: str, turn_id: str | None = None) -> list[Envelope]:
        """Follow the log until an event of this type (of this turn); returns what was seen."""
        seen: list[Envelope] = []
        async with (
            asyncio.timeout(PATIENCE),
            self.logs.open(session.id) as log,
            aclosing(log.follow(0)) as pages,
        ):
            async for page in pages:
                seen += page.events
                if any(e.type == event_type and turn_id in (None, e.turn_id) for e in page.events):
                    break
        return seen

    async def ending(self, session: Session, turn_id: str) -> list[tuple[str, dict[str, Any]]]:
        """Wait for the turn's end; returns the turn's events as (type, data), checked for their order."""
        await self.until(session, "agent_run_end", turn_id)
        return await self.told(session, turn_id)

    async def told(self, session: Session, turn_id: str) -> list[tuple[str, dict[str, Any]]]:
        """The turn's events as they are stored."""
        log = await self.stores.all(session.id)
        assert [event.place for event in log] == list(range(1, len(log) + 1))
        events = [(event.type, decode(event.data)) for event in log if event.turn_id == turn_id]
        kinds = [kind for kind, _ in events]
        assert kinds[:2] == ["user_message", "agent_run_start"]
        assert kinds.count("agent_run_end") == 1
        assert kinds[-1] == "agent_run_end"
        return events


@asynccontextmanager
async def process(
    stores: Stores,
    *,
    replica_id: str = "me",
    bounds: Bounds = SHORT,
    agents: Mapping[str, Agent] | None = None,
    **limits: Any,
) -> AsyncIterator[Process]:
    """A process that is drained at the end; `limits` are those of `Limits`."""
    logs = Logs(stores.events)
    commit = GroupCommit(stores.events, logs)
    served = dict(agents or {})
    supervisor = Supervisor(
        served,
        stores=TurnStores(stores.turns, stores.queue, stores.events),
        commit=commit,
        logs=logs,
        hints=ALONE,
        replica_id=replica_id,
        limits=Limits(bounds=bounds, **limits),
    )
    commit.start()
    try:
        yield Process(stores, logs, commit, supervisor, Directory(stores.sessions), served)
    finally:
        await supervisor.drain(0.01)
        await commit.stop()


async def kill(process: Process) -> None:
    """Stop writing at once, as if the process had been killed: its turns stay as they are stored."""
    await process.commit.stop()
