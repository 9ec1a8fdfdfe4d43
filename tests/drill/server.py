"""A server process that is killed and started again, on the same port and the same data."""

import asyncio
import os
import signal
import socket
import sys
import time
from pathlib import Path

import httpx

from tests.drill.agent import JOURNAL

ROOT = Path(__file__).parent.parent.parent
READY = 30.0


class Victim:
    """The server under drill."""

    def __init__(self, directory: Path) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = int(probe.getsockname()[1])
        self.base = f"http://127.0.0.1:{self.port}"
        self.journal = directory / "journal"
        self.output = directory / "output"
        self._environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("TARKO_")},
            "TARKO_PORT": str(self.port),
            "TARKO_DATA_DIR": str(directory / "data"),
            JOURNAL: str(self.journal),
        }
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> float:
        """Start it; returns the seconds until it was ready."""
        began = time.monotonic()
        with self.output.open("ab") as output:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "app.cli",
                "serve",
                "tests.drill.agent:invoke",
                cwd=ROOT,
                env=self._environment,
                stdout=output,
                stderr=output,
            )
        async with asyncio.timeout(READY), httpx.AsyncClient() as client:
            while True:
                try:
                    if (await client.get(f"{self.base}/readyz")).status_code == 200:
                        return time.monotonic() - began
                except httpx.HTTPError:
                    await asyncio.sleep(0.02)

    async def kill(self) -> None:
        """`kill -9`: no clean-up of any kind."""
        await self._signal(signal.SIGKILL)

    async def stop(self) -> int:
        """Stop it as an operator would; returns its exit code."""
        return await self._signal(signal.SIGTERM)

    async def _signal(self, number: signal.Signals) -> int:
        assert self._process is not None
        if self._process.returncode is None:
            self._process.send_signal(number)
        return await self._process.wait()
