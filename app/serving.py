"""Runs the server in this process: from the first socket to the last write.

Stopping is ours, because uvicorn alone waits for open streams for ever. The first SIGTERM or SIGINT begins the drain;
when it is done, or its grace is over, the sockets close. A second signal, or a loop that an agent blocks, ends the
process at once: what was not written by then is ended by the next start, from the log.
"""

import asyncio
import contextlib
import gc
import logging
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import FrameType

import uvicorn
import uvloop

from app.agents.contract import Agent
from app.errors import TarkoError
from app.main import Application
from app.postgres.pool import Pool
from app.settings import Settings
from app.terminal import BACKLOG, announce, listen, log_to_terminal, refused
from app.wiring import Storage, postgres_storage

LAST_CONNECTIONS = 1.0
LEFTOVERS = 1.5
GC_THRESHOLDS = (50_000, 20, 100)
PARENT_LOOK = 1.0
# A socket is pinged after so much silence, and closed when the pong has not come in so much more (seconds): a path that
# holds packets back for 15 s each way is borne, and a client that vanished is let go within a minute.
PING_EVERY = 20.0
PONG_WITHIN = 35.0

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Inherited:
    """What a worker has of its parent: the socket, and the process that it may not outlive."""

    listener: socket.socket
    parent: int


def serve(
    settings: Settings,
    agent: Agent | None = None,
    inherited: Inherited | None = None,
    storage: Callable[[Pool], Storage] = postgres_storage,
) -> int:
    """Serve until a signal; returns the exit code. A worker has `inherited` its socket, and says nothing of it."""
    log_to_terminal(settings.log_level)
    try:
        application = Application(settings, agent, storage)
        listener = inherited.listener if inherited else listen(settings.host, settings.port)
    except TarkoError as error:
        return refused(error)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        try:
            runner.run(_serve(application, listener, inherited.parent if inherited else None))
            code = 0
        except TarkoError as error:
            code = refused(error)
        # Agents that ignore every cancel, and threads of theirs, must not keep the process.
        _exit_after(LEFTOVERS, code)
    return code


async def _serve(application: Application, listener: socket.socket, parent: int | None) -> None:
    await _Serving(application, listener, parent).run()


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class _Serving:
    """Serving, then draining, then stopped."""

    def __init__(self, application: Application, listener: socket.socket, parent: int | None) -> None:
        settings = application.settings
        self._parent = parent
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
                ws_ping_interval=PING_EVERY,
                ws_ping_timeout=PONG_WITHIN,
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
            _collect_less()
            if self._parent is not None:
                self._outlive_no_parent(self._parent)
            else:
                announce(
                    self._application.settings, self._listener, has_own_database=server.database is not None
                )
            serving = asyncio.create_task(self._server.serve(sockets=[self._listener]), name="uvicorn")
            stopping = asyncio.create_task(self._stopping.wait(), name="signals")
            await asyncio.wait({serving, stopping}, return_when=asyncio.FIRST_COMPLETED)
            await server.drain()
            self._server.should_exit = True
            await serving
            stopping.cancel()

    def _outlive_no_parent(self, parent: int) -> None:
        """A worker whose parent was killed stops: nobody would start or stop it, or the database, any more."""

        async def watch() -> None:
            while os.getppid() == parent:  # noqa: ASYNC110 - no event tells of a parent that was killed
                await asyncio.sleep(PARENT_LOOK)
            self._stopping.set()

        self._watching = asyncio.create_task(watch(), name="parent")

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


def _collect_less() -> None:
    """What is there now stays; of what comes, nearly all dies young and by itself. The default took a fifth of the time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)


def _exit_after(seconds: float, code: int, first: Callable[[], None] = lambda: None) -> None:
    """End the process in so many seconds, if it has not ended by then."""

    def leave() -> None:
        first()
        os._exit(code)

    timer = threading.Timer(seconds, leave)
    timer.daemon = True
    timer.start()
