"""What may start a turn, and what became of the attempt.

A busy session answers as the query says: `reject` writes nothing, `queue` keeps the turn until those before it have
ended, `interrupt` puts it first in the queue and aborts what runs. A queued turn is a row until it starts, so it
survives any process; a removed one leaves no event. A query with an idempotency key is the same turn as every other
with that key in the session.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from app.agents.contract import Prompt
from app.agents.prompt import prompt_of
from app.errors import TarkoError
from app.events.canonical import decode, encode
from app.sessions.session import Session

OnBusy = Literal["reject", "queue", "interrupt"]


class QueueFull(TarkoError):
    """As many turns wait in the session as may."""

    status = 429
    code = "queue_full"


class KeyReused(TarkoError):
    """The idempotency key stands for another request."""

    status = 422
    code = "idempotency_key_reused"


class TurnRemoved(TarkoError):
    """The turn was taken out of the queue before it started."""

    status = 409
    code = "turn_removed"


class NothingAsked(TarkoError):
    """The turn that should be answered asks nothing, or no longer: another one has followed it."""

    status = 409
    code = "nothing_asked"


@dataclass(frozen=True, slots=True)
class Answering:
    """The turn that asks, and the one that it continued itself (or again the same): the `first` of them."""

    asking: str
    first: str


@dataclass(frozen=True, slots=True)
class Query:
    """What starts a turn: the content as it came, the prompt that it is, and the trace it belongs to.

    `deadline` bounds the whole turn and `silence` the time without an event, in seconds; None: the server's own.
    `marks` are kept in the metadata of what the user said. `answering` makes it the answer to an earlier turn's
    question; such a query never waits in a queue.
    """

    content: str | list[dict[str, Any]]
    prompt: Prompt
    trace_id: str | None = None
    deadline: float | None = None
    silence: float | None = None
    marks: Mapping[str, Any] = field(default_factory=dict)
    answering: Answering | None = None

    def stored(self) -> bytes:
        """The query as it is kept while it waits."""
        kept = {"content": self.content, "deadline": self.deadline, "silence": self.silence}
        return encode(kept | ({"marks": dict(self.marks)} if self.marks else {}))

    @classmethod
    def restored(cls, stored: bytes, trace_id: str | None) -> "Query":
        """The query that was kept."""
        kept = decode(stored)
        content = kept["content"]
        return cls(
            content, prompt_of(content), trace_id, kept["deadline"], kept["silence"], kept.get("marks", {})
        )


@dataclass(frozen=True, slots=True)
class Key:
    """An idempotency key, and a hash of the request that it came with."""

    key: str
    request_hash: str


@dataclass(frozen=True, slots=True)
class QueuedTurn:
    """A turn that waits. `accepted_at` is epoch milliseconds."""

    turn_id: str
    session_id: str
    accepted_at: int
    query: Query


@dataclass(frozen=True, slots=True)
class NextTurn:
    """The turn that is next in a session, and the session."""

    turn: QueuedTurn
    session: Session


@dataclass(frozen=True, slots=True)
class Admitted:
    """A turn that will have an ending. `after` is a place before its first event.

    `is_waiting`: it is in the queue, at `position` (1 is next), and `removed` will tell whether it left it because it
    was removed. `is_repeat`: it is there since an earlier request.
    """

    turn_id: str
    after: int
    is_waiting: bool = False
    position: int = 0
    is_repeat: bool = False
    removed: "asyncio.Future[bool] | None" = None
