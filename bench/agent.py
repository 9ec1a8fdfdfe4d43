"""The agent of the measured turns: says what its prompt's plan says, and awaits `asyncio.sleep(0)` after each delta."""

import asyncio
import sys
from collections.abc import AsyncIterator

from app.agents.contract import AgentEvent, Prompt, Scope
from bench.plan import WORD, Plan, stamp, ticks


class BenchAgent:
    """Obeys a plan."""

    name = "bench"

    async def invoke(self, scope: Scope, prompt: Prompt, /) -> AsyncIterator[AgentEvent]:
        plan = Plan.of(prompt["text"])
        if plan.in_child:
            async for event in _of_child(plan):
                yield event
            return
        event = _said(plan)
        if not plan.tick:  # without the pacing's own cost
            for _ in range(plan.count):
                yield event
                await asyncio.sleep(0)
        else:
            async for due in ticks(plan):
                for _ in range(due):
                    yield {"type": "text", "delta": stamp()} if plan.stamped else event
                    await asyncio.sleep(0)
        yield {"type": "completed"}


def _said(plan: Plan) -> AgentEvent:
    if plan.note_size:
        return {"type": "note", "text": "n" * plan.note_size}
    return {"type": "text", "delta": "x" * plan.size or WORD}


_CHILD = """
import sys, time
for _ in range(int(sys.argv[1])):
    print("token", flush=True)
    time.sleep(float(sys.argv[2]))
"""


async def _of_child(plan: Plan) -> AsyncIterator[AgentEvent]:
    """Pass on what a process of our own says."""
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-c", _CHILD, str(plan.count), str(plan.tick), stdout=asyncio.subprocess.PIPE
    )
    assert child.stdout is not None
    yield {"type": "child", "pid": child.pid}
    async for line in child.stdout:
        yield {"type": "text", "delta": line.decode()}
    await child.wait()
    yield {"type": "completed"}
