"""Reads which middleware the settings name, and puts it around an agent.

The words are calls, outermost first: `deadline(seconds=60), retry(times=2), redact("sk-[A-Za-z0-9]+")`. Arguments are
literals. A name with dots is the operator's own: `my_package.audit(level=2)` is called with the agent first and must
return an agent. Names come from the settings only, never from a request.
"""

import ast
import difflib
import importlib
from collections.abc import Callable, Mapping
from typing import Any, NoReturn, TypeAlias

from app.agents.contract import Agent
from app.agents.loading import look_in_the_current_directory
from app.errors import ConfigurationError

Middleware: TypeAlias = Callable[[Agent], Agent]

BUILT_IN: Mapping[str, str] = {
    "budget": "budget:Budget",
    "deadline": "deadline:Deadline",
    "enforce": "enforce:Enforce",
    "logging": "logging:Logging",
    "rate_limit": "rate_limit:RateLimit",
    "redact": "redact:Redact",
    "retry": "retry:Retry",
    "tracing": "tracing:Tracing",
}


class _Dressed:
    """An agent that is called through its middleware and declares what it declares itself."""

    def __init__(self, middleware: Agent, within: Agent) -> None:
        self.invoke = middleware.invoke
        self._within = within

    def __getattr__(self, name: str) -> Any:
        return getattr(self._within, name)


def wrapped(agent: Agent, words: str) -> Agent:
    """The agent within the middleware that the words name. Raises `ConfigurationError`."""
    within = agent
    for layer in reversed(middleware(words)):
        try:
            agent = layer(agent)
        except (TypeError, ValueError, LookupError) as error:
            _refuse(f"{layer.__name__}: {error}", error)
        if not hasattr(agent, "invoke"):
            _refuse(f"{layer.__name__} made a {type(agent).__name__}, which has no `invoke`")
    return agent if agent is within else _Dressed(agent, within)


def middleware(words: str) -> list[Middleware]:
    """What the words name, outermost first. Raises `ConfigurationError`."""
    words = words.strip().removesuffix(",")
    if not words:
        return []
    try:
        parsed = ast.parse(f"({words},)", mode="eval").body
    except (SyntaxError, ValueError) as error:
        _refuse(f"it can't be read: {error}", error)
    assert isinstance(parsed, ast.Tuple)  # noqa: S101 - the parentheses and the comma make it one
    return [_layer(each) for each in parsed.elts]


def _layer(word: ast.expr) -> Middleware:
    arguments: list[Any] = []
    options: dict[str, Any] = {}
    if isinstance(word, ast.Call):
        try:
            arguments = [ast.literal_eval(each) for each in word.args]
            options = {str(each.arg): ast.literal_eval(each.value) for each in word.keywords}
        except (ValueError, TypeError) as error:
            _refuse(f"in {ast.unparse(word)!r} only plain values may be given", error)
        word = word.func
    name = ast.unparse(word)
    make = _found(name, word)

    def layer(agent: Agent) -> Agent:
        return make(agent, *arguments, **options)

    layer.__name__ = name
    return layer


def _found(name: str, word: ast.expr) -> Callable[..., Agent]:
    if isinstance(word, ast.Name):
        if name not in BUILT_IN:
            close = difflib.get_close_matches(name, BUILT_IN, n=1)
            hint = f"; did you mean {close[0]!r}?" if close else f"; there are {', '.join(BUILT_IN)}"
            _refuse(f"there is no {name!r}{hint}")
        module_name, _, attribute = BUILT_IN[name].partition(":")
        module_name = f"{__package__}.{module_name}"
    elif isinstance(word, ast.Attribute):
        look_in_the_current_directory()
        module_name, _, attribute = name.rpartition(".")
    else:
        _refuse(f"{name!r} is not a name")
    try:
        found = getattr(importlib.import_module(module_name), attribute)
    except ModuleNotFoundError as error:
        missing = error.name or module_name
        extra = (
            "; install it with `pip install 'tarko-server[tracing]'`" if "opentelemetry" in missing else ""
        )
        _refuse(f"{name!r} needs {missing!r}, which is not there{extra}", error)
    except AttributeError as error:
        _refuse(f"there is no {attribute!r} in {module_name!r}", error)
    if not callable(found):
        _refuse(f"{name!r} can't be called")
    return found  # type: ignore[no-any-return]


def _refuse(message: str, cause: BaseException | None = None) -> NoReturn:
    raise ConfigurationError(f"TARKO_MIDDLEWARE: {message}.") from cause
