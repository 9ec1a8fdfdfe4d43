"""The command line: its words, its options, and what becomes of a failure. What a command does is in `app.commands`.

Promise: nothing heavy is imported before a command is chosen, so `--help` and the commands that talk to a server start
fast; and a failure is one line on stderr, never a traceback.
"""

import os
import sys
from enum import StrEnum
from io import TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from app import __version__
from app.errors import TarkoError

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from tarko_client import Client


class Commands(TyperGroup):
    """The commands, with the one place where a failure becomes a line and an exit code."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except TarkoError as error:
            typer.echo(f"tarko-server: {_one_line(error)} ({error.code})", err=True)
            raise typer.Exit(2 if error.code in _USAGE else 1) from error
        except BrokenPipeError as error:
            # Whoever read has had enough. Python would complain when it flushes stdout at its end.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(0) from error


_USAGE = {"not_supported", "no_such_statement", "bad_address"}

app = typer.Typer(
    name="tarko-server",
    cls=Commands,
    help="Serves any agent over Tarko's Agent Protocol, from a durable log; and talks to such a server.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

SETTINGS_HELP = """Every setting can be given by an environment variable; a flag overrules it.

Without a flag of their own, because a list of processes shows flags to everybody: TARKO_TOKENS, TARKO_OPENAI_API_KEY,
TARKO_REMOTE_TOKEN, TARKO_A2A_REMOTES.

Others: TARKO_MIDDLEWARE, TARKO_ON_BUSY, TARKO_QUEUE_LIMIT, TARKO_TURN_DEADLINE, TARKO_TURN_SILENCE, TARKO_OUTAGE_LIMIT, TARKO_COOKIE_LIFETIME, TARKO_PING_INTERVAL, TARKO_SEND_TIMEOUT, TARKO_MAX_BODY, TARKO_MAX_EVENT, TARKO_MAX_TURN,
TARKO_PUBLIC_URL, TARKO_A2A_FINAL_TASK, TARKO_A2A_IDEMPOTENCY, TARKO_A2A_HEARTBEAT,
TARKO_OPENAI_BASE_URL, TARKO_OPENAI_MODEL, TARKO_OPENAI_MODELS, TARKO_OPENAI_SYSTEM_PROMPT, TARKO_UI_TITLE, TARKO_WORKSPACE.
"""

Url = Annotated[
    str | None,
    typer.Option(
        "--url",
        help="The server. Unset: TARKO_URL, else http://127.0.0.1 at TARKO_PORT (8888).",
        show_default=False,
    ),
]
Token = Annotated[
    str | None,
    typer.Option(
        "--token", envvar="TARKO_TOKEN", help="Who you are, where the server asks.", show_default=False
    ),
]
SessionArgument = Annotated[str, typer.Argument(metavar="SESSION", help="The session's id.")]


class LogLevel(StrEnum):
    """How much the server tells."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class From(StrEnum):
    """Where a tail begins."""

    START = "start"
    NOW = "now"


class Over(StrEnum):
    """How a check speaks to a server."""

    TARKO = "tarko"
    INVOKE = "invoke"


