"""What another server said at once, as deltas: it may be more than one event of an agent may have."""

from app.agents.contract import AgentEvent

LONGEST = 2**20
"""Characters, at most six bytes each."""


def deltas(kind: str, text: str) -> list[AgentEvent]:
    """The text as `text` or `thinking` events; none if there is nothing to say."""
    return [{"type": kind, "delta": text[at : at + LONGEST]} for at in range(0, len(text), LONGEST)]
