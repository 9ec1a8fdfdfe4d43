"""Where scenes are played: the drill's own servers, their database, and what lies between."""

import asyncio
import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from app.drill.findings import Findings
from app.drill.network import Network
from app.drill.proxy import Proxy
from app.drill.replica import Replica
from app.drill.scene import Expected, Load, Scene
from app.drill.web import Web
from app.postgres.embedded import EmbeddedPostgres

Part = TypeVar("Part")


def now_ms() -> int:
    """The time that events are stamped with."""
    return time.time_ns() // 1_000_000


def needed(part: Part | None) -> Part:
    """A part that this stage has. Raises `RuntimeError` when a fault was put on the wrong one."""
    if part is None:
        raise RuntimeError("this stage lacks what the fault needs")
    return part


@dataclass(slots=True)
class Stage:
    """Servers that run. `postgres` is set when the drill owns the database and not a server."""

    directory: Path
    chance: random.Random
    replicas: list[Replica]
    is_short: bool = False
    postgres: EmbeddedPostgres | None = None
    proxy: Proxy | None = None
    network: Network | None = None
    web: Web = field(init=False)
    offset: int = field(init=False)

    def __post_init__(self) -> None:
        self.offset = self.chance.randrange(1000)
        self.web = Web([replica.base for replica in self.replicas])

    async def start(self, findings: Findings | None = None, *, is_trapped: bool = False) -> None:
        """Start whichever server does not run."""
        down = [replica for replica in self.replicas if not replica.is_running]
        starting = (replica.start(is_trapped=is_trapped) for replica in down)
        for seconds in await asyncio.gather(*starting):
            if findings is not None:
                findings.figures.slowest_boot = max(findings.figures.slowest_boot, seconds)

    async def stop(self) -> list[int]:
        """Stop every server as an operator would; returns their exit codes."""
        for replica in self.replicas:
            replica.resume()
        ended = await asyncio.gather(
            *(replica.terminate() for replica in self.replicas if replica.is_running)
        )
        await self.web.client.aclose()
        return [code for code, _ in ended]

    @asynccontextmanager
    async def scene(
        self,
        findings: Findings,
        load: Load | None = None,
        expected: Expected | None = None,
        *,
        asks: bool = True,
    ) -> AsyncIterator[Scene]:
        """A scene that has begun; the fault strikes in the block, and afterwards the scene is finished."""
        scene = Scene(
            self.web,
            findings,
            load or Load(),
            expected or Expected(),
            self.chance,
            journal=self.directory / "journal",
        )
        try:
            await scene.begin(asks=asks)
            yield scene
            await scene.finish()
        finally:
            await scene.clear()
        self._look_at_servers(findings)

    def choose(self, these: Sequence[Part], round_number: int) -> Part:
        """One of these after the other, round by round, from a random one on."""
        return these[(self.offset + round_number) % len(these)]

    async def pause(self, least: float, most: float) -> None:
        """Let things go on for a while."""
        await asyncio.sleep(self.chance.uniform(least, most))

    def _look_at_servers(self, findings: Findings) -> None:
        figures = findings.figures
        for replica in self.replicas:
            figures.largest_rss = max(figures.largest_rss, replica.rss)
            for traceback, times in Counter(replica.tracebacks()).items():
                findings.add("I10", f"{replica.name} printed a traceback ({times} times): {traceback}")
