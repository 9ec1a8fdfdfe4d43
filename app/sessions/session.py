"""A session, as everyone but its log sees it."""

from dataclasses import dataclass, field
from typing import Any

from app.errors import TooLarge
from app.events.canonical import encode


@dataclass(frozen=True, slots=True)
class Session:
    """A conversation with one agent, seen by one principal only. Times are epoch milliseconds.

    `attributes` are free-form JSON that clients and dialects keep with it. `deleted_at` makes it a tombstone.
    """

    id: str
    principal: str
    agent: str
    created_at: int
    updated_at: int
    name: str | None = None
    tags: list[str] = field(default_factory=list)
    attributes: dict[str, Any] = field(default_factory=dict)
    deleted_at: int | None = None


@dataclass(frozen=True, slots=True)
class Standing:
    """A session and where its log and its turns stand: the one that runs, how many wait, how the last one ended."""

    session: Session
    last_place: int
    lasting: int
    running_turn: str | None
    queued: int = 0
    last_ending: str | None = None


MAX_ATTRIBUTES = 64 * 1024
"""Bytes of a session's attributes, encoded: they are read with every look at the session."""


def merged(attributes: dict[str, Any], change: dict[str, Any]) -> dict[str, Any]:
    """The attributes with a change merged in. Raises `TooLarge` when they would be more than `MAX_ATTRIBUTES`."""
    together = attributes | change
    if change and (size := len(encode(together))) > MAX_ATTRIBUTES:
        raise TooLarge(
            f"A session's metadata may have {MAX_ATTRIBUTES} bytes, not {size}.", code="attributes_too_large"
        )
    return together


@dataclass(frozen=True, slots=True)
class Change:
    """What to change in a session; None leaves a field alone. `attributes` are merged key by key."""

    name: str | None = None
    tags: list[str] | None = None
    attributes: dict[str, Any] = field(default_factory=dict)