def _show_version(is_wanted: bool) -> None:
    if is_wanted:
        typer.echo(f"tarko-server {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    pass


@app.command(epilog=SETTINGS_HELP)
def serve(
    agent: Annotated[
        str | None,
        typer.Argument(
            envvar="TARKO_AGENT",
            help="`demo`, `openai`, `tarko:<url>`, `a2a:<url>`, or `package.module:name`.",
            show_default=False,
        ),
    ] = None,
    host: Annotated[str | None, typer.Option(envvar="TARKO_HOST", help="Address to listen on.")] = None,
    port: Annotated[
        int | None,
        typer.Option(envvar="TARKO_PORT", min=0, max=65535, help="Port to listen on; 0 takes a free one."),
    ] = None,
    data_dir: Annotated[
        Path | None, typer.Option(envvar="TARKO_DATA_DIR", help="Where the embedded database lives.")
    ] = None,
    database_url: Annotated[
        str | None,
        typer.Option(envvar="TARKO_DATABASE_URL", help="A PostgreSQL 15+ server; unset: the embedded one."),
    ] = None,
    workers: Annotated[
        int | None, typer.Option(envvar="TARKO_WORKERS", min=1, max=64, help="Processes that serve.")
    ] = None,
    pool_size: Annotated[
        int | None, typer.Option(envvar="TARKO_POOL_SIZE", help="Database connections.")
    ] = None,
    insecure: Annotated[
        bool | None,
        typer.Option(
            "--insecure", envvar="TARKO_INSECURE", help="Listen on a foreign address without tokens."
        ),
    ] = None,
    allowed_hosts: Annotated[
        str | None,
        typer.Option(
            envvar="TARKO_ALLOWED_HOSTS", help="Names in the Host header besides the loopback ones."
        ),
    ] = None,
    allowed_origins: Annotated[
        str | None,
        typer.Option(envvar="TARKO_ALLOWED_ORIGINS", help="Foreign web origins that may call, by comma."),
    ] = None,
    delta_retention: Annotated[
        float | None,
        typer.Option(envvar="TARKO_DELTA_RETENTION", help="Seconds that deltas are kept after their turn."),
    ] = None,
    drain_grace: Annotated[
        float | None, typer.Option(envvar="TARKO_DRAIN_GRACE", help="Seconds that a stop takes at most.")
    ] = None,
    log_level: Annotated[
        LogLevel | None,
        typer.Option(envvar="TARKO_LOG_LEVEL", case_sensitive=False, help="How much the server tells."),
    ] = None,
) -> None:
    """Serve an agent until told to stop."""
    from app.commands.serve import serve as run

    code = run(
        agent=agent,
        host=host,
        port=port,
        data_dir=data_dir,
        database_url=database_url,
        workers=workers,
        pool_size=pool_size,
        insecure=insecure,
        allowed_hosts=allowed_hosts,
        allowed_origins=allowed_origins,
        delta_retention=delta_retention,
        drain_grace=drain_grace,
        log_level=None if log_level is None else str(log_level),
    )
    raise typer.Exit(code)


@app.command()
def chat(
    session: Annotated[str | None, typer.Option(help="A session to join; unset: a new one.")] = None,
    name: Annotated[str | None, typer.Option(help="The name of a new session.")] = None,
    url: Url = None,
    token: Token = None,
) -> None:
    """Talk to an agent. Without a terminal on stdin, each line is a query and stdout gets the answers."""
    from app.commands.chat import chat as run

    with _client(url, token) as client:
        raise typer.Exit(run(client, session=session, name=name))


@app.command()
def tail(
    session: SessionArgument,
    after: Annotated[
        str | None, typer.Option(metavar="CURSOR", help="Only what follows this event id or place.")
    ] = None,
    start: Annotated[From, typer.Option("--from", help="Where to begin without --after.")] = From.START,
    as_json: Annotated[bool, typer.Option("--json", help="Print each event as it came, one a line.")] = False,
    url: Url = None,
    token: Token = None,
) -> None:
    """Follow the events of a session, over restarts and lost connections, until it is deleted."""
    from app.commands.tail import tail as run

    with _client(url, token) as client:
        run(client, session, after=after, from_now=start is From.NOW, as_json=as_json)


@app.command()
def sessions(
    limit: Annotated[int, typer.Option(min=1, help="How many to show.")] = 50,
    as_json: Annotated[bool, typer.Option("--json", help="Print each session as JSON, one a line.")] = False,
    url: Url = None,
    token: Token = None,
) -> None:
    """List sessions."""
    from app.commands.sessions import sessions as run

    with _client(url, token) as client:
        run(client, limit=limit, as_json=as_json)


@app.command()
def abort(
    session: SessionArgument,
    turn: Annotated[str | None, typer.Option(help="Only this turn; unset: whichever runs.")] = None,
    url: Url = None,
    token: Token = None,
) -> None:
    """Abort what runs in a session."""
    from app.commands.abort import abort as run

    with _client(url, token) as client:
        run(client, session, turn)


@app.command()
def export(
    session: SessionArgument,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="The file; unset: stdout.")] = None,
    deltas: Annotated[bool, typer.Option("--deltas", help="With the deltas that are still kept.")] = False,
    url: Url = None,
    token: Token = None,
) -> None:
    """Write all events of a session as JSON lines."""
    from app.commands.export import export as run

    with _client(url, token) as client:
        run(client, session, file=output, deltas=deltas)


