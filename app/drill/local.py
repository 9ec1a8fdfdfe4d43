"""The drill on servers of its own: every fault on the stage that it needs, stage by stage."""

import asyncio
import random
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

from app.drill.faults import FAULTS, Fault, Needs
from app.drill.findings import Findings
from app.drill.network import NoNetwork, network, why_not
from app.drill.proxy import Proxy
from app.drill.replica import Replica
from app.drill.stage import Stage
from app.drill.stopping import seen_through
from app.postgres.embedded import EmbeddedPostgres

ACTS: tuple[Sequence[Needs], ...] = (("embedded",), ("replicas",), ("database", "proxy", "network"))
"""The stages that share a database, and are played one after the other."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do: which faults (none: all), how many rounds of each (None: as the fault says), and how big."""

    only: Collection[str] = ()
    rounds: int | None = None
    seed: int = 0
    is_short: bool = False

    def includes(self, fault: Fault) -> bool:
        return not self.only or fault.id in self.only

    def rounds_of(self, fault: Fault) -> int:
        if self.rounds is not None:
            return self.rounds
        return fault.short if self.is_short else fault.long


class Drill:
    """The drill of a plan. `found` is what its faults have found so far, in their order, also when it ends too soon."""

    def __init__(self, plan: Plan, tell: Callable[[str], None]) -> None:
        faults = sorted(filter(plan.includes, FAULTS), key=lambda fault: int(fault.id.removeprefix("F")))
        self.found = {fault: Findings(fault.id, fault.title) for fault in faults}
        self._plan = plan
        self._tell = tell

    async def run(self) -> None:
        """Do all of it in a directory that is kept when something was violated. Raises `DrillFailed`.

        The short form plays all acts at the same time.
        """
        directory = _make_directory()
        try:
            await self._play_all(directory)
        finally:
            self._clear(directory)

    def _clear(self, directory: Path) -> None:
        if not any(findings.violations for findings in self.found.values()):
            shutil.rmtree(directory)
            return
        for data in directory.glob("*/data"):
            shutil.rmtree(data)
        self._tell(f"journal and outputs are kept in {directory}")

    async def _play_all(self, directory: Path) -> None:
        if not self._plan.is_short:
            for act in ACTS:
                await self._play(directory, act)
            return
        # Every act comes to its end, and stops its servers, before a failed one is told.
        played = await asyncio.gather(*(self._play(directory, act) for act in ACTS), return_exceptions=True)
        for failed in filter(None, played):
            raise failed

    async def _play(self, directory: Path, needs: Sequence[Needs]) -> None:
        """The faults of some stages, one after the other, in a directory of their own."""
        home = directory / needs[0]
        home.mkdir(mode=0o711)
        async with AsyncExitStack() as stack:
            postgres = EmbeddedPostgres(home / "data")
            is_played = any(fault.needs in needs for fault in self.found)
            if is_played and needs[0] == "embedded":
                # A drill may be cut short between a server's death and its next start.
                stack.push_async_callback(seen_through, postgres.stop_orphan)
            elif is_played:
                await postgres.start()
                stack.push_async_callback(seen_through, postgres.stop)
            for which in needs:
                on_stage = [fault for fault in FAULTS if fault in self.found and fault.needs == which]
                if on_stage:
                    await self._play_stage(home, which, on_stage, postgres)

    async def _play_stage(
        self, home: Path, which: Needs, faults: Sequence[Fault], postgres: EmbeddedPostgres
    ) -> None:
        reason = why_not() if which == "network" else None
        try:
            if reason is None:
                async with _stage(self._plan, home, which, postgres, self.found[faults[-1]]) as stage:
                    for fault in faults:
                        await self._do(fault, stage)
        except NoNetwork as error:
            reason = str(error)
        if reason is not None:
            for fault in faults:
                self.found[fault].skipped = reason
                self._tell(f"{fault.id} {fault.title}: NOT DONE, {reason}")

    async def _do(self, fault: Fault, stage: Stage) -> None:
        findings, rounds = self.found[fault], self._plan.rounds_of(fault)
        began = time.monotonic()
        for _ in range(rounds):
            known = len(findings.violations)
            await fault.round(stage, findings)
            findings.rounds += 1
            findings.seconds = time.monotonic() - began
            self._tell(f"{fault.id} {fault.title}: round {findings.rounds} of {rounds}")
            for violation in findings.violations[known:]:
                self._tell(f"{fault.id} {violation.invariant}: {violation.what}")


def _make_directory() -> Path:
    directory = Path(tempfile.mkdtemp(prefix="drill-", dir="/tmp"))  # a socket's path must be short
    directory.chmod(0o711)  # the user that PostgreSQL runs as for root must get through
    return directory


@asynccontextmanager
async def _stage(
    plan: Plan, home: Path, which: Needs, postgres: EmbeddedPostgres, last: Findings
) -> AsyncIterator[Stage]:
    """A stage whose servers run. How they stop is part of the last fault's findings."""
    chance = random.Random(f"{plan.seed} {which}")  # noqa: S311 - a drill must be repeatable
    async with AsyncExitStack() as stack:
        stage = await _set_up(which, home, chance, postgres, stack)
        stage.is_short = plan.is_short
        try:
            await stage.start(last)
            yield stage
        finally:
            codes = await seen_through(stage.stop)
        if any(codes):
            last.add("I8", f"the servers stopped with {codes}")


async def _set_up(
    which: Needs, home: Path, chance: random.Random, postgres: EmbeddedPostgres, stack: AsyncExitStack
) -> Stage:
    if which == "embedded":
        return Stage(home, chance, [Replica("server", home, {"TARKO_DATA_DIR": str(home / "data")})])
    shared = {"TARKO_DATABASE_URL": postgres.dsn}
    if which in ("replicas", "database"):
        pair = [Replica(name, home, shared) for name in ("one", "two")]
        return Stage(home, chance, pair, postgres=postgres)
    if which == "proxy":
        real = Path(unquote(postgres.dsn.partition("?host=")[2].partition("&")[0]))
        proxy = Proxy(real, home / "proxy", chance)
        await proxy.start()
        stack.push_async_callback(seen_through, proxy.stop)
        behind = {"TARKO_DATABASE_URL": proxy.address(postgres.dsn)}
        return Stage(home, chance, [Replica("proxied", home, behind)], proxy=proxy)
    away = await stack.enter_async_context(network(chance))
    settings = {
        **shared,
        "TARKO_HOST": away.address,
        "TARKO_INSECURE": "1",
        "TARKO_ALLOWED_HOSTS": away.address,
    }
    replica = Replica("far", home, settings, host=away.address, prefix=away.prefix)
    return Stage(home, chance, [replica], network=away)
