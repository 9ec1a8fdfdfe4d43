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


async def drill(plan: Plan, tell: Callable[[str], None]) -> list[Findings]:
    """Do all of it in a directory that is kept when something was violated.

    The short form plays all acts at the same time.
    """
    directory = _make_directory()
    try:
        found = sorted(await _play_all(plan, directory, tell), key=lambda findings: _number(findings.fault))
    except BaseException:
        shutil.rmtree(directory)
        raise
    if not any(findings.violations for findings in found):
        shutil.rmtree(directory)
        return found
    for data in directory.glob("*/data"):
        shutil.rmtree(data)
    tell(f"journal and outputs are kept in {directory}")
    return found


async def _play_all(plan: Plan, directory: Path, tell: Callable[[str], None]) -> list[Findings]:
    if not plan.is_short:
        return [findings for act in ACTS for findings in await _play(plan, directory, act, tell)]
    playing = (_play(plan, directory, act, tell) for act in ACTS)
    # Every act comes to its end, and stops its servers, before a failed one is told.
    played = await asyncio.gather(*playing, return_exceptions=True)
    found: list[Findings] = []
    for act in played:
        if isinstance(act, BaseException):
            raise act
        found += act
    return found


def _number(fault: str) -> int:
    return int(fault.removeprefix("F"))


def _make_directory() -> Path:
    directory = Path(tempfile.mkdtemp(prefix="drill-", dir="/tmp"))  # a socket's path must be short
    directory.chmod(0o711)  # the user that PostgreSQL runs as for root must get through
    return directory


async def _play(
    plan: Plan, directory: Path, needs: Sequence[Needs], tell: Callable[[str], None]
) -> list[Findings]:
    """The faults of some stages, one after the other, in a directory of their own."""
    home = directory / needs[0]
    home.mkdir(mode=0o711)
    found: list[Findings] = []
    faults = [fault for fault in FAULTS if plan.includes(fault)]
    async with AsyncExitStack() as stack:
        postgres = EmbeddedPostgres(home / "data")
        if needs[0] != "embedded" and any(fault.needs in needs for fault in faults):
            await postgres.start()
            stack.push_async_callback(postgres.stop)
        for which in needs:
            on_stage = [fault for fault in faults if fault.needs == which]
            if on_stage:
                found += await _play_stage(plan, home, which, on_stage, postgres, tell)
    return found


async def _play_stage(
    plan: Plan,
    home: Path,
    which: Needs,
    faults: Sequence[Fault],
    postgres: EmbeddedPostgres,
    tell: Callable[[str], None],
) -> list[Findings]:
    found = [Findings(fault.id, fault.title) for fault in faults]
    reason = why_not() if which == "network" else None
    try:
        if reason is None:
            async with _stage(plan, home, which, postgres, found[-1]) as stage:
                for fault, findings in zip(faults, found, strict=True):
                    await _do(fault, stage, plan.rounds_of(fault), findings, tell)
    except NoNetwork as error:
        reason = str(error)
    if reason is not None:
        for findings in found:
            findings.skipped = reason
            tell(f"{findings.fault} {findings.title}: NOT DONE, {reason}")
    return found


async def _do(
    fault: Fault, stage: Stage, rounds: int, findings: Findings, tell: Callable[[str], None]
) -> None:
    began = time.monotonic()
    for _ in range(rounds):
        known = len(findings.violations)
        await fault.round(stage, findings)
        findings.rounds += 1
        tell(f"{fault.id} {fault.title}: round {findings.rounds} of {rounds}")
        for violation in findings.violations[known:]:
            tell(f"{fault.id} {violation.invariant}: {violation.what}")
    findings.seconds = time.monotonic() - began


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
            codes = await stage.stop()
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
        stack.push_async_callback(proxy.stop)
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
