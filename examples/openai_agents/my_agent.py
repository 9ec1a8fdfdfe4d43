"""An agent of the OpenAI Agents SDK on its own scripted model. No network, no key."""

from agents import Agent, function_tool, set_tracing_disabled
from agents.testing import ModelStep, ScriptedModel, assistant_message, function_call

set_tracing_disabled(True)


@function_tool
def weather(city: str) -> str:
    """The weather in a city."""
    return f"11 degrees in {city}"


def make_agent() -> Agent:
    """Ten turns' worth of script."""
    turn = [
        ModelStep(output=[function_call("weather", '{"city": "Aarhus"}', call_id="call_1")]),
        ModelStep(output=[assistant_message("It is 11 degrees.")]),
    ]
    return Agent(name="weather agent", model=ScriptedModel(turn * 10), tools=[weather])
