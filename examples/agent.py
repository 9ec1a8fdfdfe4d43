"""An agent in ten lines: `tarko-server serve agent:invoke` in this folder serves it."""

import asyncio


async def invoke(scope, prompt):
    for word in f"You said: {prompt['text']}".split():
        yield {"type": "text", "delta": word + " "}
        await asyncio.sleep(0.01)
    yield {"type": "completed"}
