"""What a measured turn says and when: written by the client into the prompt, obeyed by the agent and the bare app.

The yield rule: whoever obeys a plan gives the loop one turn after each delta, as a model's stream would at least.
Stamps are `time.monotonic_ns`, which all processes of one machine share.
"""

import asyncio
import random
import time
from collections.abc import AsyncIterator
from dataclasses import asdict, dataclass

import orjson

WORD = " token"
STAMP_DIGITS = 19


@dataclass(frozen=True, slots=True)
class Plan:
    """`count` deltas, `per_tick` at once and then a pause of `tick` seconds (0: only the loop's one turn).

    `begin` is the moment before which nothing is said (0: at once); each turn adds a random part of a tick. `stamped`
    deltas say when they were yielded. `size` above 0 makes them so many characters long, `note_size` makes them lasting
    events of so many bytes instead. `in_child`: a process of the agent's own says them, and the first event has its `pid`.
    """

    count: int
    tick: float = 0.0
    per_tick: int = 1
    begin: int = 0
    stamped: bool = False
    size: int = 0
    note_size: int = 0
    in_child: bool = False

    def text(self) -> str:
        return orjson.dumps(asdict(self)).decode()

    @classmethod
    def of(cls, text: str | bytes) -> "Plan":
        return cls(**orjson.loads(text))


def stamp() -> str:
    """Now, in a form that the client finds: `@` and nineteen digits."""
    return f"@{time.monotonic_ns():0{STAMP_DIGITS}d}"


async def ticks(plan: Plan) -> AsyncIterator[int]:
    """How many deltas are due, whenever some are. A tick that comes late does not put off the next one."""
    loop = asyncio.get_running_loop()
    due = loop.time()
    if plan.begin:
        due += (plan.begin - time.monotonic_ns()) / 1e9 + random.random() * plan.tick  # noqa: S311 - a phase
    for said in range(0, plan.count, plan.per_tick):
        ahead = due - loop.time()
        if ahead > 0:
            await asyncio.sleep(ahead)
        yield min(plan.per_tick, plan.count - said)
        due += plan.tick
