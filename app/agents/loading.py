"""Turns the name of an agent in the settings into the agent, or says precisely why it can't.

A name is `demo`, `openai`, `tarko:<url>`, `tarko-runtime:<url>`, `a2a:<url>`, `fastagent:<url>` or
`package.module:name`, where `name` may have dots. What lies there may be an object with `invoke`, an object of a
framework that has an adapter, a class or a plain function that makes one without arguments, a bare `invoke` function, or
a function of the prompt's text. Names come from the operator's settings only, never from a request: loading runs their
code.

What `invoke` returns at run time is the driver's concern; here its shape is checked, so that the mistakes
that can be seen without a turn are seen at start.
"""

import difflib
import importlib
import inspect
import re
import sys
from collections.abc import AsyncIterable, Callable
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, NoReturn

from app.agents.adapters.functions import FunctionAgent, first_paragraph, is_text_function
from app.agents.adapters.recognised import adapted, advice, extra_for, framework_of
from app.agents.contract import Agent, AgentEvent, Prompt, Scope
from app.agents.reading import described
from app.errors import AgentLoadError
from app.settings import A2ARemote, Settings

_REMOTE = re.compile(r"(?P<kind>tarko|tarko-runtime|a2a|fastagent):(?P<url>.*://.*)")


class BareAgent:
    """A function that does what `invoke` does, as an agent."""

    __slots__ = ("_function", "description")

    def __init__(self, function: Callable[[Scope, Prompt], AsyncIterable[AgentEvent]]) -> None:
        self._function = function
        self.description = first_paragraph(function.__doc__)

    def invoke(self, scope: Scope, prompt: Prompt, /) -> AsyncIterable[AgentEvent]:
        return self._function(scope, prompt)


def load_agent(name: str, settings: Settings) -> Agent:
    """The agent of that name. Raises AgentLoadError."""
    if name == "demo":
        from app.agents.demo import DemoAgent

        return DemoAgent()
    if name == "openai":
        return _openai_agent(settings)
    if (remote := _REMOTE.fullmatch(name)) is not None:
        return _remote_agent(remote["kind"], remote["url"], settings)
    module_name, path = _split(name)
    module = _imported(module_name)
    try:
        return _as_agent(_attribute(module, path, name), name)
    except AgentLoadError:
        raise
    except Exception as error:  # noqa: BLE001 - objects may raise anything when they are looked at
        _refuse(f"agent {name!r} can't be looked at: {described(error)}", error)


def agent_name(agent: Agent, name: str) -> str:
    """What to call it before people: its own `name`, else the last part of the name it was loaded by."""
    own = getattr(agent, "name", None)
    return own if isinstance(own, str) and own.strip() else name.rpartition(":")[2].rpartition(".")[2]


def agent_description(agent: Agent, name: str) -> str:
    """What to say of it to strangers: its own `description`, else the first paragraph of its class's documentation.

    Not of a class of ours: that is written for whoever makes one.
    """
    own = getattr(agent, "description", None)
    if isinstance(own, str) and own.strip():
        return own.strip()
    is_ours = type(agent).__module__.partition(".")[0] == __name__.partition(".")[0]
    documented = "" if is_ours else first_paragraph(type(agent).__doc__)
    return documented or f"The agent {name}."


def _openai_agent(settings: Settings) -> Agent:
    # Here, because importing the SDK takes longer than starting the server.
    from app.agents.adapters.openai_chat import OpenAIChatAgent

    return OpenAIChatAgent(
        model=settings.openai_model,
        other_models=filter(None, map(str.strip, settings.openai_models.split(","))),
        base_url=settings.openai_base_url,
        api_key=settings.openai_api_key,
        system_prompt=settings.openai_system_prompt,
        mcp_servers=filter(None, map(str.strip, settings.openai_mcp_servers.split(","))),
    )


def _remote_agent(kind: str, url: str, settings: Settings) -> Agent:
    if kind == "a2a":
        from app.agents.adapters.a2a.agent import A2AAgent

        return A2AAgent(url, options=_a2a_options(url, settings))
    if kind == "fastagent":
        from app.agents.adapters.fastagent import FastAgent

        return FastAgent(url, token=settings.remote_token)
    from app.agents.adapters.tarko.agent import TarkoAgent

    dialect: Literal["runtime", "documented"] = "runtime" if kind == "tarko-runtime" else "documented"
    return TarkoAgent(url, dialect=dialect, token=settings.remote_token)


def _a2a_options(url: str, settings: Settings) -> A2ARemote:
    """What the settings say about the agent at that address; a slash at its end makes no difference."""
    for address, options in settings.a2a_remotes.items():
        if address.rstrip("/") == url.rstrip("/"):
            return options if options.token else options.model_copy(update={"token": settings.remote_token})
    return A2ARemote(token=settings.remote_token)


def _split(name: str) -> tuple[str, str]:
    module_name, colon, path = name.partition(":")
    if "/" in module_name or module_name.endswith(".py"):
        _refuse(f"agent {name!r} names a file; name its module: dots for slashes, no `.py`")
    if not (colon and all(module_name.split(".")) and all(path.split("."))):
        _refuse(
            f"agent {name!r} is neither `demo` nor `openai` nor of the form `package.module:name`, `tarko:<url>`, `a2a:<url>` or `fastagent:<url>`"
        )
    return module_name, path


