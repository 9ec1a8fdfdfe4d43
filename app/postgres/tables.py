"""The tables. Alembic's migrations make them; a test holds the two together.

Deliberate oddities: `data` and `metadata` are `json`, not `jsonb`, because their text must come back byte for byte and
`jsonb` reorders keys and refuses `\\u0000`; they are stored uncompressed, so that their size is known without reading
them. `events` has no foreign keys: its rows are written in the statement that locks the session's head. The head
lives in a narrow row of its own with room beside it, because every flush updates it.
"""

from typing import Any

from sqlalchemy import BigInteger, Column, Index, Integer, Sequence, Text, text
from sqlalchemy.dialects.postgresql import JSON, TIMESTAMP
from sqlmodel import Field, SQLModel


def _text(*, nullable: bool = False) -> Any:
    return Column(Text(collation="C"), nullable=nullable)


class SessionTable(SQLModel, table=True):
    """A conversation. Times are epoch milliseconds; `deleted_at` makes it a tombstone."""

    __tablename__ = "sessions"
    __table_args__ = (
        Index("sessions_of_principal", "principal", text("created_at DESC"), text("id DESC")),
        Index("sessions_deleted", "deleted_at", postgresql_where=text("deleted_at IS NOT NULL")),
    )

    id: str = Field(sa_column=Column(Text(collation="C"), primary_key=True))
    principal: str = Field(sa_column=_text())
    agent: str = Field(sa_column=_text())
    name: str | None = Field(sa_column=Column(Text, nullable=True))
    tags: Any = Field(sa_column=Column(JSON, nullable=False))
    attributes: Any = Field(sa_column=Column(JSON, nullable=False))
    created_at: int = Field(sa_column=Column(BigInteger, nullable=False))
    updated_at: int = Field(sa_column=Column(BigInteger, nullable=False))
    deleted_at: int | None = Field(sa_column=Column(BigInteger, nullable=True))


class HeadTable(SQLModel, table=True):
    """Where a session's log stands. `phase` is open, closing (only the running turn may write) or closed.

    `queued` counts the turns that wait, so that whoever holds the head knows whether it may start one.
    """

    __tablename__ = "heads"
    __table_args__ = ({"postgresql_with": {"fillfactor": "50"}},)

    session_id: str = Field(sa_column=Column(Text(collation="C"), primary_key=True))
    last_seq: int = Field(sa_column=Column(BigInteger, nullable=False))
    lasting_count: int = Field(sa_column=Column(BigInteger, nullable=False))
    phase: str = Field(sa_column=_text())
    queued: int = Field(sa_column=Column(Integer, nullable=False, server_default=text("0")))


class TurnTable(SQLModel, table=True):
    """A turn. `stored` counts its events in the log; `epoch` fences writers that lost it.

    `stop` is set by a process that wants the owner to stop it. `continues` is the first of the turns that it answers.
    """

    __tablename__ = "turns"
    __table_args__ = (
        Index("turns_running", "session_id", unique=True, postgresql_where=text("state = 'running'")),
        Index("turns_of_session", "session_id", "first_seq"),
        Index("turns_continuing", "continues", "first_seq", postgresql_where=text("continues IS NOT NULL")),
        Index("turns_owned", "owner", postgresql_where=text("state = 'running'")),
        Index("turns_to_retire", "ended_at", postgresql_where=text("state = 'ended' AND NOT is_retired")),
        {"postgresql_with": {"fillfactor": "70"}},
    )

    id: str = Field(sa_column=Column(Text(collation="C"), primary_key=True))
    session_id: str = Field(sa_column=_text())
    state: str = Field(sa_column=_text())
    owner: str = Field(sa_column=_text())
    epoch: int = Field(nullable=False)
    stored: int = Field(nullable=False)
    first_seq: int = Field(sa_column=Column(BigInteger, nullable=False))
    last_seq: int = Field(sa_column=Column(BigInteger, nullable=False))
    trace_id: str | None = Field(sa_column=_text(nullable=True))
    status: str | None = Field(sa_column=_text(nullable=True))
    code: str | None = Field(sa_column=_text(nullable=True))
    started_at: int = Field(sa_column=Column(BigInteger, nullable=False))
    ended_at: int | None = Field(sa_column=Column(BigInteger, nullable=True))
    is_retired: bool = Field(nullable=False)
    stop: str | None = Field(sa_column=_text(nullable=True))
    continues: str | None = Field(sa_column=_text(nullable=True))


class EventTable(SQLModel, table=True):
    """An event. `seq` is its place; `ordinal` counts lasting events; `key` is that of a strand outside of turns, on its last event."""

    __tablename__ = "events"
    __table_args__ = (
        Index(
            "events_lasting",
            "session_id",
            "ordinal",
            unique=True,
            postgresql_where=text("ordinal IS NOT NULL"),
        ),
        Index("events_keyed", "key", unique=True, postgresql_where=text("key IS NOT NULL")),
        Index("events_tool_calls", "session_id", "seq", postgresql_where=text("type = 'tool_call'")),
    )

    session_id: str = Field(sa_column=Column(Text(collation="C"), primary_key=True))
    seq: int = Field(sa_column=Column(BigInteger, primary_key=True, autoincrement=False))
    ordinal: int | None = Field(sa_column=Column(BigInteger, nullable=True))
    turn_id: str | None = Field(sa_column=_text(nullable=True))
    type: str = Field(sa_column=_text())
    ts: int = Field(sa_column=Column(BigInteger, nullable=False))
    data: Any = Field(sa_column=Column(JSON, nullable=False))
    metadata_: Any = Field(sa_column=Column("metadata", JSON, nullable=False))
    key: str | None = Field(sa_column=_text(nullable=True))


class ReplicaTable(SQLModel, table=True):
    """A server process, and when it last said that it lives, by the database's clock."""

    __tablename__ = "replicas"

    id: str = Field(sa_column=Column(Text(collation="C"), primary_key=True))
    beat_at: Any = Field(sa_column=Column(TIMESTAMP(timezone=True), nullable=False))


class QueuedTurnTable(SQLModel, table=True):
    """A turn that waits. `query` is what it was asked with; the lowest `position` of a session is next."""

    __tablename__ = "queued_turns"
    __table_args__ = (Index("queued_turns_in_order", "session_id", "position", unique=True),)

    turn_id: str = Field(sa_column=Column(Text(collation="C"), primary_key=True))
    session_id: str = Field(sa_column=_text())
    position: int = Field(sa_column=Column(BigInteger, Sequence("queue_positions"), nullable=False))
    accepted_at: int = Field(sa_column=Column(BigInteger, nullable=False))
    trace_id: str | None = Field(sa_column=_text(nullable=True))
    query: Any = Field(sa_column=Column(JSON, nullable=False))


class IdempotencyKeyTable(SQLModel, table=True):
    """Which turn a key stands for, and a hash of the request that came with it first."""

    __tablename__ = "idempotency_keys"
    __table_args__ = (Index("idempotency_keys_by_age", "created_at"),)

    session_id: str = Field(sa_column=Column(Text(collation="C"), primary_key=True))
    key: str = Field(sa_column=Column(Text(collation="C"), primary_key=True))
    turn_id: str = Field(sa_column=_text())
    request_hash: str = Field(sa_column=_text())
    created_at: int = Field(sa_column=Column(BigInteger, nullable=False))
