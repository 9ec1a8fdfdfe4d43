"""The drill's agent: says numbered words and writes each into the journal before it says it.

The prompt is `<words> <milliseconds between them> [<bytes of padding in each>]`. A word names its turn, so that one
which strays into another session is found.
"""

import asyncio
from collections.abc import AsyncIterator

from app.agents.contract import AgentEvent, Prompt, Scope
from app.drill.journal import Journal


async def invoke(scope: Scope, prompt: Prompt) -> AsyncIterator[AgentEvent]:
    """Say so many words, one every so many milliseconds."""
    words, pause, padding, *_ = (*map(int, prompt["text"].split()), 0)
    journal = Journal(scope["turn"])
    try:
        for number in range(words):
            word = f"{scope['turn'][-8:]}.{number}{'.' * padding} "
            journal.says(number, word)
            yield {"type": "text", "delta": word}
            await asyncio.sleep(pause / 1000)
        journal.ends()
        yield {"type": "completed"}
    finally:
        journal.is_over()
