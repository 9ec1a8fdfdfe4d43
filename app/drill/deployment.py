"""The drill on a server that runs already: slow readers, readers that come and go, a storm of aborts, and a fault of
the operator's own.

Any agent will do; there is no journal, so readers are compared with the history, and answers with the log. The fault
is a command that is run once in the middle of each round, without a shell. Sessions that were made are deleted.
"""

import asyncio
import random
import shlex
import shutil
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

import httpx

from app.drill.asking import Asker
from app.drill.checker import ALL_ENDINGS
from app.drill.failures import DrillFailed
from app.drill.faults.slow_readers import latency, slow_readers
from app.drill.faults.storm import rage
from app.drill.findings import Findings
from app.drill.scene import Expected, Load, Scene
from app.drill.web import Web

PROMPT = "Tell me a long story about a lighthouse."
SILENCE = 40.0
SLOW = 8
STORM = 5.0
LONGEST_TURN = 8.0
HALF = 1.0
ANY = Expected(ALL_ENDINGS, usable_in=60.0, last_ending=None)


@dataclass(frozen=True, slots=True)
class Target:
    """A deployment: its address, what to send with each request, what to ask, and the command of each round."""

    url: str
    headers: Mapping[str, str] = field(default_factory=dict)
    prompt: str = PROMPT
    agent: str | None = None
    during: str | None = None


class Deployment:
    """A deployment under drill. `found` is what it has shown so far, also when the drill ends too soon."""

    def __init__(self, target: Target, seed: int) -> None:
        self._target = target
        self._chance = random.Random(seed)  # noqa: S311 - a drill must be repeatable
        self._web = Web([target.url], target.headers, SILENCE)
        self._parts: tuple[tuple[Findings, Callable[[Findings], Awaitable[None]]], ...] = (
            (Findings("F7", "readers that do not read"), self._slow),
            (Findings("F6", "readers that come and go"), self._restless),
            (Findings("F12", "abort storm"), self._storm),
        )
        self.found = [findings for findings, _ in self._parts]

    async def drill(self, rounds: int, tell: Callable[[str], None]) -> None:
        """So many rounds of each part. Raises `DrillFailed` when there is nothing to drill, or nothing to do it with."""
        try:
            await self._look()
            for findings, part in self._parts:
                began = time.monotonic()
                for _ in range(rounds):
                    await part(findings)
                    findings.rounds += 1
                    findings.seconds = time.monotonic() - began
                    tell(f"{findings.title}: round {findings.rounds}, {len(findings.violations)} violations")
        finally:
            await self._web.client.aclose()

    async def _look(self) -> None:
        during, url = self._target.during, self._target.url
        if during is not None and shutil.which(next(iter(shlex.split(during)), "")) is None:
            raise DrillFailed(f"--during: {during!r} begins with no program that is here.")
        asker = Asker(self._web)
        try:
            session_id = await asker.create(url, self._target.agent)
        except httpx.HTTPStatusError as error:
            answer = error.response
            raise DrillFailed(f"{url} makes no session: {answer.status_code} {answer.text[:200]}") from error
        except httpx.HTTPError as error:
            raise DrillFailed(f"No server answers at {url} ({type(error).__name__}).") from error
        await asker.delete(url, session_id)

    async def _slow(self, findings: Findings) -> None:
        scene = self._scene(findings, self._load(2))
        await self._play(scene, findings, lambda: self._trouble_with_slow_readers(scene))
        findings.notes.append(
            f"p99 of the others' latency {latency(scene, scene.records):.0f} ms (by both clocks)"
        )

    async def _trouble_with_slow_readers(self, scene: Scene) -> None:
        async with slow_readers(self._web, self._target.url, scene.sessions[0], SLOW):
            for session_id in scene.sessions:
                scene.ask(session_id, self._target.prompt)
            await scene.answered(LONGEST_TURN)

    async def _restless(self, findings: Findings) -> None:
        await self._play(self._scene(findings, self._load(3, is_restless=True)), findings)

    async def _storm(self, findings: Findings) -> None:
        scene = self._scene(findings, self._load(4, is_restless=True))
        prompts = (self._target.prompt,)
        await self._play(scene, findings, lambda: rage(scene, self._chance, STORM, prompts))

    def _load(self, sessions: int, *, is_restless: bool = False) -> Load:
        target = self._target
        return Load(sessions, target.prompt, target.prompt, agent=target.agent, is_restless=is_restless)

    def _scene(self, findings: Findings, load: Load) -> Scene:
        return Scene(self._web, findings, load, ANY, self._chance)

    async def _play(
        self, scene: Scene, findings: Findings, act: Callable[[], Awaitable[None]] | None = None
    ) -> None:
        """One round: half of it, the operator's command, the rest; long turns are aborted."""
        try:
            await scene.begin(asks=act is None)
            acting = asyncio.ensure_future(act() if act else scene.answered(LONGEST_TURN))
            await asyncio.sleep(self._chance.uniform(HALF / 2, HALF))
            await self._interfere(findings)
            await acting
            for session_id in scene.sessions:
                await scene.asker.abort(self._target.url, session_id)
            await scene.finish()
        finally:
            await scene.clear()
            for session_id in scene.sessions:
                await scene.asker.delete(self._target.url, session_id)

    async def _interfere(self, findings: Findings) -> None:
        if self._target.during is None:
            return
        process = await asyncio.create_subprocess_exec(
            *shlex.split(self._target.during), stdin=asyncio.subprocess.DEVNULL
        )
        if (code := await process.wait()) != 0:
            findings.notes.append(f"the command ended with {code}")
