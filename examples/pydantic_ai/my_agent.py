"""A PydanticAI agent on its own test model, which calls every tool once. No network, no key."""

from pydantic_ai import Agent
from pydantic_ai.models.test import TestModel

agent = Agent(TestModel(), system_prompt="You are kind.")


@agent.tool_plain
def weather(city: str) -> str:
    """The weather in a city."""
    return f"11 degrees in {city}"
