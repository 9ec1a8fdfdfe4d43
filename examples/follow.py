"""Asks one question and follows the session from another connection meanwhile: `python follow.py [url]`.

Stop and start the server in between, pull the cable: each event is printed once.
"""

import asyncio
import sys
from contextlib import aclosing

from tarko_client import AsyncClient


async def main(url: str) -> None:
    async with AsyncClient(url) as client:
        session = await client.create("My Session")
        question = asyncio.create_task(session.query("Hello"))
        async with aclosing(session.follow(after=0)) as events:
            async for event in events:
                print(event.id, event.type, event.get("delta"))
                if event.type == "agent_run_end":
                    break
        print((await question).response)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8888"))
