"""The agent of the measured turns: says what its prompt's plan says, and awaits `asyncio.sleep(0)` after each delta."""

import asyncio
from collections.abc import AsyncIterator

from app.agents.contract import AgentEvent, Prompt, Scope
from bench.plan import WORD, Plan, stamp, ticks


class BenchAgent:
    """Obeys a plan."""

    name = "bench"

    async def invoke(self, scope: Scope, prompt: Prompt, /) -> AsyncIterator[AgentEvent]:
        plan = Plan.of(prompt["text"])
        note = {"type": "note", "text": "n" * plan.note_size}
        if not plan.tick:  # without the pacing's own cost
            for _ in range(plan.count):
                yield note if plan.note_size else {"type": "text", "delta": WORD}
                await asyncio.sleep(0)
        else:
            async for due in ticks(plan):
                for _ in range(due):
                    yield {"type": "text", "delta": stamp() if plan.stamped else WORD}
                    await asyncio.sleep(0)
        yield {"type": "completed"}
