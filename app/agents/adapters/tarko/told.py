"""What both dialects' folds share: reading fields, and telling of each message only what was not told yet. No I/O."""

from collections.abc import Mapping
from typing import Any

from app.agents.adapters.remote_failures import BadRemoteEvent
from app.agents.contract import AgentEvent
from app.agents.translate import UNFINISHED_TOOL

REMOTE_SESSION = "remote_session"
"""The event by which the agent remembers its session on the remote server."""

_OURS = frozenset({"text", "thinking", "tool_started", "tool_ended", "completed", "failed", REMOTE_SESSION})

_REASONS = frozenset(UNFINISHED_TOOL.values())


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


class Unfinished:
    """Results of tools that a server gives only because their turn ends without them.

    They are held back until it is known: such an ending drops them, because this server closes the tools itself, and
    anything else lets them out.
    """

    __slots__ = ("_held",)

    def __init__(self) -> None:
        self._held: list[AgentEvent] = []

    def take(self, ended: AgentEvent, reason: object) -> list[AgentEvent]:
        """The result, unless it may be one of these. `reason` is its error."""
        if reason not in _REASONS or ended["content"] != reason:
            return [*self.let_out(), ended]
        self._held.append(ended)
        return []

    def let_out(self) -> list[AgentEvent]:
        """What was held back: the turn goes on."""
        held, self._held = self._held, []
        return held

    def at_completion(self) -> list[AgentEvent]:
        """What was held back and is not what a turn that completes gives to tools without a result."""
        return [ended for ended in self.let_out() if ended["content"] != UNFINISHED_TOOL["completed"]]


def text_of(fields: Mapping[str, Any], key: str) -> str:
    """A field that must be text. Raises BadRemoteEvent."""
    value = fields.get(key)
    if not isinstance(value, str):
        raise BadRemoteEvent(f"`{key}` must be text, not {type(value).__name__}")
    return value


def passed_on(kind: str, fields: Mapping[str, Any]) -> list[AgentEvent]:
    """An event that this server has no word for. It must not be taken for one of the agent's own words."""
    return [{**fields, "type": f"agent.{kind}" if kind in _OURS else kind}]
