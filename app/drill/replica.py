"""A server process of the drill: started, killed, stopped, paused, and started again on the same port."""

import asyncio
import contextlib
import os
import re
import signal
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import httpx
import psutil

from app.drill.failures import DrillFailed
from app.drill.journal import JOURNAL
from app.drill.victim import KILL_AT

READY = 60.0
LOOK = 0.02
GRACE = 4.0
PACKAGES = Path(__file__).parents[2]
SERVE = ("app.cli", "serve", "app.drill.agent:invoke")
VICTIM = ("app.drill.victim",)
SETTINGS = {
    "TARKO_AGENT": "app.drill.agent:invoke",
    "TARKO_DRAIN_GRACE": str(GRACE),
    "TARKO_PING_INTERVAL": "1",
    "TARKO_SEND_TIMEOUT": "4",
    "TARKO_QUEUE_LIMIT": "6",
}
_TRACEBACK = re.compile(r"Traceback \(most recent call last\)")
_ERROR = re.compile(r"[\w.]+(Error|Exception|Exit|Interrupt|Unavailable|Group)\b")
_TELLING = 1_500


class Replica:
    """One server. `settings` are environment variables of its own; `prefix` runs it somewhere else."""

    def __init__(
        self,
        name: str,
        directory: Path,
        settings: Mapping[str, str],
        *,
        host: str = "127.0.0.1",
        prefix: Sequence[str] = (),
    ) -> None:
        self.name = name
        self.output = directory / f"{name}.output"
        self._prefix = prefix
        port = _free_port()
        self.base = f"http://{host}:{port}"
        inherited = {key: value for key, value in os.environ.items() if not key.startswith("TARKO_")}
        paths = [str(PACKAGES), *filter(None, [os.environ.get("PYTHONPATH")])]
        self._environment = {
            **inherited,
            **SETTINGS,
            **settings,
            "PYTHONPATH": os.pathsep.join(paths),
            "COLUMNS": "1000",  # nothing is wrapped in the output
            "TARKO_PORT": str(port),
            JOURNAL: str(directory / "journal"),
        }
        self._orders = directory / f"{name}.orders"
        self._process: asyncio.subprocess.Process | None = None
        self._read = 0
        self.is_trapped = False

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.returncode is None

    async def start(self, *, is_trapped: bool = False) -> float:
        """Start it; returns the seconds until it was ready. Raises `DrillFailed` when it isn't in time.

        A trapped one is `app.drill.victim`: `arm` says where it kills itself.
        """
        began = time.monotonic()
        self.is_trapped = is_trapped
        with self.output.open("ab") as output:
            self._process = await asyncio.create_subprocess_exec(
                *self._prefix,
                sys.executable,
                "-m",
                *(VICTIM if is_trapped else SERVE),
                env=self._environment | {KILL_AT: str(self._orders)},
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        async with httpx.AsyncClient(trust_env=False, verify=False, timeout=2) as client:  # noqa: S501 - plain HTTP
            while time.monotonic() < began + READY and self.is_running:
                with contextlib.suppress(httpx.HTTPError):
                    if (await client.get(f"{self.base}/readyz")).status_code == 200:
                        return time.monotonic() - began
                await asyncio.sleep(LOOK)
        said = self.output.read_text(errors="replace")[-_TELLING:]
        raise DrillFailed(f"The server {self.name!r} did not start: {said}")

    def arm(self, where: str) -> None:
        """Have it kill itself at `<point>:<n>`."""
        self._orders.write_text(where)
        self._signal(signal.SIGUSR1)

    async def kill(self) -> None:
        """`kill -9`: no clean-up of any kind."""
        self._signal(signal.SIGKILL)
        await self.ended()

    async def terminate(self) -> tuple[int, float]:
        """Stop it as an operator would; returns its exit code and how long that took."""
        began = time.monotonic()
        self._signal(signal.SIGTERM)
        return await self.ended(), time.monotonic() - began

    async def ended(self) -> int:
        """Its exit code, when it has one."""
        return 0 if self._process is None else await self._process.wait()

    def pause(self) -> None:
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    @property
    def rss(self) -> int:
        """Its memory in bytes; 0 when it is gone."""
        with contextlib.suppress(psutil.Error):
            return int(self._inspected().memory_info().rss)
        return 0

    @property
    def files(self) -> int:
        """How many descriptors it has open."""
        with contextlib.suppress(psutil.Error):
            return int(self._inspected().num_fds())
        return 0

    def tracebacks(self) -> list[str]:
        """The tracebacks it has printed since this was last asked."""
        said = self.output.read_text(errors="replace") if self.output.exists() else ""
        new, self._read = said[self._read :], len(said)
        return [_told(new[found.start() :]) for found in _TRACEBACK.finditer(new)]

    def _inspected(self) -> psutil.Process:
        if self._process is None:
            raise psutil.NoSuchProcess(0)
        return psutil.Process(self._process.pid)

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(number)


def _told(traceback: str) -> str:
    """The end of a traceback: the last place, and the error."""
    lines = [line.strip() for line in traceback.splitlines()[1:]]
    end = next((index for index, line in enumerate(lines) if _ERROR.match(line)), len(lines) - 1)
    place = next((line for line in reversed(lines[:end]) if line.startswith("File ")), "")
    return f"{lines[end][:300]} in {place}"


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
