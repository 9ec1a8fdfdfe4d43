"""F2: `kill -9` at chosen points of a turn's life: `app.drill.victim` kills itself there.

The points are taken in turn, one a round, from a random one on; how often the process passes its point before it dies is random.
"""

import asyncio

from app.drill.findings import Findings
from app.drill.scene import Expected, Load, Scene
from app.drill.stage import Stage, now_ms
from app.drill.victim import POINTS

MOST_PASSES = {"first_yield": 30, "before_write": 20, "after_write": 20}
FEW_PASSES = 3
DIES_WITHIN = 10.0
LOAD = Load(kinds=("sse", "ws"))
KILLED = Expected(("completed", "aborted", "interrupted"))


async def kill_at_points(stage: Stage, findings: Findings) -> None:
    """One round, at one point."""
    victim = stage.replicas[0]
    point = stage.choose(POINTS, findings.rounds)
    passes = stage.chance.randint(1, MOST_PASSES.get(point, FEW_PASSES))
    if not victim.is_trapped:
        await victim.terminate()
        await stage.start(findings, is_trapped=True)
    async with stage.scene(findings, LOAD, KILLED, asks=False) as scene:
        victim.arm(f"{point}:{passes}")
        for number, session_id in enumerate(scene.sessions):
            scene.ask(session_id, LOAD.prompt, number)
        await _until_dead(stage, scene, findings, f"{point}:{passes}")
        await stage.start(findings, is_trapped=True)
        scene.orphaned_at = now_ms()


async def _until_dead(stage: Stage, scene: Scene, findings: Findings, where: str) -> None:
    """Abort turns until the victim has died."""
    base = scene.web.bases[0]
    dying = asyncio.create_task(stage.replicas[0].ended(), name="victim")
    try:
        async with asyncio.timeout(DIES_WITHIN):
            for session_id in scene.sessions:
                await asyncio.wait([dying], timeout=stage.chance.uniform(0, 0.15))
                if dying.done():
                    return
                await scene.asker.abort(base, session_id)
            await asyncio.shield(dying)
    except TimeoutError:
        findings.notes.append(f"the server did not pass {where} and was killed as it was")
        await stage.replicas[0].kill()
    finally:
        dying.cancel()
