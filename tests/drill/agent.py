"""The drill's agent: says numbered words and writes each into a journal before it says it.

The journal is one file a process, opened for appending and written without a buffer, so `kill -9` loses no line of it.
The prompt is `<words> <milliseconds between them>`.
"""

import asyncio
import os
from collections.abc import AsyncIterator
from typing import Any

JOURNAL = "DRILL_JOURNAL"


async def invoke(scope: Any, prompt: Any) -> AsyncIterator[dict[str, Any]]:
    """Say so many words, one every so many milliseconds."""
    words, pause = prompt["text"].split()
    journal = os.open(os.environ[JOURNAL], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        for number in range(int(words)):
            os.write(journal, f"{scope['turn']} {number}\n".encode())
            yield {"type": "text", "delta": f"{number} "}
            await asyncio.sleep(float(pause) / 1000)
        os.write(journal, f"{scope['turn']} end\n".encode())
        yield {"type": "completed"}
    finally:
        os.close(journal)
