"""One agent for a pair of replicas: the first word of a prompt says which subject takes the rest of it."""

from collections.abc import AsyncIterable

from app.agents.contract import Agent, AgentEvent, Prompt, Scope
from app.agents.loading import load_agent
from app.settings import Settings

CONTINUED = (
    "functions",
    "langgraph",
    "pydantic_ai",
    "openai_agents",
    "langchain",
    "google_adk",
    "anthropic",
    "mcp",
)
"""The subjects that take the conversation from the session's log."""


class Subjects:
    """All subjects, loaded before the server serves."""

    name = "subjects"

    def __init__(self) -> None:
        self._loaded: dict[str, Agent] = {
            subject: load_agent(f"tests.adapters.subjects.{subject}:make", Settings())
            for subject in CONTINUED
        }

    def invoke(self, scope: Scope, prompt: Prompt, /) -> AsyncIterable[AgentEvent]:
        subject, _, text = prompt["text"].partition(" ")
        return self._loaded[subject].invoke(scope, {**prompt, "text": text})


def make() -> Subjects:
    return Subjects()
