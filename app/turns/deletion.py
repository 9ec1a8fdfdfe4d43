"""Deletes a session: nobody's turn runs in it any more, its log says that it has ended, its readers are told.

The tombstone comes first, and what follows can be done by any process: whoever finds a tombstone whose log goes on
(`finish_deletions`) does the rest of it.
"""

import logging

from app.errors import SessionDeleted, TarkoError
from app.events.canonical import encode
from app.events.envelope import Draft, now_ms
from app.events.metadata import metadata
from app.log.group_commit import GroupCommit
from app.log.store import Dropped
from app.log.writers import append_event
from app.sessions.directory import Directory
from app.sessions.session import Session
from app.turns.supervisor import Supervisor

LEFT_ALONE = 30.0

_logger = logging.getLogger(__name__)


async def delete_session(
    session_id: str, principal: str, *, directory: Directory, supervisor: Supervisor, commit: GroupCommit
) -> None:
    """Abort the session's turn, wait for its ending, and end the log with `session_end`.

    Raises `SessionNotFound` or `SessionDeleted`.
    """
    session = await directory.bury(session_id, principal)
    try:
        await _end(session, directory, supervisor, commit)
    except Dropped as error:
        raise SessionDeleted(f"Session {session_id} was deleted.") from error


async def finish_deletions(*, directory: Directory, supervisor: Supervisor, commit: GroupCommit) -> None:
    """End the sessions whose deletion was begun `LEFT_ALONE` seconds ago and not finished."""
    for session in await directory.unfinished(LEFT_ALONE):
        try:
            await _end(session, directory, supervisor, commit)
        except Dropped:
            continue  # somebody else has
        except TarkoError as error:
            _logger.warning("%s is not deleted yet: %s", session.id, error)


async def _end(session: Session, directory: Directory, supervisor: Supervisor, commit: GroupCommit) -> None:
    # Again until nothing runs: while one process learns that its turn has ended, another may have begun the next.
    while await supervisor.stops.abort(session.id) is not None:
        pass
    now = now_ms()
    data = {
        "sessionId": session.id,
        "duration": max(0, now - session.created_at),
        "messageCount": await directory.message_count(session.id),
    }
    end = Draft("session_end", now, encode(data), metadata("server"))
    await append_event(commit, session.id, end, closes_session=True)
