"""The fields that the contract's own events must have. A type that is not among them may have any.

Source: Agent Handler protocol specification v0.1, §5.
"""

from collections.abc import Mapping
from typing import Any

from app.agents.contract import AgentEvent

_REQUIRED: dict[str, dict[str, type]] = {
    "text": {"delta": str},
    "thinking": {"delta": str},
    "tool_started": {"id": str, "name": str, "args": object},
    "tool_ended": {"id": str, "isError": bool, "content": object},
    "retrying": {"attempt": int, "maxAttempts": int, "delayMs": int, "reason": str},
    "failed": {"details": str, "retryable": bool},
}
_OPTIONAL: dict[str, dict[str, type]] = {"failed": {"code": str}}
_NAMES = {str: "a string", bool: "true or false", int: "a whole number"}


def wrong_field(event: AgentEvent) -> str | None:
    """What is wrong with the fields of a known event, in words; None when nothing is."""
    kind = event["type"]
    for name, expected in _REQUIRED.get(kind, {}).items():
        if name not in event:
            return f"`{kind}` needs `{name}`"
        if problem := _wrong(event, name, expected):
            return problem
    for name, expected in _OPTIONAL.get(kind, {}).items():
        if name in event and (problem := _wrong(event, name, expected)):
            return problem
    return None


def _wrong(event: Mapping[str, Any], name: str, expected: type) -> str | None:
    value = event[name]
    is_right = isinstance(value, expected) and not (expected is int and isinstance(value, bool))
    if is_right:
        return None
    return f"`{event['type']}.{name}` must be {_NAMES[expected]}, not {type(value).__name__}"
