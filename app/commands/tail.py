"""`tarko-server tail`: follows a session's events, over as many connections as it takes, until it is deleted."""

import time
from collections.abc import Callable
from contextlib import closing

import typer

from app.commands.client import EVENTS_STREAM, Server
from app.commands.failures import Refused
from app.commands.following import Comeback, Follower, Frames, Position
from app.commands.received import Received
from app.commands.rendering import line_of
from app.commands.screen import Screen


def tail(
    server: Server,
    session: str,
    *,
    after: str | None,
    from_now: bool,
    as_json: bool,
    pause: Callable[[float], None] = time.sleep,
) -> None:
    """Show events as they come. Returns when the session is deleted, or at Ctrl-C."""
    params = {"sessionId": session} | ({"after": after} if after else {})
    if from_now:
        params["from"] = "now"

    def connect(position: Position) -> Frames:
        return server.stream("GET", EVENTS_STREAM, params=params, headers=position.headers)

    screen = Screen()
    comeback = Comeback(notice=screen.notice, pause=pause)
    follower = Follower(connect, lambda event: event.type == "session_end", comeback)
    try:
        with closing(follower.events()) as events:
            for event in events:
                _show(event, screen, as_json=as_json)
    except Refused as refusal:
        if refusal.http_status != 404 or not comeback.has_begun:
            raise
        screen.notice("The session was deleted.")
    except KeyboardInterrupt:
        return


def _show(event: Received, screen: Screen, *, as_json: bool) -> None:
    if as_json:
        typer.echo(event.text.encode())
    else:
        screen.show(line_of(event))
