"""Runs the server in this process: from the first socket to the last write.

Stopping is ours, because uvicorn alone waits for open streams for ever. The first SIGTERM or SIGINT begins the drain;
when it is done, or its grace is over, the sockets close. A second signal, or a loop that an agent blocks, ends the
process at once: what was not written by then is ended by the next start, from the log.
"""

import asyncio
import contextlib
import logging
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from types import FrameType

import uvicorn
import uvloop
from rich.console import Console
from rich.logging import RichHandler

from app.agents.contract import Agent
from app.errors import ConfigurationError, TarkoError
from app.main import Application
from app.settings import Settings

BACKLOG = 4096
LAST_CONNECTIONS = 1.0
LEFTOVERS = 1.5

_logger = logging.getLogger(__name__)


def serve(settings: Settings, agent: Agent | None = None) -> int:
    """Serve until a signal; returns the exit code."""
    _log_to_terminal(settings.log_level)
    try:
        application = Application(settings, agent)
        listener = _listen(settings.host, settings.port)
    except TarkoError as error:
        return _refused(error)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        try:
            runner.run(_serve(application, listener))
            code = 0
        except TarkoError as error:
            code = _refused(error)
        # Agents that ignore every cancel, and threads of theirs, must not keep the process.
        _exit_after(LEFTOVERS, code)
    return code


async def _serve(application: Application, listener: socket.socket) -> None:
    await _Serving(application, listener).run()


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class _Serving:
    """Serving, then draining, then stopped."""

    def __init__(self, application: Application, listener: socket.socket) -> None:
        settings = application.settings
        self._application = application
        self._listener = listener
        self._stopping = asyncio.Event()
        self._server = _Server(
            uvicorn.Config(
                application,
                lifespan="off",
                http="httptools",
                ws="websockets-sansio",
                ws_max_size=settings.max_body,
                ws_per_message_deflate=False,
                access_log=False,
                server_header=False,
                log_config=None,
                timeout_graceful_shutdown=round(LAST_CONNECTIONS),
                backlog=BACKLOG,
            )
        )

    async def run(self) -> None:
        async with self._application.started() as server:
            self._take_signals(asyncio.get_running_loop())
            _announce(
                self._application.settings, self._listener, has_own_database=server.database is not None
            )
            serving = asyncio.create_task(self._server.serve(sockets=[self._listener]), name="uvicorn")
            stopping = asyncio.create_task(self._stopping.wait(), name="signals")
            await asyncio.wait({serving, stopping}, return_when=asyncio.FIRST_COMPLETED)
            await server.drain()
            self._server.should_exit = True
            await serving
            stopping.cancel()

    def _take_signals(self, loop: asyncio.AbstractEventLoop) -> None:
        def take(number: int, _: FrameType | None) -> None:
            if self._stopping.is_set():
                self._exit_now(128 + number)
            self._stopping.set()
            loop.call_soon_threadsafe(_logger.info, "stopping; a second signal stops at once")
            grace = self._application.settings.drain_grace
            _exit_after(grace + LAST_CONNECTIONS, 1, self._interrupt_database)

        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, take)

    def _exit_now(self, code: int) -> None:
        self._interrupt_database()
        os._exit(code)

    def _interrupt_database(self) -> None:
        server = self._application.server
        if server is not None and server.database is not None:
            server.database.interrupt()


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host.strip("[]"), port), family=family, backlog=BACKLOG)
    except OSError as error:
        raise ConfigurationError(
            f"Can't listen on {host}:{port}: {error.strerror or error}. Choose another with --port or TARKO_PORT."
        ) from error


def _announce(settings: Settings, listener: socket.socket, *, has_own_database: bool) -> None:
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
    console.print(
        f"Try: curl -N {url}/api/v1/oneshot/query/stream -H 'content-type: application/json' "
        """-d '{"query": "thinking tools markdown"}'""",
        markup=False,
    )


def _log_to_terminal(level: str) -> None:
    handler = RichHandler(console=Console(stderr=True), show_path=False, markup=False)
    logging.basicConfig(level=level.upper(), format="%(message)s", datefmt="[%X]", handlers=[handler])
    for name in ("uvicorn", "uvicorn.error", "alembic"):
        logging.getLogger(name).setLevel(max(logging.WARNING, logging.getLevelName(level.upper())))
    logging.getLogger("uvicorn.error").addFilter(_is_news)


def _is_news(record: logging.LogRecord) -> bool:
    """A socket refused during its handshake is answered well, but uvicorn calls it an error of the application."""
    return "without completing handshake" not in record.getMessage()


def _refused(error: TarkoError) -> int:
    Console(stderr=True, soft_wrap=True).print(f"[bold red]Can't serve:[/] {error}", highlight=False)
    return 1


def _exit_after(seconds: float, code: int, first: Callable[[], None] = lambda: None) -> None:
    """End the process in so many seconds, if it has not ended by then."""

    def leave() -> None:
        first()
        os._exit(code)

    timer = threading.Timer(seconds, leave)
    timer.daemon = True
    timer.start()
