"""What the operator sees: where the server listens, its log, and why it can't serve."""

import logging
import socket

from rich.console import Console
from rich.logging import RichHandler

from app.errors import ConfigurationError, TarkoError
from app.settings import Settings

BACKLOG = 4096
# What connections inherit, where the system has it: probes after 15 s of silence, given up after three (seconds); and
# bytes that stay without an answer for 45 s (milliseconds), which a reader that takes none counts as, too.
VANISHED = {"TCP_KEEPIDLE": 15, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3, "TCP_USER_TIMEOUT": 45_000}


def listen(host: str, port: int) -> socket.socket:
    """The listening socket. A client that vanishes without a word is noticed within a minute.

    Raises `ConfigurationError` when the address can't be had.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host.strip("[]"), port), family=family, backlog=BACKLOG)
    except OSError as error:
        raise ConfigurationError(
            f"Can't listen on {host}:{port}: {error.strerror or error}. Choose another with --port or TARKO_PORT."
        ) from error
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in VANISHED.items():
        if (option := getattr(socket, name, None)) is not None:
            listener.setsockopt(socket.IPPROTO_TCP, option, value)
    return listener


def announce(settings: Settings, listener: socket.socket, *, has_own_database: bool) -> None:
    port = listener.getsockname()[1]
    host = "127.0.0.1" if settings.host in ("0.0.0.0", "::") else settings.host  # noqa: S104 - compared
    url = f"http://{f'[{host}]' if ':' in host else host}:{port}"
    database = f"embedded, in {settings.data_dir.absolute()}" if has_own_database else "TARKO_DATABASE_URL"
    console = Console(highlight=False, soft_wrap=True)
    console.print(
        f"[bold green]Tarko event server[/] on [bold]{url}[/] · API {url}/docs · agent {settings.agent}"
    )
    console.print(
        f"Database: {database} · tokens: {'asked' if settings.tokens else 'none'} · stop with Ctrl-C"
    )
    if settings.agent != "demo" or settings.tokens:
        return
    console.print(
        f"Try: curl -N {url}/api/v1/oneshot/query/stream -H 'content-type: application/json' "
        """-d '{"query": "thinking tools markdown"}'""",
        markup=False,
    )


def log_to_terminal(level: str) -> None:
    handler = RichHandler(console=Console(stderr=True), show_path=False, markup=False)
    logging.basicConfig(level=level.upper(), format="%(message)s", datefmt="[%X]", handlers=[handler])
    for name in ("uvicorn", "uvicorn.error", "alembic"):
        logging.getLogger(name).setLevel(max(logging.WARNING, logging.getLevelName(level.upper())))
    logging.getLogger("uvicorn.error").addFilter(_is_news)


def _is_news(record: logging.LogRecord) -> bool:
    """A socket refused during its handshake is answered well, but uvicorn calls it an error of the application."""
    return "without completing handshake" not in record.getMessage()


def refused(error: TarkoError) -> int:
    Console(stderr=True, soft_wrap=True).print(f"[bold red]Can't serve:[/] {error}", highlight=False)
    return 1
