"""This server's own callers, as the kit checks them: the driver, and the buffered reading of a stream."""

from types import ModuleType
from typing import Any

from app.agents import driver
from app.agents.collect import collect
from app.agents.contract import Agent, AgentEvent, Prompt, Scope
from app.agents.outcome import Completed, Failed, Outcome
from app.conformance.caller import Reply
from app.conformance.host import Host

SHORT = {"grace": 0.1, "recancel": 0.05, "recancels": 2, "close": 0.1, "tail": 0.1}


class _Driven:
    """A turn in a driver."""

    def __init__(self, module: ModuleType, agent: Agent, scope: Scope, prompt: Prompt) -> None:
        self.events: list[AgentEvent] = []
        self.outcomes: list[Reply] = []
        self._drive: Any = module.Drive(
            agent, scope, prompt, self._take, self._end, bounds=module.Bounds(**SHORT), name="conformance"
        )
        self._drive.start()

    def _take(self, event: AgentEvent, /) -> None:
        self.events.append(event)

    def _end(self, outcome: Outcome) -> None:
        said = "".join(event["delta"] for event in self.events if event["type"] == "text")
        if isinstance(outcome, Completed):
            self.outcomes.append(Reply(said))
        elif isinstance(outcome, Failed):
            self.outcomes.append(Reply(said, is_failure=True, code=outcome.code, retryable=outcome.retryable))
        else:
            self.outcomes.append(Reply(said, is_failure=True, code="aborted"))

    async def over(self) -> None:
        await self._drive.wait()

    async def stop(self) -> None:
        await self._drive.cancel()


def driver_host(module: ModuleType = driver) -> Host:
    """The driver as a host, with short bounds. `module` may be another version of it."""
    return lambda agent, scope, prompt: _Driven(module, agent, scope, prompt)


async def collecting(agent: Agent, scope: Scope, prompt: Prompt) -> Reply:
    """`collect` as a caller. Raises what it raises."""
    collected = await collect(agent.invoke(scope, prompt))
    return Reply(collected.text)
