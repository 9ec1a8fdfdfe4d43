"""Deletes a session: nobody's turn runs in it any more, its log says that it has ended, its readers are told."""

from app.errors import SessionDeleted
from app.events.canonical import encode
from app.events.envelope import Draft, now_ms
from app.events.metadata import metadata
from app.log.group_commit import GroupCommit
from app.log.store import Dropped
from app.log.writers import append_event
from app.sessions.directory import Directory
from app.turns.supervisor import Supervisor


async def delete_session(
    session_id: str, principal: str, *, directory: Directory, supervisor: Supervisor, commit: GroupCommit
) -> None:
    """Abort the session's turn, wait for its ending, and end the log with `session_end`.

    Raises `SessionNotFound` or `SessionDeleted`.
    """
    session = await directory.bury(session_id, principal)
    # Again until nothing runs: while one process learns that its turn has ended, another may have begun the next.
    while await supervisor.abort(session_id) is not None:
        pass
    now = now_ms()
    data = encode(
        {
            "sessionId": session_id,
            "duration": max(0, now - session.created_at),
            "messageCount": await directory.message_count(session_id),
        }
    )
    end = Draft("session_end", now, data, metadata("server"))
    try:
        await append_event(commit, session_id, end, closes_session=True)
    except Dropped as error:
        raise SessionDeleted(f"Session {session_id} was deleted.") from error
