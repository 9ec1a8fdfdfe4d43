"""F1: `kill -9` of the server at a random instant of its turns; it is started again on the same data."""

from app.drill.findings import Findings
from app.drill.scene import Expected
from app.drill.stage import Stage, now_ms

LATEST = 1.0
KILLED = Expected(("completed", "interrupted"))


async def kill_server(stage: Stage, findings: Findings) -> None:
    """One round. Its turns are orphans from the moment at which it is back."""
    async with stage.scene(findings, expected=KILLED) as scene:
        await stage.pause(0, LATEST)
        await stage.replicas[0].kill()
        await stage.start(findings)
        scene.orphaned_at = now_ms()
