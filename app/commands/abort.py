"""`tarko-server abort`: ends what runs in a session, and shows the server's receipt."""

from typing import Any

import typer

from app.commands.client import ABORT, Server
from app.commands.rendering import short


def abort(server: Server, session: str, turn: str | None) -> None:
    """Abort the running turn, or only the one named."""
    body = {"sessionId": session} | ({"turnId": turn} if turn else {})
    typer.echo(receipt(server.post(ABORT, body), session, turn))


def receipt(answer: dict[str, Any], session: str, turn: str | None) -> str:
    """What the server's answer means."""
    named = short(str(answer.get("turnId") or turn or "the turn"))
    status = short(str(answer.get("status") or ""))
    if answer.get("success"):
        last = answer.get("lastEventId")
        return (
            f"Aborted {named}: it ended {status or 'aborted'}{f' with {short(str(last))}' if last else ''}."
        )
    if status:
        return f"Nothing to abort: {named} had ended {status}."
    return f"Nothing to abort: {f'{turn} does not run' if turn else 'no turn runs'} in {session}."
