"""The agents that are served here, and the turns that are made for them."""

from collections.abc import Mapping, Sequence

from app.agents.contract import Agent, Scope
from app.agents.options import options_of
from app.agents.translate import Translation
from app.errors import BadRequest, NotFound
from app.events.canonical import NotJson
from app.events.envelope import Draft
from app.log.group_commit import GroupCommit
from app.log.store import EventStore, Fence
from app.log.writers import TurnWriter
from app.sessions.session import Session
from app.turns.admission import Query
from app.turns.limits import Limits
from app.turns.transcript import LogTranscript
from app.turns.turn import Turn, Watch
from app.turns.turn_store import TurnStore


class Roster:
    """The agents by name. `options` is what each lets people choose in a session."""

    def __init__(
        self,
        agents: Mapping[str, Agent],
        *,
        turns: TurnStore,
        events: EventStore,
        commit: GroupCommit,
        limits: Limits,
    ) -> None:
        """Raises `AgentLoadError` when what an agent declares is not well formed."""
        self._agents = agents
        self.options = {name: options_of(agent) for name, agent in agents.items()}
        self._turns = turns
        self._events = events
        self._commit = commit
        self._limits = limits

    def __contains__(self, name: str) -> bool:
        return name in self._agents

    def agent_of(self, session: Session) -> Agent:
        """Raises `NotFound` when the session's agent is not served here."""
        agent = self._agents.get(session.agent)
        if agent is None:
            raise NotFound(f"The agent {session.agent!r} is not served here.", code="agent_not_found")
        return agent

    def translation(
        self, turn_id: str, agent: str, trace_id: str | None, continues: str | None = None
    ) -> Translation:
        """What makes the turn's events; `continues` is the turn that began the exchange."""
        return Translation(
            turn_id,
            agent,
            trace_id=trace_id,
            continues=continues,
            max_event=self._limits.max_event,
            max_turn=self._limits.max_turn,
        )

    def begin(self, turn_id: str, session: Session, query: Query) -> tuple[Translation, Sequence[Draft]]:
        """The turn's translation and its first events. Raises `BadRequest` for content that is not JSON."""
        continues = query.answering.first if query.answering else None
        translation = self.translation(turn_id, session.agent, query.trace_id, continues)
        try:
            return translation, translation.begin(query.content, query.marks)
        except NotJson as error:
            raise BadRequest(f"The query can't be kept: {error}.", code="bad_query") from error

    def turn(
        self,
        turn_id: str,
        session: Session,
        query: Query,
        translation: Translation,
        *,
        written: int,
        before: int,
    ) -> Turn:
        """A turn to run, whose first `written` events are stored behind the session's place `before`.

        Raises `NotFound` when the session's agent is not served here.
        """
        return Turn(
            turn_id,
            translation,
            lambda fenced: TurnWriter(
                self._commit, session.id, Fence(turn_id, 1), written=written, fenced=fenced
            ),
            lambda: self._turns.tool_ids(session.id),
            agent=self.agent_of(session),
            scope=self._scope(session, turn_id, query.trace_id, before),
            prompt=query.prompt,
            bounds=self._limits.bounds,
            watch=Watch(query.deadline or self._limits.deadline, query.silence or self._limits.silence),
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
        options = self.options[session.agent]
        if (model := options.model(session.attributes)) is not None:
            scope["model"] = model
        if options.schema is not None:
            scope["settings"] = options.settings(session.attributes)
        return scope
