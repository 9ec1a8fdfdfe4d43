"""`tarko-server export`: a session's events as JSON lines, each envelope to the byte as the server sent it.

Promise: the file appears whole or not at all. A dropped connection is taken up at the page that was being read.
"""

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from app.commands.connecting import noticing
from app.commands.failures import CannotWrite
from app.commands.screen import Screen
from tarko_client import Backoff, Client

TRIES = 8


def export(client: Client, session_id: str, *, file: Path | None, deltas: bool) -> None:
    """Write all events of the session to `file`, or to stdout."""
    session = client.session(session_id)
    session.details()  # if it is not there, or nobody is, that is told at once
    pages = session.pages(deltas=deltas, backoff=Backoff(tries=TRIES), on_state=noticing(Screen()))
    count = 0
    with _target(file) as write, _progress(is_counted=not deltas) as advance:
        for page in pages:
            write(b"".join(event.text.encode() + b"\n" for event in page.events))
            count += len(page.events)
            advance(len(page.events), page.total)
    if file is not None:
        typer.echo(f"{count} events of {session_id} are in {file}.", err=True)


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
