"""`tarko-server sessions`: lists the sessions of a server, page by page, as a table or as JSON lines."""

from datetime import UTC, datetime
from typing import Any

import typer
from rich.table import Table
from rich.text import Text

from app.commands.rendering import clean
from app.commands.screen import Screen, wide_console
from tarko_client import Client, SessionPage
from tarko_client.shapes import SessionItem

LONGEST_PAGE = 100


def sessions(client: Client, *, limit: int, as_json: bool) -> None:
    """Show up to `limit` sessions."""
    found, has_more = _collect(client, limit)
    if as_json:
        for text in found.texts:
            typer.echo(text.encode())
    else:
        wide_console().print(table(found.sessions))
    if has_more:
        Screen().notice(f"There are more than {limit}: see --limit.")


def table(found: list[SessionItem]) -> Table:
    """The sessions as a table. What came from users is shown as text, never as markup."""
    shown = Table(box=None, pad_edge=False)
    shown.add_column("SESSION", no_wrap=True, overflow="fold")
    for title in ("NAME", "AGENT", "STATE", "UPDATED", "TAGS"):
        shown.add_column(title, overflow="fold", no_wrap=title in ("STATE", "UPDATED"))
    for session in found:
        shown.add_row(*(Text(clean(cell)) for cell in cells(session)))
    return shown


def cells(session: SessionItem) -> list[str]:
    """One session's row."""
    state = (session.get("status") or {}).get("state") or ""
    tags = session.get("tags") or []
    words = (session.get("id"), session.get("name"), session.get("agent"), state)
    return [*(str(word or "") for word in words), _moment(session.get("updatedAt")), " ".join(map(str, tags))]


def _moment(milliseconds: Any) -> str:
    if not isinstance(milliseconds, int | float):
        return ""
    return f"{datetime.fromtimestamp(milliseconds / 1000, tz=UTC).astimezone():%Y-%m-%d %H:%M:%S}"


def _collect(client: Client, limit: int) -> tuple[SessionPage, bool]:
    """Up to `limit` sessions, and whether there are more."""
    found = SessionPage([], [], None)
    while True:
        page = client.sessions(limit=min(limit - len(found.texts), LONGEST_PAGE), after=found.next_after)
        found = SessionPage(found.sessions + page.sessions, found.texts + page.texts, page.next_after)
        if page.next_after is None or not page.texts or len(found.texts) >= limit:
            has_more = page.next_after is not None
            return SessionPage(found.sessions[:limit], found.texts[:limit], None), has_more
