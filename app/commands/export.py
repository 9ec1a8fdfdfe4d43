"""`tarko-server export`: a session's events as JSON lines, each envelope to the byte as the server sent it.

Promise: the file appears whole or not at all. A dropped connection is taken up at the page that was being read.
"""

import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from app.commands.client import EVENTS, Server
from app.commands.failures import CannotWrite, ConnectionLost, NotTarko, Refused
from app.commands.following import Comeback
from app.commands.pages import Page, read_page
from app.commands.screen import Screen

PAGE = 1000
TRIES = 8


def export(
    server: Server,
    session: str,
    *,
    file: Path | None,
    deltas: bool,
) -> None:
    """Write all events of the session to `file`, or to stdout."""
    comeback = Comeback(tries=TRIES, notice=Screen().notice, pause=time.sleep)
    count = 0
    with _target(file) as write, _progress(is_counted=not deltas) as advance:
        for page in pages(server, session, deltas=deltas, comeback=comeback):
            write(b"".join(text.encode() + b"\n" for text in page.texts))
            count += len(page.texts)
            advance(len(page.texts), page.rest.get("total"))
    if file is not None:
        typer.echo(f"{count} events of {session} are in {file}.", err=True)


def pages(server: Server, session: str, *, deltas: bool, comeback: Comeback) -> Iterator[Page]:
    """Every page of the session's events. Raises NotTarko for one that leads back."""
    after = "0"
    while True:
        params: dict[str, str | int] = {"sessionId": session, "limit": PAGE, "after": after}
        if deltas:
            params["deltas"] = "true"
        page = _patiently(server, params, comeback)
        yield page
        if page.next_after is None:
            return
        if page.next_after == after:
            raise NotTarko(f"The server's page after {after} leads to itself.")
        after = page.next_after


def _patiently(server: Server, params: dict[str, str | int], comeback: Comeback) -> Page:
    while True:
        try:
            text = server.get(EVENTS, params)
        except (ConnectionLost, Refused) as loss:
            comeback.wait(loss)
        else:
            comeback.began()
            return read_page(text, "events")


@contextlib.contextmanager
def _target(file: Path | None) -> Iterator[Callable[[bytes], object]]:
    if file is None:
        yield lambda lines: typer.echo(lines, nl=False)
        return
    partial = file.parent / f".{file.name}.{os.getpid()}.partial"
    with _explained(file):
        try:
            with partial.open("xb") as output:
                yield output.write
                _sync(output)
            partial.replace(file)
        finally:
            partial.unlink(missing_ok=True)


def _sync(output: BinaryIO) -> None:
    output.flush()
    os.fsync(output.fileno())


@contextlib.contextmanager
def _explained(file: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise CannotWrite(f"{file} cannot be written: {error.strerror}.") from error


@contextlib.contextmanager
def _progress(*, is_counted: bool) -> Iterator[Callable[[int, int | None], None]]:
    """A bar on stderr when that is a terminal. With deltas nobody knows how many events there are."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    bar = Progress(*columns, console=Console(stderr=True), disable=not _is_terminal(), transient=True)
    with bar:
        task = bar.add_task("events", total=None)
        yield lambda step, total: bar.update(task, advance=step, total=total if is_counted else None)


def _is_terminal() -> bool:
    return sys.stderr.isatty()
