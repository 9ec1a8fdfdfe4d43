"""How the dialect spells a session. No I/O."""

from collections.abc import Mapping
from typing import Any

from app.agents.options import MODEL, SETTINGS, Options
from app.sessions.session import Session, Standing

VERSION = 1
COMPUTED = frozenset({"version", "agentInfo", MODEL, SETTINGS})
"""Fields of the metadata that no client can change there: model and settings are chosen by routes of their own."""

NOTHING_TO_CHOOSE = Options()


def options_for(agent: str, options: Mapping[str, Options]) -> Options:
    """What the agent lets people choose: nothing when it is not served here."""
    return options.get(agent, NOTHING_TO_CHOOSE)


def session_info(session: Session, options: Mapping[str, Options]) -> dict[str, Any]:
    """A session as the UI reads it: its name, tags and agent are in `metadata`, among what clients keep there.

    So are its model and its settings, as they are in force.
    """
    choice = options_for(session.agent, options)
    metadata: dict[str, Any] = {
        **session.attributes,
        "version": VERSION,
        "tags": session.tags,
        "agentInfo": {"name": session.agent, "configuredAt": session.created_at},
    }
    for key, in_force in (
        (MODEL, choice.model(session.attributes)),
        (SETTINGS, choice.settings(session.attributes) if choice.schema is not None else None),
    ):
        metadata.pop(key, None)
        if in_force is not None:
            metadata[key] = in_force
    if session.name is not None:
        metadata["name"] = session.name
    return {
        "id": session.id,
        "createdAt": session.created_at,
        "updatedAt": session.updated_at,
        "workspace": "",
        "metadata": metadata,
    }


def is_processing(standing: Standing) -> bool:
    """Whether a turn runs, or waits and will: true from its acceptance until its ending."""
    return standing.running_turn is not None or standing.queued > 0


def is_unused(standing: Standing) -> bool:
    """Whether no turn has ever begun or waits."""
    return standing.last_ending is None and not is_processing(standing)
