"""F6: nothing passes between readers and server for some seconds, then the link is bad. Turns do not care."""

from app.drill.findings import Findings
from app.drill.scene import Expected, Load
from app.drill.stage import Stage, needed

LOAD = Load(sessions=4, prompt="150 20")
UNHARMED = Expected(("completed",), agents_live=True, usable_in=15)


async def cut_network(stage: Stage, findings: Findings) -> None:
    """One round."""
    async with stage.scene(findings, LOAD, UNHARMED):
        await stage.pause(0.3, 0.8)
        async with needed(stage.network).cut():
            await stage.pause(3, 4 if stage.is_short else 15)
        async with needed(stage.network).bad_weather() as weather:
            await stage.pause(2, 3 if stage.is_short else 10)
    findings.notes.append(f"the weather was {weather}")
