"""`tarko-server drill`: breaks servers on purpose; the table says what that broke. Exit code 1: something did."""

import asyncio
import signal
import threading
import time
from collections.abc import Coroutine, Iterable
from typing import Any

from app.commands.connecting import server_url
from app.commands.screen import Screen, wide_console
from app.drill.deployment import PROMPT, Deployment, Target
from app.drill.failures import DrillFailed
from app.drill.faults import FAULTS
from app.drill.findings import Findings
from app.drill.local import Drill, Plan
from app.drill.report import show
from app.errors import TarkoError


class BadDrill(TarkoError):
    """The drill's options make no sense."""

    code = "not_supported"


def drill_locally(*, only: str, rounds: int | None, seed: int | None, is_short: bool) -> int:
    """Drill servers of our own; returns the exit code."""
    wanted = {name.strip().upper() for name in only.split(",") if name.strip()}
    known = {fault.id for fault in FAULTS}
    if unknown := wanted - known:
        raise BadDrill(
            f"--only: there is no {', '.join(sorted(unknown))}; there are {', '.join(sorted(known))}."
        )
    plan = Plan(wanted, rounds, _seed(seed), is_short)
    drill = Drill(plan, Screen().notice)
    return _run(drill.run(), drill.found.values(), plan.seed)


def drill_deployment(
    *,
    url: str,
    token: str | None,
    agent: str | None,
    prompt: str | None,
    during: str | None,
    rounds: int | None,
    seed: int | None,
) -> int:
    """Drill a deployment; returns the exit code."""
    chosen = _seed(seed)
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    target = Target(server_url(url), headers, prompt or PROMPT, agent, during)

    deployment = Deployment(target, chosen)
    return _run(deployment.drill(rounds or 1, Screen().notice), deployment.found, chosen)


def _run(drilling: Coroutine[Any, Any, None], found: Iterable[Findings], seed: int) -> int:
    """Drill, and show what was found, also when the drill was stopped or failed before its end."""
    began = time.monotonic()
    try:
        asyncio.run(_until_told(drilling))
    finally:
        done = [findings for findings in found if findings.rounds or findings.violations or findings.skipped]
        if done:
            show(wide_console(), done, seed, time.monotonic() - began)
    return 1 if any(findings.violations for findings in done) else 0


async def _until_told(drilling: Coroutine[Any, Any, None]) -> None:
    """A drill that is told to stop, be it twice, stops its servers, too. Raises `DrillFailed`."""
    doing = asyncio.create_task(drilling, name="drill")
    if threading.current_thread() is threading.main_thread():
        for told in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(told, doing.cancel)
    try:
        await doing
    except asyncio.CancelledError:
        raise DrillFailed("The drill was stopped.") from None


def _seed(given: int | None) -> int:
    return time.time_ns() % 2**32 if given is None else given
