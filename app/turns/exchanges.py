"""Exchanges: a turn, and those that answer the questions it asked, seen as one piece of work.

Most exchanges are one turn. A turn that completes with a question keeps its exchange open: the answer is a turn that
continues it. The exchange is over when a turn of it ends without a question, when the question is closed, or when the
session goes on with another turn that is no answer.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

from app.events.vocabulary import EndingStatus

State = Literal["running", "asking"] | EndingStatus


@dataclass(frozen=True, slots=True)
class Exchange:
    """`id` is that of its first turn, `last_turn` that of its last; its events lie between the two places.

    `updated_at` is when its state was reached, in epoch milliseconds.
    """

    id: str
    session_id: str
    last_turn: str
    first_place: int
    last_place: int
    state: State
    updated_at: int


class ExchangePlace(NamedTuple):
    """Where a page of the list begins: after the exchange that was updated then, with that id."""

    updated_at: int
    id: str


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which exchanges: a principal's with an agent; of one session, in these states, updated since then (epoch ms)."""

    principal: str
    agent: str
    session_id: str | None = None
    states: Sequence[State] | None = None
    since: int | None = None


class ExchangePage(NamedTuple):
    """Exchanges, last updated first; how many are wanted in all; whether there are more behind these."""

    exchanges: Sequence[Exchange]
    total: int
    has_more: bool


class ExchangeStore(Protocol):
    """Reads exchanges from the turns' storage, and closes their questions."""

    async def get(self, first_turn: str) -> Exchange | None:
        """The exchange that this turn began; None when there is no such turn or it continues another."""
        ...

    async def list(self, wanted: Wanted, *, limit: int, after: ExchangePlace | None = None) -> ExchangePage:
        """A page of exchanges."""
        ...

    async def close_question(self, exchange: Exchange) -> bool:
        """Let nobody answer the question that the exchange asks; False when it asks nothing any more.

        Its state is `aborted` then.
        """
        ...
