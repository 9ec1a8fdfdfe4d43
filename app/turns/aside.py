"""Asks an agent something outside of any session: no turn, nothing in a log, only its text comes back."""

import asyncio

from app.agents.contract import Agent, AgentEvent, Prompt, Scope
from app.agents.driver import Bounds, Drive
from app.agents.outcome import Completed, Outcome


async def ask_aside(
    agent: Agent, scope: Scope, prompt: Prompt, *, patience: float, bounds: Bounds
) -> str | None:
    """The agent's text, or None when it did not complete within `patience` seconds. It has stopped on return."""
    pieces: list[str] = []
    outcome: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()

    def take(event: AgentEvent) -> None:
        delta = event.get("delta")
        if event["type"] == "text" and isinstance(delta, str):
            pieces.append(delta)

    drive = Drive(agent, scope, prompt, take, outcome.set_result, bounds=bounds, name="aside")
    drive.start()
    try:
        await asyncio.wait({outcome}, timeout=patience)
    finally:
        await drive.cancel()
    return "".join(pieces) if isinstance(outcome.result(), Completed) else None
