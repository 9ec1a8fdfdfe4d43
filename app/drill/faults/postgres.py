"""F3 and F4: PostgreSQL dies, restarts, stands still, or throws everybody out, in mid-stream.

An outage shorter than the servers' limit must cost no turn: each completes, whole, on the process that ran it.
"""

import os
import signal
import time

import asyncpg
import httpx
import psutil

from app.drill.findings import Findings
from app.drill.scene import Expected, Load
from app.drill.stage import Stage, needed

BACK = 30.0
LOOK = 0.05
LOAD = Load(prompt="120 20")
UNHARMED = Expected(("completed",), ("interrupted",), agents_live=True)

TERMINATE = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"


async def kill_embedded_postgres(stage: Stage, findings: Findings) -> None:
    """F3, one round: the server starts its own PostgreSQL again."""
    async with stage.scene(findings, LOAD, UNHARMED):
        await stage.pause(0.2, 1.2)
        os.kill(_postmaster_of(stage), signal.SIGKILL)
        await _until_ready(stage, findings)


async def kill_postgres(stage: Stage, findings: Findings) -> None:
    """F3, one round: somebody else brings PostgreSQL back, some seconds later."""
    postgres = needed(stage.postgres)
    async with stage.scene(findings, LOAD, UNHARMED):
        await stage.pause(0.2, 1.2)
        os.kill(needed(postgres.pid), signal.SIGKILL)
        await postgres.stop()
        await stage.pause(2, 3 if stage.is_short else 5)
        await postgres.start()
        await _until_ready(stage, findings)


async def trouble_postgres(stage: Stage, findings: Findings) -> None:
    """F4, one round of: a fast restart; a stand-still; every connection cut once a second; a long stand-still."""
    trouble = TROUBLES[findings.rounds % len(TROUBLES)]
    async with stage.scene(findings, LOAD, UNHARMED):
        await stage.pause(0.2, 1.2)
        await trouble(stage)
        await _until_ready(stage, findings)


async def _restart(stage: Stage) -> None:
    postgres = needed(stage.postgres)
    await postgres.stop()
    await postgres.start()


async def _stand_still(stage: Stage, seconds: float = 3) -> None:
    postmaster = psutil.Process(needed(needed(stage.postgres).pid))
    processes = [postmaster, *postmaster.children(recursive=True)]
    for process in processes:
        process.suspend()
    try:
        await stage.pause(seconds, seconds + 1)
    finally:
        for process in processes:
            process.resume()


async def _stand_still_long(stage: Stage) -> None:
    """Longer than a server may go without a beat: none of them is to blame."""
    await _stand_still(stage, 8)


async def _throw_out(stage: Stage) -> None:
    for _ in range(3 if stage.is_short else 8):
        connection = await asyncpg.connect(needed(stage.postgres).dsn)
        try:
            await connection.execute(TERMINATE)
        finally:
            await connection.close()
        await stage.pause(0.8, 1.2)


TROUBLES = (_restart, _stand_still, _throw_out, _stand_still_long)


async def _until_ready(stage: Stage, findings: Findings) -> None:
    """Wait until every server says that it is ready again."""
    began = time.monotonic()
    for base in stage.web.bases:
        while not await _is_ready(stage, base):
            if time.monotonic() > began + BACK:
                findings.add("I8", f"{base} is not ready {BACK:g} s after its database came back")
                return
            await stage.pause(LOOK, LOOK)


async def _is_ready(stage: Stage, base: str) -> bool:
    try:
        return (await stage.web.client.get(f"{base}/readyz")).status_code == 200
    except httpx.HTTPError:
        return False


def _postmaster_of(stage: Stage) -> int:
    file = stage.directory / "data" / "postgres" / "postmaster.pid"
    return int(file.read_text().splitlines()[0])
