"""`tarko-server abort`: ends what runs in a session, and shows the server's receipt."""

import typer

from app.commands.rendering import short
from tarko_client import Client
from tarko_client.shapes import AbortReceipt


def abort(client: Client, session: str, turn: str | None) -> None:
    """Abort the running turn, or only the one named."""
    typer.echo(receipt(client.session(session).abort(turn), session, turn))


def receipt(answer: AbortReceipt, session: str, turn: str | None) -> str:
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
