"""F11: one of two replicas on one database dies, or stands still for longer than it may; the other takes over.

Before that, every turn of one replica is aborted through the other, now and then: the owner must hear of it at once.
"""

import asyncio

from app.drill.findings import Findings
from app.drill.scene import Expected, Load, Scene
from app.drill.stage import Stage, now_ms

ABORT_LIMIT = 1.0
STAND_STILL = (6.5, 9.0)
SHORT = Load(sessions=6, prompt="300 20")
LONG = Load(sessions=50, prompt="100 60", kinds=("sse", "ws"))  # fifty that poll would be a load of their own
LOST = Expected(("completed", "aborted", "interrupted"), usable_in=14)


async def lose_replica(stage: Stage, findings: Findings) -> None:
    """One round: standing still in every second one of a short drill, in every fourth of a long one; dead in the others."""
    is_kill = (findings.rounds + 1) % (2 if stage.is_short else 4) != 0
    lost = stage.chance.choice(stage.replicas)
    async with stage.scene(findings, SHORT if stage.is_short else LONG, LOST) as scene:
        await stage.pause(0.3, 1)
        await _abort_through_the_other(scene, findings)
        scene.orphaned_at = now_ms()
        if is_kill:
            await lost.kill()
        else:
            lost.pause()
            await asyncio.sleep(stage.chance.uniform(*STAND_STILL))
            lost.resume()
    await stage.start(findings)


async def _abort_through_the_other(scene: Scene, findings: Findings) -> None:
    """The first two sessions' turns run on different replicas: abort each through the one that does not run it."""
    for number, session_id in enumerate(scene.sessions[:2]):
        told = await scene.asker.abort(scene.web.bases[(number + 1) % len(scene.web.bases)], session_id)
        findings.figures.slowest_abort = max(findings.figures.slowest_abort, told.seconds)
        if not told.body.get("success"):
            findings.add("I8", f"an abort through the other replica did not succeed: {told}")
        elif told.seconds > ABORT_LIMIT:
            findings.add("I8", f"an abort through the other replica took {told.seconds:.1f} s")
