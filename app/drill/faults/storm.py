"""F12: everything at once, at random: queries of each kind, aborts, deletions, readers that come, leave and resume."""

import asyncio
import random
import time
from collections.abc import Mapping

from app.drill.findings import Findings
from app.drill.record import Record
from app.drill.scene import Expected, Load, Scene
from app.drill.stage import Stage

WORKERS = 6
LONGEST_PAUSE = 0.03
ON_BUSY = ("reject", "queue", "interrupt")
LOAD = Load(sessions=8, kinds=("sse", "ws"), is_restless=True)
STORMY = Expected(("completed", "aborted"), agents_live=True)
ACTS: Mapping[str, int] = {"query": 10, "abort": 6, "abort_turn": 3, "join": 2, "leave": 2, "delete": 1}


async def storm(stage: Stage, findings: Findings) -> None:
    """One round."""
    seconds = 4 if stage.is_short else 15
    async with stage.scene(findings, LOAD, STORMY, asks=False) as scene:
        await rage(scene, stage.chance, seconds)
    findings.notes.append(f"{len(scene.asker.told)} answers, {len(scene.deleted)} sessions deleted")


async def rage(
    scene: Scene, chance: random.Random, seconds: float, prompts: tuple[str, ...] = ("0 0", "5 5", "40 20")
) -> None:
    """Do random things for so long. Every query is left to itself."""
    storm = _Storm(scene, chance, prompts)
    until = time.monotonic() + seconds
    await asyncio.gather(*(storm.work(until) for _ in range(WORKERS)))


class _Storm:
    """What random workers do in one scene."""

    def __init__(self, scene: Scene, chance: random.Random, prompts: tuple[str, ...]) -> None:
        self._scene = scene
        self._chance = chance
        self._prompts = prompts
        self._guests: list[tuple[Record, asyncio.Task[None]]] = []

    async def work(self, until: float) -> None:
        while time.monotonic() < until:
            await asyncio.sleep(self._chance.uniform(0, LONGEST_PAUSE))
            await self._act()

    async def _act(self) -> None:
        scene, chance = self._scene, self._chance
        session_id = chance.choice(scene.sessions)
        base = chance.choice(scene.web.bases)
        match chance.choices(list(ACTS), list(ACTS.values()))[0]:
            case "query":
                number = scene.web.bases.index(base)
                scene.ask(session_id, chance.choice(self._prompts), number, onBusy=chance.choice(ON_BUSY))
            case "abort":
                await scene.asker.abort(base, session_id)
            case "abort_turn":
                turns = [told.turn_id for told in scene.asker.told if told.session_id == session_id]
                if turns and (turn_id := chance.choice(turns)):
                    await scene.asker.abort(base, session_id, turn_id)
            case "join":
                guest = Record(session_id, chance.choice(("sse", "ws", "history")))
                self._guests.append((guest, scene.read(guest)))
            case "leave":
                if self._guests:
                    guest, reading = self._guests.pop(chance.randrange(len(self._guests)))
                    guest.has_left = True
                    reading.cancel()
            case "delete":
                if len(scene.deleted) < len(scene.sessions) // 2 and session_id not in scene.deleted:
                    scene.deleted.add(session_id)
                    await scene.asker.delete(base, session_id)
