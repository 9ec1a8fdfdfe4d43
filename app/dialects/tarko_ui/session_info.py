"""How the dialect spells a session. No I/O."""

from typing import Any

from app.sessions.session import Session

VERSION = 1
COMPUTED = frozenset({"version", "agentInfo"})
"""Fields of the metadata that no client can change."""


def session_info(session: Session) -> dict[str, Any]:
    """A session as the UI reads it: its name, tags and agent are in `metadata`, among what clients keep there."""
    metadata: dict[str, Any] = {
        **session.attributes,
        "version": VERSION,
        "tags": session.tags,
        "agentInfo": {"name": session.agent, "configuredAt": session.created_at},
    }
    if session.name is not None:
        metadata["name"] = session.name
    return {
        "id": session.id,
        "createdAt": session.created_at,
        "updatedAt": session.updated_at,
        "workspace": "",
        "metadata": metadata,
    }
