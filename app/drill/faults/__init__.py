"""The faults, one function each: a round of it on a stage. What they need, and how often they are done, is in `FAULTS`."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Literal

from app.drill.faults.kill_points import kill_at_points
from app.drill.faults.kill_server import kill_server
from app.drill.faults.lost_answers import lose_answers
from app.drill.faults.network_cut import cut_network
from app.drill.faults.postgres import kill_embedded_postgres, kill_postgres, trouble_postgres
from app.drill.faults.replicas import lose_replica
from app.drill.faults.slow_readers import read_slowly
from app.drill.faults.storm import storm
from app.drill.faults.termination import terminate
from app.drill.findings import Findings
from app.drill.stage import Stage

Needs = Literal["embedded", "replicas", "database", "proxy", "network"]


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault: its name in `--only`, the stage it needs, its round, and how many rounds a drill has.

    `embedded`: one server that owns its database. `replicas`: two on one database, which the drill owns; `database`:
    the same, and it is the database that is broken. `proxy`: a server behind a proxy to it. `network`: a server in a
    network that can be cut.
    """

    id: str
    title: str
    needs: Needs
    round: Callable[[Stage, Findings], Awaitable[None]]
    short: int
    long: int


FAULTS = (
    Fault("F1", "kill -9 of the server", "embedded", kill_server, 2, 12),
    Fault("F2", "kill -9 at chosen points", "embedded", kill_at_points, 4, 14),
    Fault("F3", "kill -9 of its PostgreSQL", "embedded", kill_embedded_postgres, 1, 4),
    Fault("F3", "kill -9 of a shared PostgreSQL", "database", kill_postgres, 1, 4),
    Fault("F4", "PostgreSQL restarted, stopped, cut off", "database", trouble_postgres, 3, 8),
    Fault("F7", "readers that do not read", "replicas", read_slowly, 1, 2),
    Fault("F10", "SIGTERM under load", "replicas", terminate, 1, 4),
    Fault("F11", "a replica lost or stopped", "replicas", lose_replica, 2, 8),
    Fault("F12", "abort storm", "replicas", storm, 1, 4),
    Fault("F5", "lost commit answers", "proxy", lose_answers, 1, 4),
    Fault("F6", "network cut and bad weather", "network", cut_network, 1, 2),
)
