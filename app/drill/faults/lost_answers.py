"""F5: the answers of commits are lost, at random, by a proxy before PostgreSQL. Nothing may be lost or doubled by it."""

from app.drill.findings import Findings
from app.drill.scene import Expected, Load
from app.drill.stage import Stage, needed

PROBABILITY = 0.08
LOAD = Load(prompt="150 15")
UNHARMED = Expected(("completed",), ("interrupted",), agents_live=True)


async def lose_answers(stage: Stage, findings: Findings) -> None:
    """One round."""
    before = needed(stage.proxy).cuts
    async with stage.scene(findings, LOAD, UNHARMED):
        await stage.pause(0.2, 0.5)
        with needed(stage.proxy).cutting(PROBABILITY):
            await stage.pause(2.5, 3.5 if stage.is_short else 8)
    findings.notes.append(f"{needed(stage.proxy).cuts - before} answers were lost")
