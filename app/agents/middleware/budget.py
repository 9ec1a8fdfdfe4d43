"""Bounds what a turn may say and how many tools it may call; more than that ends it as `failed` with `budget_exceeded`.

What would exceed the budget is not passed on. A `tool_started` that would is met before the agent goes on, so an agent
that announces its tools before it runs them does not run that one.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import aclosing

from app.agents.contract import Agent, AgentEvent, Prompt, Scope
from app.agents.middleware.relay import relay

CODE = "budget_exceeded"
_BYTES_PER_TOKEN = 4


def about_tokens(text: str) -> float:
    """About how many tokens a text is: models' own counts need the model's tokenizer."""
    return len(text.encode("utf-8", "surrogatepass")) / _BYTES_PER_TOKEN


class Budget:
    """`tokens` of text and thinking together, as `count` counts them, and `tools` calls; None: as many as it likes."""

    def __init__(
        self,
        agent: Agent,
        *,
        tokens: int | None = None,
        tools: int | None = None,
        count: Callable[[str], float] = about_tokens,
    ) -> None:
        self._agent = agent
        self._tokens = tokens
        self._tools = tools
        self._count = count

    async def invoke(self, scope: Scope, prompt: Prompt, /) -> AsyncIterator[AgentEvent]:
        tokens, tools = 0.0, 0
        async with aclosing(relay(self._agent, scope, prompt)) as events:
            async for event in events:
                delta = event.get("delta")
                if event["type"] in ("text", "thinking") and isinstance(delta, str):
                    tokens += self._count(delta)
                elif event["type"] == "tool_started":
                    tools += 1
                exceeded = self._exceeded(tokens, tools)
                if exceeded is not None:
                    break
                yield event
            else:
                return
        # The agent has stopped by now: nothing is spent after the failure was told.
        yield {"type": "failed", "details": exceeded, "retryable": False, "code": CODE}

    def _exceeded(self, tokens: float, tools: int) -> str | None:
        if self._tokens is not None and tokens > self._tokens:
            return f"the turn may say about {self._tokens} tokens"
        if self._tools is not None and tools > self._tools:
            return f"the turn may call {self._tools} tools"
        return None
