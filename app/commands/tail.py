"""`tarko-server tail`: follows a session's events, over as many connections as it takes, until it is deleted."""

from collections.abc import Iterable
from contextlib import closing

import typer

from app.commands.connecting import noticing
from app.commands.rendering import line_of
from app.commands.screen import Screen
from tarko_client import Client, Event, Refused


def tail(client: Client, session_id: str, *, after: str | None, from_now: bool, as_json: bool) -> None:
    """Show events as they come. Returns when the session is deleted, or at Ctrl-C."""
    screen = Screen()
    session = client.session(session_id)
    try:
        session.details()  # if it is not there, or nobody is, that is told at once
        follow = session.follow(after=after, from_now=from_now, on_state=noticing(screen))
        with closing(follow) as events:
            _show_all(events, screen, as_json=as_json)
    except KeyboardInterrupt:
        return


def _show_all(events: Iterable[Event], screen: Screen, *, as_json: bool) -> None:
    try:
        for event in events:
            _show(event, screen, as_json=as_json)
    except Refused as refusal:
        if refusal.http_status != 404:
            raise
        screen.notice("The session was deleted.")


def _show(event: Event, screen: Screen, *, as_json: bool) -> None:
    if as_json:
        typer.echo(event.text.encode())
    else:
        screen.show(line_of(event))
