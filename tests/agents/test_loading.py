"""Loading an agent: every way to name one, and a plain word for every way to get it wrong."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from app.agents.adapters.fastagent import FastAgent
from app.agents.adapters.tarko.agent import TarkoAgent
from app.agents.collect import collect
from app.agents.loading import agent_description, agent_name, load_agent
from app.errors import AgentLoadError
from app.settings import A2ARemote, Settings

MODULE = """
import functools
from enum import Enum


class Plain:
    name = "plain agent"

    async def invoke(self, scope, prompt):
        yield {"type": "text", "delta": "plain"}
        yield {"type": "completed"}


class Needy(Plain):
    def __init__(self, model, *, key):
        self.model = model


class Raising(Plain):
    def __init__(self):
        raise ValueError("no disk")


class Exiting(Plain):
    def __init__(self):
        raise SystemExit("bye")


class Silent:
    pass


class Callable:
    def __init__(self, needed):
        pass

    async def __call__(self, scope, prompt):
        yield {"type": "completed"}


class NotAMethod:
    invoke = 3


class TooMany:
    async def invoke(self, scope, prompt, third):
        yield


class Coroutine:
    async def invoke(self, scope, prompt):
        return []


async def bare(scope, prompt):
    yield {"type": "text", "delta": "bare"}
    yield {"type": "completed"}


async def one_parameter(prompt):
    yield {"type": "completed"}


async def three(one, two, three):
    yield {"type": "completed"}


async def coroutine(scope, prompt):
    return []


async def async_factory():
    return Plain()


def plain_bare(scope, prompt):
    return bare(scope, prompt)


def one(prompt):
    return bare(None, prompt)


async def answer(text):
    yield "answered"


def answer_factory():
    return answer


def factory(option=1):
    return Plain()


def bare_factory():
    return bare


def factory_of_none():
    return None


def factory_of_coroutine_agent():
    return Coroutine()


class holder:
    inner = Plain()


