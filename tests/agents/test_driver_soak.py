"""The driver under cancels at any moment: one outcome, nothing after it, nothing left behind."""

import asyncio
import random
from collections.abc import AsyncIterator
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from app.agents.contract import AgentEvent
from app.agents.driver import Bounds
from app.agents.outcome import Cancelled, Completed, Failed
from tests.agents.driving import COMPLETED, SHORT, Recorded, nothing_left, text

Step = tuple[str, int]


class Scripted:
    """An agent that follows a script of steps and knows whether its clean-up was left."""

    def __init__(self, steps: list[Step]) -> None:
        self._steps = steps
        self.entered = 0
        self.left = 0

    async def agent(self) -> AsyncIterator[AgentEvent]:
        self.entered += 1
        try:
            for what, count in self._steps:
                async for event in self._step(what, count):
                    yield event
        finally:
            try:
                await asyncio.sleep(0)
            finally:
                self.left += 1

    async def _step(self, what: str, count: int) -> AsyncIterator[AgentEvent]:
        if what == "raise":
            raise ValueError
        try:
            await pause(what, count)
        except asyncio.CancelledError:
            if what != "deaf":
                raise
            yield text("swallowed")
        for event in events_of(what, count):
            yield event


async def pause(what: str, count: int) -> None:
    if what == "group":
        async with asyncio.TaskGroup() as group:
            for _ in range(count):
                group.create_task(asyncio.sleep(0))
    elif what in {"wait", "deaf"}:
        for _ in range(count):
            await asyncio.sleep(0)


def events_of(what: str, count: int) -> list[AgentEvent]:
    if what == "text":
        return [text(str(number)) for number in range(count)]
    last: dict[str, list[AgentEvent]] = {"bad": [{}], "end": [COMPLETED]}
    return last.get(what, [])


KINDS = ["text", "wait", "group", "deaf", "raise", "bad", "end"]
STEPS = st.lists(st.tuples(st.sampled_from(KINDS), st.integers(0, 5)), max_size=6)


async def drive_and_cancel(scripted: Scripted, turns: int | None, bounds: Bounds) -> Recorded:
    """Drive it and cancel after so many turns of the loop; None: never."""

    async def lag() -> None:
        await asyncio.sleep(0)

    recorded = Recorded(
        scripted.agent, sink=lambda event: lag() if event.get("delta") == "1" else None, bounds=bounds
    )
    recorded.drive.start()
    if turns is not None:
        for _ in range(turns):
            await asyncio.sleep(0)
        await recorded.cancelled()
    await recorded.over()
    return recorded


async def test_three_hundred_cancels_at_random_moments_leave_nothing_behind() -> None:
    chance = random.Random(7)  # noqa: S311 - a moment, not a secret
    async with nothing_left():
        for _ in range(300):
            steps = [
                (chance.choice(["text", "wait", "group", "deaf"]), chance.randrange(6)) for _ in range(5)
            ]
            scripted = Scripted([*steps, ("end", 1)])
            recorded = await drive_and_cancel(scripted, chance.randrange(25), Bounds())
            assert recorded.outcome in (Cancelled(), Completed())
            assert scripted.left == scripted.entered
            assert not recorded.drive.abandoned


@settings(max_examples=150, deadline=None)
@given(steps=STEPS, turns=st.none() | st.integers(0, 20))
def test_whatever_an_agent_does_and_whenever_it_is_cancelled(steps: list[Step], turns: int | None) -> None:
    async def check() -> None:
        async with nothing_left():
            scripted = Scripted(steps)
            recorded = await drive_and_cancel(scripted, turns, SHORT)
            assert scripted.left == scripted.entered
            if turns is None:
                assert recorded.outcome == expected(steps)
            assert recorded.events == produced(steps)[: len(recorded.events)]

    asyncio.run(check())


def produced(steps: list[Step]) -> list[AgentEvent]:
    return [event for what, count in steps if what == "text" for event in events_of(what, count)]


def expected(steps: list[Step]) -> Any:
    for what, _ in steps:
        if what == "end":
            return Completed()
        if what == "raise":
            return Failed("ValueError", retryable=False, code="agent_exception")
        if what == "bad":
            details = "an event is an object with a string `type`, not {}"
            return Failed(details, retryable=False, code="agent_protocol_error")
    return Failed(
        "the stream ended without `completed` or `failed`", retryable=False, code="agent_protocol_error"
    )