@app.command()
def migrate(
    revision: Annotated[str, typer.Option(help="Where to go; `base` removes all tables.")] = "head",
) -> None:
    """Bring the database to the newest revision. `serve` does it too."""
    from app.commands.migrate import migrate as run

    run(revision)


@app.command()
def doctor() -> None:
    """Look at settings, agent, port, disk and database, and say how to mend what is wrong."""
    from app.commands.doctor import doctor as run

    raise typer.Exit(run())


@app.command()
def drill(
    only: Annotated[str, typer.Option(metavar="F1,F3,…", help="Only these faults.", show_default=False)] = "",
    rounds: Annotated[int | None, typer.Option(min=1, help="Rounds of each; unset: as each needs.")] = None,
    seed: Annotated[int | None, typer.Option(help="Repeats a drill's chances; unset: a new one.")] = None,
    is_short: Annotated[bool, typer.Option("--short", help="A minute and a half in all.")] = False,
    url: Annotated[
        str | None, typer.Option(help="Drill this deployment; unset: servers started for the drill.")
    ] = None,
    token: Token = None,
    agent: Annotated[str | None, typer.Option(help="With --url: the agent to ask.")] = None,
    prompt: Annotated[str | None, typer.Option(help="With --url: what to ask it.")] = None,
    during: Annotated[
        str | None,
        typer.Option(
            metavar="COMMAND",
            help="With --url: run once in the middle of each round, without a shell; `docker kill …`, say.",
        ),
    ] = None,
) -> None:
    """Break servers on purpose and look for what is lost, doubled, out of order, or never ends."""
    from app.commands.drill import drill_deployment, drill_locally

    if url is None:
        raise typer.Exit(drill_locally(only=only, rounds=rounds, seed=seed, is_short=is_short))
    code = drill_deployment(
        url=url, token=token, agent=agent, prompt=prompt, during=during, rounds=rounds, seed=seed
    )
    raise typer.Exit(code)


@app.command()
def check(
    target: Annotated[
        str | None,
        typer.Argument(
            help="`demo`, `openai`, `package.module:name`, or a server's http address. Unset: TARKO_AGENT.",
            show_default=False,
        ),
    ] = None,
    prompt: Annotated[str, typer.Option(help="An ordinary prompt.")] = "Hello",
    failing_prompt: Annotated[
        str | None, typer.Option(help="A prompt that makes the agent fail.", show_default=False)
    ] = None,
    waiting_prompt: Annotated[
        str | None, typer.Option(help="A prompt that makes the agent wait for long.", show_default=False)
    ] = None,
    remember: Annotated[
        tuple[str, str, str] | None,
        typer.Option(
            metavar="SAID ASKED EXPECTED",
            help="Two turns, and what the second one's answer must have.",
            show_default=False,
        ),
    ] = None,
    only: Annotated[
        str, typer.Option(metavar="A1,A3,…", help="Only these statements.", show_default=False)
    ] = "",
    over: Annotated[Over, typer.Option(help="How to speak to a server.", case_sensitive=False)] = Over.TARKO,
    patience: Annotated[float, typer.Option(min=0.1, help="Seconds that a turn may take.")] = 60.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
    token: Token = None,
) -> None:
    """Check whether an agent keeps the contract. Exit code 1: it does not."""
    from app.commands.check import Prompts
    from app.commands.check import check as run

    prompts = Prompts(prompt, failing_prompt, waiting_prompt, remember)
    code = run(
        target,
        prompts,
        over=over.value,
        token=token,
        only=only,
        patience=patience,
        as_json=as_json,
    )
    raise typer.Exit(code)


def main() -> None:
    """The console script `tarko-server`."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # a terminal of another encoding shows a `?`, and nothing fails
            stream.reconfigure(errors="replace")
    app(prog_name="tarko-server")


def _client(url: str | None, token: str | None) -> "AbstractContextManager[Client]":
    from app.commands.connecting import connected, server_url

    return connected(server_url(url), token)


def _one_line(error: TarkoError) -> str:
    return " ".join(str(error).split())


if __name__ == "__main__":
    main()