instance = Plain()
call = Callable(1)
partial = functools.partial(bare)
number = 7
no_signature = dict
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str, str], None]]:
    """Writes modules into the current directory; what was imported is forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    before = set(sys.modules)

    def write(name: str, source: str) -> None:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source, encoding="utf-8")

    write("loadable.py", MODULE)
    yield write
    for name in set(sys.modules) - before:
        del sys.modules[name]


def refusal(name: str) -> str:
    with pytest.raises(AgentLoadError) as caught:
        load_agent(name, Settings())
    assert caught.value.code == "agent_not_loaded"
    return str(caught.value)


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("Plain", "plain"),
        ("instance", "plain"),
        ("factory", "plain"),
        ("holder.inner", "plain"),
        ("bare", "bare"),
        ("plain_bare", "bare"),
        ("bare_factory", "bare"),
        ("partial", "bare"),
        ("call", ""),
        ("answer", "answered"),
        ("answer_factory", "answered"),
        ("one", "bare"),
        ("one_parameter", ""),
    ],
)
@pytest.mark.usefixtures("module")
async def test_every_shape_of_agent_is_loaded(path: str, text: str) -> None:
    agent = load_agent(f"loadable:{path}", Settings())
    assert (await collect(agent.invoke({"session": "s"}, {"text": ""}))).text == text


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("Plian", "there is no 'Plian' in module 'loadable'; did you mean 'Plain'?"),
        ("holder.xyz", "there is no 'xyz' in a type; it has inner"),
        ("number.wrong.more", "there is no 'wrong' in a int; it has "),
        ("Needy", "Needy(model, *, key) can't be made without arguments"),
        ("Raising", "failed when it was made: ValueError: no disk"),
        ("Exiting", "failed when it was made: SystemExit: bye"),
        ("Silent", "a Silent has no `invoke`"),
        ("NotAMethod", "`invoke` is a int, not a method"),
        (
            "TooMany",
            "`invoke` must take two positional parameters, scope and prompt, not (scope, prompt, third)",
        ),
        ("Coroutine", "`invoke` is an `async def` without `yield`"),
        ("three", "must take two positional parameters, scope and prompt, not (one, two, three)"),
        ("coroutine", "is an `async def` without `yield`"),
        ("async_factory", "is an `async def` factory; make it a plain `def`"),
        ("factory_of_none", "None has no `invoke`"),
        ("factory_of_coroutine_agent", "`invoke` is an `async def` without `yield`"),
        ("number", "is a int: it has no `invoke` and isn't a function or a class"),
        ("no_signature", "a dict has no `invoke`"),
    ],
)
@pytest.mark.usefixtures("module")
def test_every_mistake_is_named(path: str, message: str) -> None:
    assert message in refusal(f"loadable:{path}")


@pytest.mark.parametrize("name", ["nonsense", "", ":", "loadable:", ":x", "a..b:x", "a:b..c"])
def test_a_name_without_its_parts_is_refused(name: str) -> None:
    assert "nor of the form `package.module:name`" in refusal(name)


@pytest.mark.parametrize("name", ["./agents.py:x", "agents.py:x", "folder/agents:x"])
def test_a_file_is_no_module(name: str) -> None:
    assert "names a file; name its module" in refusal(name)


def test_a_module_that_is_not_there_is_not_found(module: Callable[[str, str], None]) -> None:
    assert "module 'nowhere_at_all' was not found" in refusal("nowhere_at_all:x")
    assert "module 'nowhere_at_all.deep' was not found" in refusal("nowhere_at_all.deep:x")
    assert "'loadable' is not a package" in refusal("loadable.deep:x")


def test_a_module_that_misses_another_says_which(module: Callable[[str, str], None]) -> None:
    module("needs.py", "import not_installed_lib.part")
    assert "module 'needs' failed: it imports 'not_installed_lib', which isn't there" in refusal("needs:x")
    module("nameless.py", "raise ModuleNotFoundError('by hand')")
    assert "module 'nameless' failed" in refusal("nameless:x")


def test_a_module_that_is_broken_says_where(module: Callable[[str, str], None]) -> None:
    module("broken.py", "x = 1\ndef f(:\n")
    assert "broken.py, line 2: invalid syntax" in refusal("broken:x")


@pytest.mark.parametrize(
    ("source", "told"),
    [("1 / 0", "ZeroDivisionError: division by zero"), ("import sys; sys.exit(2)", "SystemExit: 2")],
)
def test_a_module_that_raises_says_what(module: Callable[[str, str], None], source: str, told: str) -> None:
    module("raising.py", source)
    assert f"module 'raising' failed while it was imported: {told}" in refusal("raising:x")


def test_an_empty_module_suggests_nothing(module: Callable[[str, str], None]) -> None:
    module("hollow.py", "")
    assert refusal("hollow:x").endswith("there is no 'x' in module 'hollow'")


def test_packages_work_and_the_path_gets_the_directory_once(module: Callable[[str, str], None]) -> None:
    module("pack/__init__.py", "")
    module("pack/inner.py", MODULE)
    assert load_agent("pack.inner:instance", Settings())
    assert load_agent("pack.inner:instance", Settings())
    assert sys.path.count(str(Path.cwd())) == 1


@pytest.mark.usefixtures("module")
def test_an_agents_name_is_its_own_or_the_last_part_of_where_it_was() -> None:
    assert agent_name(load_agent("loadable:Plain", Settings()), "loadable:Plain") == "plain agent"
    assert agent_name(load_agent("loadable:bare", Settings()), "loadable:holder.bare") == "bare"
    assert agent_name(load_agent("demo", Settings()), "demo") == "demo"


def test_an_agents_description_is_its_own_never_ours(module: Callable[[str, str], None]) -> None:
    module(
        "described.py",
        "class Mine:\n"
        "    'Says nothing.\\n\\n    At length.'\n"
        "    async def invoke(self, scope, prompt):\n"
        "        yield {}\n"
        "mine = Mine()\n"
        "def documented(text):\n"
        "    'Repeats\\n    the text.'\n"
        "    return text\n"
        "def bare(text):\n"
        "    return text\n"
        "class Called:\n"
        "    def __call__(self, text):\n"
        "        return text\n"
        "called = Called()\n",
    )
    expected = {
        "described:mine": "Says nothing.",
        "described:documented": "Repeats the text.",
        "described:bare": "The agent described:bare.",
        "described:called": "The agent described:called.",
        "demo": "Shows what a turn can have; nothing that it says is meant.",
        "fastagent:http://x": "The agent fastagent:http://x.",
    }
    for name, description in expected.items():
        assert agent_description(load_agent(name, Settings()), name) == description


def test_an_object_that_can_not_be_looked_at_is_refused(module: Callable[[str, str], None]) -> None:
    module(
        "lying.py",
        "class Liar:\n    def __getattr__(self, name):\n        raise RuntimeError(f'no {name}')\nliar = Liar()\n",
    )
    assert "can't be looked at: RuntimeError: no invoke" in refusal("lying:liar")


async def test_a_remote_server_is_named_by_its_address() -> None:
    for name, dialect in (
        ("tarko:http://127.0.0.1:9", "documented"),
        ("tarko-runtime:https://h/ui", "runtime"),
    ):
        agent = load_agent(name, Settings(remote_token="secret"))
        assert isinstance(agent, TarkoAgent)
        assert agent_name(agent, name) == "tarko"
        assert agent._dialect == dialect
        assert agent._remote.url == name.partition(":")[2]
        assert agent._remote._client.headers["authorization"] == "Bearer secret"
        await agent.aclose()
    with pytest.raises(AgentLoadError):
        load_agent("tarko:ftp://host", Settings())
    with pytest.raises(AgentLoadError, match="tarko:<url>"):
        load_agent("tarko:", Settings())


def test_the_openai_agent_is_made_from_the_settings() -> None:
    settings = Settings(openai_base_url="http://127.0.0.1:9/v1", openai_api_key="k", openai_model="m")
    agent = load_agent("openai", settings)
    assert agent_name(agent, "openai") == "openai"


def test_loading_the_demo_does_not_import_the_sdk() -> None:
    program = (
        "import sys; from app.agents.loading import load_agent; from app.settings import Settings;"
        "load_agent('demo', Settings()); sys.exit('openai' in sys.modules)"
    )
    root = Path(__file__).parents[2]
    assert subprocess.run([sys.executable, "-c", program], cwd=root, timeout=60, check=False).returncode == 0


def test_a_remote_a2a_agent_is_made_from_the_settings() -> None:
    remotes: Any = {
        "https://a.example/x/": {"headers": {"x-team": "red"}, "deadline": 5},
        "https://b.example": {"token": "own"},
    }
    settings = Settings(remote_token="shared", a2a_remotes=remotes)
    found = []
    for url in ("https://a.example/x", "https://b.example/", "https://c.example"):
        agent = load_agent(f"a2a:{url}", settings)
        assert agent_name(agent, f"a2a:{url}") == "a2a"
        options: A2ARemote = agent._options  # type: ignore[attr-defined]
        found.append((options.token, options.deadline))
    assert found == [("shared", 5), ("own", 900), ("shared", 900)]
    assert "red" not in repr(settings)
    assert "own" not in repr(settings)


def test_a_remote_tarko_server_is_an_agent_in_both_dialects() -> None:
    for name in ("tarko:http://host", "tarko-runtime:http://host"):
        assert agent_name(load_agent(name, Settings()), name) == "tarko"
    assert "`a2a:<url>`" in refusal("a2a:")


FRAMEWORK = """
class Pregel:
    def invoke(self, given):
        raise AssertionError("the framework's own `invoke` is no turn")


