"""An agent asked aside: its text, or nothing, and in any case it has stopped."""

import asyncio
from collections.abc import AsyncIterator

from app.agents.contract import AgentEvent, Prompt, Scope
from app.turns.aside import ask_aside
from tests.server import COMPLETED, SHORT, Script, said, saying


class Asked:
    """An agent that follows a script."""

    def __init__(self, script: Script) -> None:
        self._script = script

    def invoke(self, scope: Scope, prompt: Prompt, /) -> AsyncIterator[AgentEvent]:
        return self._script(scope, prompt)


async def ask(script: Script, patience: float = 5) -> str | None:
    return await ask_aside(Asked(script), {"session": "s"}, {"text": "t"}, patience=patience, bounds=SHORT)


async def test_the_text_comes_back_without_what_is_no_text() -> None:
    thinking: AgentEvent = {"type": "thinking", "delta": "hm"}
    assert await ask(saying(said("A "), thinking, said("title"), {"type": "text", "delta": 5})) == "A title"


async def test_an_agent_that_fails_or_breaks_its_contract_says_nothing() -> None:
    failed: AgentEvent = {"type": "failed", "details": "no", "retryable": False}
    assert await ask(saying(said("A"), failed, ends=False)) is None
    assert await ask(saying(said("A"), ends=False)) is None


async def test_an_agent_that_is_too_slow_is_stopped_and_says_nothing() -> None:
    stopped = asyncio.Event()

    async def slow(*_: object) -> AsyncIterator[AgentEvent]:
        try:
            yield said("A")
            await asyncio.Event().wait()
            yield COMPLETED
        finally:
            stopped.set()

    assert await ask(slow, patience=0.01) is None
    assert stopped.is_set()
