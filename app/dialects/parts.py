"""What the routes of every dialect work with."""

from dataclasses import dataclass

from starlette.requests import HTTPConnection

from app.errors import Unauthenticated
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
    """Built by the wiring, shared by all routes. `agents` are the names that sessions may ask for, the default first."""

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


def principal_of(connection: HTTPConnection) -> str:
    """Who asks. The gate has let nobody pass who has no name."""
    principal = connection.scope.get("state", {}).get("principal")
    if not isinstance(principal, str):
        raise Unauthenticated("Who are you?")
    return principal