class Graph(Pregel):
    pass


graph = Graph()


def make_graph():
    return graph
"""


@pytest.mark.parametrize("path", ["graph", "make_graph"])
def test_an_object_of_a_framework_without_its_extra_says_what_to_install(
    path: str, module: Callable[[str, str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    module("langgraph/__init__.py", FRAMEWORK)
    monkeypatch.setitem(sys.modules, "app.agents.adapters.frameworks.langgraph", None)
    told = refusal(f"langgraph:{path}")
    assert "an object of LangGraph" in told
    assert "pip install 'tarko-server[langgraph]'" in told


@pytest.mark.parametrize("path", ["graph", "make_graph"])
def test_an_object_of_a_framework_gets_its_adapter(
    path: str, module: Callable[[str, str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    module("langgraph/__init__.py", FRAMEWORK)
    adapter = ModuleType("app.agents.adapters.frameworks.langgraph")
    monkeypatch.setattr(adapter, "LangGraphAgent", lambda found: ("adapted", found), raising=False)
    monkeypatch.setitem(sys.modules, adapter.__name__, adapter)
    loaded: Any = load_agent(f"langgraph:{path}", Settings())
    assert loaded[0] == "adapted"
    assert type(loaded[1]).__name__ == "Graph"


@pytest.mark.parametrize(
    ("imported", "extra"),
    [
        ("langgraph.graph", "langgraph"),
        ("google.adk.agents", "google-adk"),
        ("pydantic_ai", "pydantic-ai"),
        ("agents", "openai-agents"),
        ("langchain_core", "langchain"),
        ("mcp", "mcp"),
        ("anthropic", "anthropic"),
    ],
)
def test_a_module_that_misses_its_framework_says_what_to_install(
    imported: str,
    extra: str,
    module: Callable[[str, str], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, imported.partition(".")[0], None)
    module("needs.py", f"import {imported}\n")
    assert f"; pip install 'tarko-server[{extra}]' brings what it needs" in refusal("needs:agent")


def test_another_missing_module_gets_no_such_advice(module: Callable[[str, str], None]) -> None:
    module("needs.py", "import nowhere_at_all\n")
    assert "pip install" not in refusal("needs:agent")


def test_a_fastagent_server_is_named_by_its_address() -> None:
    assert isinstance(load_agent("fastagent:http://127.0.0.1:1", Settings()), FastAgent)
    assert "address" in refusal("fastagent:ftp://x")


def test_no_framework_is_imported_to_recognise_its_objects() -> None:
    code = (
        "import sys; from app.agents.adapters.recognised import FRAMEWORKS, framework_of; framework_of(object());"
        "print([each for each in sys.modules if each.partition('.')[0] in"
        " {'langgraph', 'langchain_core', 'pydantic_ai', 'agents', 'google', 'anthropic', 'mcp', 'openai'}])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
