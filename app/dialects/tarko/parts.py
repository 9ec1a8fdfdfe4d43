"""What the routes work with."""

from dataclasses import dataclass

from app.log.group_commit import GroupCommit
from app.log.history import HistoryStore
from app.log.logs import Logs
from app.sessions.directory import Directory
from app.transport.readers import Readers
from app.turns.admission import OnBusy
from app.turns.supervisor import Supervisor
from app.turns.turn_store import TurnStore


@dataclass(frozen=True, slots=True)
class Parts:
    """Built by the wiring, shared by all routes of this dialect. `agents` are the names that sessions may ask for."""

    directory: Directory
    supervisor: Supervisor
    turns: TurnStore
    commit: GroupCommit
    logs: Logs
    history: HistoryStore
    readers: Readers
    agents: tuple[str, ...]
    send_timeout: float
    on_busy: OnBusy