def _imported(module_name: str) -> ModuleType:
    look_in_the_current_directory()
    try:
        return importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if missing == module_name or module_name.startswith(f"{missing}."):
            _refuse(f"module {module_name!r} was not found from {Path.cwd()} ({error})", error)
        extra = extra_for(missing)
        hint = f"; {advice(extra)}" if extra is not None else ""
        _refuse(f"module {module_name!r} failed: it imports {missing!r}, which isn't there{hint}", error)
    except SyntaxError as error:
        where = f"{error.filename}, line {error.lineno}"
        _refuse(f"module {module_name!r} failed: syntax error in {where}: {error.msg}", error)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - the module's code may raise anything
        _refuse(f"module {module_name!r} failed while it was imported: {_told(error)}", error)


def look_in_the_current_directory() -> None:
    """As uvicorn does, because a console script's own path doesn't have it."""
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    importlib.invalidate_caches()


def _attribute(module: ModuleType, path: str, name: str) -> object:
    found: Any = module
    for part in path.split("."):
        if not hasattr(found, part):
            _refuse(f"agent {name!r}: there is no {part!r} in {_title(found)}{_suggestion(found, part)}")
        found = getattr(found, part)
    return found


def _suggestion(holder: object, part: str) -> str:
    names = [each for each in dir(holder) if not each.startswith("_")]
    close = difflib.get_close_matches(part, names, n=1)
    if close:
        return f"; did you mean {close[0]!r}?"
    return f"; it has {', '.join(names[:10])}" if names else ""


def _as_agent(found: object, name: str) -> Agent:
    """Decide by shape: a function that needs no arguments is a factory, any other a bare `invoke`."""
    if not inspect.isclass(found) and (agent := _agent_itself(found, name)) is not None:
        return agent
    if not callable(found):
        _refuse(f"agent {name!r} is {_kind(found)}: it has no `invoke` and isn't a function or a class")
    if not inspect.isclass(found) and is_text_function(found):
        return FunctionAgent(found)
    if inspect.isasyncgenfunction(found):
        return _bare(found, name)
    if _takes(found, 0):
        return _made_by(found, name)
    if inspect.isclass(found):
        _refuse(
            f"agent {name!r}: {found.__name__}{_parameters(found)} can't be made without arguments; "
            "name an instance, or a function without parameters that makes one"
        )
    return _bare(found, name)


def _made_by(factory: Callable[..., object], name: str) -> Agent:
    if inspect.iscoroutinefunction(factory):
        _refuse(f"agent {name!r} is an `async def` factory; make it a plain `def`")
    try:
        made = factory()
    except (Exception, SystemExit) as error:  # noqa: BLE001 - the factory's code may raise anything
        _refuse(f"agent {name!r} failed when it was made: {_told(error)}", error)
    if (agent := _agent_itself(made, name)) is not None:
        return agent
    if inspect.isasyncgenfunction(made):
        return FunctionAgent(made) if is_text_function(made) else _bare(made, name)
    return _checked(made, name)


def _agent_itself(found: object, name: str) -> Agent | None:
    """The agent that an object is, or that its framework's adapter makes of it."""
    framework = framework_of(found)
    if framework is not None:
        return adapted(found, framework)
    return _checked(found, name) if hasattr(found, "invoke") else None


def _bare(function: Callable[..., Any], name: str) -> Agent:
    _check_shape(function, f"agent {name!r}")
    return BareAgent(function)


def _checked(made: object, name: str) -> Agent:
    invoke = getattr(made, "invoke", None)
    if invoke is None:
        _refuse(f"agent {name!r}: {_kind(made)} has no `invoke`")
    if not callable(invoke):
        _refuse(f"agent {name!r}: `invoke` is {_kind(invoke)}, not a method")
    _check_shape(invoke, f"agent {name!r}: `invoke`")
    return made  # type: ignore[return-value]


def _check_shape(function: Callable[..., Any], title: str) -> None:
    if not _takes(function, 2):
        _refuse(f"{title} must take two positional parameters, scope and prompt, not {_parameters(function)}")
    if inspect.iscoroutinefunction(function):
        _refuse(f"{title} is an `async def` without `yield`; make it an async generator, or a plain `def`")


def _takes(function: Callable[..., object], count: int) -> bool:
    """Whether it takes so many positional arguments. What has no signature is given the chance."""
    try:
        signature = inspect.signature(function)
    except ValueError:
        return True
    try:
        signature.bind(*range(count))
    except TypeError:
        return False
    return True


def _parameters(function: Callable[..., object]) -> str:
    return str(inspect.signature(function))


def _kind(value: object) -> str:
    return "None" if value is None else f"a {type(value).__name__}"


def _title(holder: object) -> str:
    return f"module {holder.__name__!r}" if isinstance(holder, ModuleType) else _kind(holder)


def _told(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


def _refuse(message: str, cause: BaseException | None = None) -> NoReturn:
    raise AgentLoadError(message) from cause
