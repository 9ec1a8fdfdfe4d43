"""What the A2A endpoint works with."""

from collections.abc import Mapping
from dataclasses import dataclass

from app.log.group_commit import GroupCommit
from app.log.history import HistoryStore
from app.log.logs import Logs
from app.log.store import EventStore
from app.sessions.directory import Directory
from app.transport.readers import Readers
from app.turns.exchanges import ExchangeStore
from app.turns.supervisor import Supervisor
from app.turns.turn_store import TurnStore

HEARTBEAT = 30.0


@dataclass(frozen=True, slots=True)
class Parts:
    """Built by the wiring. `agents` are the hosted agents' descriptions by name, the default one first.

    `heartbeat` is after how many seconds of silence a stream says its status again. `final_task_for` are the principals
    whose 0.3 streams end with a full task, `*` for all. Without `is_idempotent` a repeated message id is a new turn.
    `public_url` is how callers reach the server; None: as they did. `asks_for_tokens` is told by the card.
    """

    directory: Directory
    supervisor: Supervisor
    turns: TurnStore
    exchanges: ExchangeStore
    events: EventStore
    history: HistoryStore
    commit: GroupCommit
    logs: Logs
    readers: Readers
    agents: Mapping[str, str]
    send_timeout: float
    heartbeat: float = HEARTBEAT
    final_task_for: frozenset[str] = frozenset()
    is_idempotent: bool = True
    public_url: str | None = None
    asks_for_tokens: bool = False
