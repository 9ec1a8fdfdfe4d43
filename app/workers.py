"""Several worker processes behind one socket: `serve --workers N`.

The parent binds the socket, owns the embedded database, starts the workers and starts them again when they die; it
serves nothing itself. Workers are replicas like any others: they share nothing but the database. The first signal is
passed on and waited for; a second one ends everything at once.
"""

import asyncio
import json
import logging
import os
import signal
import socket
import sys
from pathlib import Path

import uvloop

from app.agents.loading import load_agent
from app.agents.middleware.composing import wrapped
from app.errors import TarkoError
from app.main import Application
from app.postgres.embedded import EmbeddedPostgres
from app.serving import Inherited, serve
from app.settings import Settings
from app.terminal import announce, listen, log_to_terminal, refused
from app.wiring import database_for_workers

LISTENER = "TARKO_INHERITED_SOCKET"
PARENT = "TARKO_PARENT"
REST = 1.0

_logger = logging.getLogger(__name__)


def serve_with_workers(settings: Settings) -> int:
    """Serve until a signal; returns the exit code."""
    log_to_terminal(settings.log_level)
    try:
        # What would stop every worker is said once, here.
        Application(settings)
        wrapped(load_agent(settings.agent, settings), settings.middleware)
        listener = listen(settings.host, settings.port)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(_serve(settings, listener))
    except TarkoError as error:
        return refused(error)


async def _serve(settings: Settings, listener: socket.socket) -> int:
    async with database_for_workers(settings) as (url, database):
        announce(settings, listener, has_own_database=database is not None)
        return await _Workers(settings, listener, url, database).run()


class _Workers:
    """The workers of one parent. Running until a signal, then stopping."""

    def __init__(
        self, settings: Settings, listener: socket.socket, url: str, database: EmbeddedPostgres | None
    ) -> None:
        self._settings = settings
        self._listener = listener
        self._database = database
        self._environment = {
            **os.environ,
            **_as_environment(settings, url),
            LISTENER: str(listener.fileno()),
            PARENT: str(os.getpid()),
        }
        self._processes: set[asyncio.subprocess.Process] = set()
        self._stopping = asyncio.Event()
        self._code = 0

    async def run(self) -> int:
        """Keep the workers running until a signal; returns the exit code."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._take, number)
        await asyncio.gather(*(self._keep(n) for n in range(1, self._settings.workers + 1)))
        return self._code

    async def _keep(self, number: int) -> None:
        while not self._stopping.is_set():
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "app.workers",
                env=self._environment,
                pass_fds=[self._listener.fileno()],
                start_new_session=True,
            )
            self._processes.add(process)
            if self._stopping.is_set():
                process.terminate()
            code = await process.wait()
            self._processes.discard(process)
            if self._stopping.is_set():
                # One that was still starting knew of no signals yet.
                self._code = self._code or (0 if code == -signal.SIGTERM else code)
            else:
                _logger.error("worker %d ended with %d and is started again", number, code)
                await asyncio.sleep(REST)

    def _take(self, number: int) -> None:
        is_second = self._stopping.is_set()
        self._stopping.set()
        for process in self._processes:
            process.kill() if is_second else process.terminate()
        if is_second:
            if self._database is not None:
                self._database.interrupt()
            os._exit(128 + number)
        _logger.info("stopping; a second signal stops at once")


def _as_environment(settings: Settings, url: str) -> dict[str, str]:
    """The settings as a worker reads them."""
    values = settings.model_dump(exclude={"workers", "database_url"}, exclude_none=True)
    told = {
        name: json.dumps(value) if isinstance(value, dict) else str(value) for name, value in values.items()
    }
    return {f"TARKO_{name.upper()}": value for name, value in told.items()} | {
        "TARKO_WORKERS": "1",
        "TARKO_DATABASE_URL": url,
    }


def main() -> int:
    """A worker."""
    if (here := str(Path.cwd())) not in sys.path:
        sys.path.insert(0, here)
    listener = socket.socket(fileno=int(os.environ[LISTENER]))
    return serve(Settings(), inherited=Inherited(listener, int(os.environ[PARENT])))


if __name__ == "__main__":
    sys.exit(main())
