"""What both dialects' folds share: reading fields, and telling of each message only what was not told yet. No I/O."""

from collections.abc import Mapping
from typing import Any

from app.agents.contract import AgentEvent

REMOTE_SESSION = "remote_session"
"""The event by which the agent remembers its session on the remote server."""

_OURS = frozenset({"text", "thinking", "tool_started", "tool_ended", "completed", "failed", REMOTE_SESSION})


class BadRemoteEvent(Exception):
    """The remote server sent what is no event of its dialect; the message says what was expected."""


class Told:
    """The text of each message, as far as it was told."""

    __slots__ = ("_parts",)

    def __init__(self) -> None:
        self._parts: dict[str, list[str]] = {}

    def add(self, message_id: str, delta: str) -> str:
        """Note a piece; it is what there is to tell."""
        self._parts.setdefault(message_id, []).append(delta)
        return delta

    def rest(self, message_id: str, content: str) -> str:
        """What of a message's whole text was not told yet; nothing if another text was told."""
        told = "".join(self._parts.get(message_id, ()))
        if not content.startswith(told):
            return ""
        self._parts[message_id] = [content]
        return content[len(told) :]


def text_of(fields: Mapping[str, Any], key: str) -> str:
    """A field that must be text. Raises BadRemoteEvent."""
    value = fields.get(key)
    if not isinstance(value, str):
        raise BadRemoteEvent(f"`{key}` must be text, not {type(value).__name__}")
    return value


def piece(kind: str, delta: str) -> list[AgentEvent]:
    """A `text` or `thinking` event, if there is anything to say."""
    return [{"type": kind, "delta": delta}] if delta else []


def passed_on(kind: str, fields: Mapping[str, Any]) -> list[AgentEvent]:
    """An event that this server has no word for. It must not be taken for one of the agent's own words."""
    return [{**fields, "type": f"agent.{kind}" if kind in _OURS else kind}]
