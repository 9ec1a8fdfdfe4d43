"""Which objects `serve` takes for an agent of a framework, and what must be installed for each.

A framework is recognised by the names in an object's ancestry: nothing is imported to ask, and only the adapter of the
framework that is there is imported then.
"""

import importlib
from dataclasses import dataclass

from app.agents.contract import Agent
from app.errors import AgentLoadError

_ADAPTERS = "app.agents.adapters.frameworks"


@dataclass(frozen=True, slots=True)
class Framework:
    """`extra` installs what the adapter `module`:`adapter` needs; `packages` are what users import of it."""

    title: str
    extra: str
    packages: tuple[str, ...]
    kinds: tuple[str, ...]
    """Its objects' classes, as `<top package>:<class>`."""
    module: str
    adapter: str


FRAMEWORKS = (
    Framework(
        "LangGraph",
        "langgraph",
        ("langgraph",),
        ("langgraph:Pregel", "langgraph:StateGraph"),
        "langgraph",
        "LangGraphAgent",
    ),
    Framework(
        "LangChain",
        "langchain",
        ("langchain_core", "langchain"),
        ("langchain_core:Runnable",),
        "langchain",
        "LangChainAgent",
    ),
    Framework(
        "PydanticAI",
        "pydantic-ai",
        ("pydantic_ai",),
        ("pydantic_ai:AbstractAgent",),
        "pydantic_ai",
        "PydanticAIAgent",
    ),
    Framework(
        "OpenAI Agents SDK",
        "openai-agents",
        ("agents",),
        ("agents:Agent",),
        "openai_agents",
        "OpenAIAgentsAgent",
    ),
    Framework(
        "Google ADK",
        "google-adk",
        ("google.adk",),
        ("google:BaseAgent", "google:App"),
        "google_adk",
        "GoogleADKAgent",
    ),
)
_EXTRA_OF = {package: each.extra for each in FRAMEWORKS for package in each.packages} | {
    "anthropic": "anthropic",
    "mcp": "mcp",
    "google": "google-adk",
}


def framework_of(found: object) -> Framework | None:
    """The framework whose object it is."""
    for kind in type(found).__mro__:
        name = f"{kind.__module__.partition('.')[0]}:{kind.__name__}"
        for framework in FRAMEWORKS:
            if name in framework.kinds:
                return framework
    return None


def adapted(found: object, framework: Framework) -> Agent:
    """An agent that runs the object. Raises AgentLoadError, which says what to install."""
    try:
        module = importlib.import_module(f"{_ADAPTERS}.{framework.module}")
    except ImportError as error:
        raise AgentLoadError(
            f"this is an object of {framework.title}, whose adapter can't be imported ({error}); "
            f"{advice(framework.extra)}"
        ) from error
    agent: Agent = getattr(module, framework.adapter)(found)
    return agent


def advice(extra: str) -> str:
    """What to do when a framework is missing."""
    return f"pip install 'tarko-server[{extra}]' brings what it needs"


def extra_for(module_name: str) -> str | None:
    """The extra that brings a module which an agent's own module wanted to import."""
    parts = module_name.split(".")
    for length in range(len(parts), 0, -1):
        if (extra := _EXTRA_OF.get(".".join(parts[:length]))) is not None:
            return extra
    return None
