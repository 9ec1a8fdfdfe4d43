"""`tarko-server sessions`: lists the sessions of a server, page by page, as a table or as JSON lines."""

from datetime import UTC, datetime
from typing import Any

import typer
from rich.table import Table
from rich.text import Text

from app.commands.client import SESSIONS, Server
from app.commands.pages import Page, read_page
from app.commands.rendering import clean
from app.commands.screen import Screen, wide_console

LONGEST_PAGE = 100


def sessions(server: Server, *, limit: int, as_json: bool) -> None:
    """Show up to `limit` sessions."""
    found, has_more = _collect(server, limit)
    if as_json:
        for text in found.texts:
            typer.echo(text.encode())
    else:
        wide_console().print(table(found.values))
    if has_more:
        Screen().notice(f"There are more than {limit}: see --limit.")


def table(found: list[Any]) -> Table:
    """The sessions as a table. What came from users is shown as text, never as markup."""
    shown = Table(box=None, pad_edge=False)
    shown.add_column("SESSION", no_wrap=True, overflow="fold")
    for title in ("NAME", "AGENT", "STATE", "UPDATED", "TAGS"):
        shown.add_column(title, overflow="fold", no_wrap=title in ("STATE", "UPDATED"))
    for session in found:
        shown.add_row(*(Text(clean(cell)) for cell in cells(session)))
    return shown


def cells(session: dict[str, Any]) -> list[str]:
    """One session's row."""
    state = (session.get("status") or {}).get("state") or ""
    tags = session.get("tags") or []
    words = (session.get("id"), session.get("name"), session.get("agent"), state)
    return [*(str(word or "") for word in words), _moment(session.get("updatedAt")), " ".join(map(str, tags))]


def _moment(milliseconds: Any) -> str:
    if not isinstance(milliseconds, int | float):
        return ""
    return f"{datetime.fromtimestamp(milliseconds / 1000, tz=UTC).astimezone():%Y-%m-%d %H:%M:%S}"


def _collect(server: Server, limit: int) -> tuple[Page, bool]:
    """Up to `limit` sessions, and whether there are more."""
    texts: list[str] = []
    values: list[Any] = []
    after: str | None = None
    while True:
        params: dict[str, str | int] = {"limit": min(limit - len(texts), LONGEST_PAGE)}
        page = read_page(server.get(SESSIONS, params | ({"after": after} if after else {})), "sessions")
        texts += page.texts
        values += page.values
        after = page.next_after
        if after is None or not page.texts or len(texts) >= limit:
            return Page(texts[:limit], values[:limit], {}), after is not None
