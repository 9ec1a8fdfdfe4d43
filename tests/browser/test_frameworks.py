"""The guide to frameworks, run as it stands: each example is served untouched by a process of its own, and its turn is
seen over HTTP, over A2A and in the official UI.

The servers start two at a time, since most import a whole framework, and the first ones are looked at meanwhile.
"""

import asyncio
import json
import os
import re
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.agents.openai_server import OpenAIServer, finish, fragment, says
from tests.browser.kit import expect, unable
from tests.browser.official import OfficialUi
from tests.browser.processes import ROOT
from tests.conftest import Server, own_database
from tests.replicas.processes import ADDRESS, STARTS
from tests.server import PATIENCE, soon

pytestmark = pytest.mark.timeout(300)

FRAMEWORKS = ROOT / ".venv-adapters"
GUIDE = (ROOT / "docs" / "frameworks.md").read_text()
LOOKS = 3  # at each example; the scripted model of `mcp` has a turn for each


@dataclass(frozen=True)
class Example:
    """What a turn of it shows: the answer to `hello`, and what its tool gave, if it has one."""

    answer: str
    found: str | None = None
    bin: Path = FRAMEWORKS / "bin"


EXAMPLES = {
    "function": Example("hello - after 0 earlier messages", bin=Path(sys.executable).parent),
    "fastagent": Example("hello - after 0 earlier messages", bin=Path(sys.executable).parent),
    "langgraph": Example("The weather: 11 degrees in Aarhus.", "11 degrees in Aarhus"),
    "langchain": Example("Hello from the chain."),
    "pydantic_ai": Example('{"weather":"11 degrees in a"}', "11 degrees in a"),
    "openai_agents": Example("It is 11 degrees.", "11 degrees in Aarhus"),
    "google_adk": Example("You said: hello"),
    "anthropic": Example("Hello from no network."),
    "mcp": Example("It is 11 degrees in Aarhus.", "11 degrees in Aarhus"),
}
COMMANDS = dict(re.findall(r"^cd examples/(\w+) && (.*tarko-server serve \S+)$", GUIDE, re.MULTILINE))


class Served:
    """The examples' servers. Each is begun at once and waited for by the tests that look at it."""

    def __init__(self, stack: AsyncExitStack, database: str, model: str) -> None:
        self._stack = stack
        self._turns = asyncio.Semaphore(2)
        self._settings = {
            "TARKO_PORT": "0", "TARKO_DATABASE_URL": database, "TARKO_DRAIN_GRACE": "1",
            "TARKO_OPENAI_BASE_URL": model, "PYTHONDONTWRITEBYTECODE": "1",
        }  # fmt: skip
        self._starting = {
            name: asyncio.create_task(self._start(name), name=f"start {name}")
            for name, example in EXAMPLES.items()
            if example.bin != FRAMEWORKS / "bin" or (FRAMEWORKS / "tested").exists()
        }

    async def url(self, name: str) -> str:
        """Where the example is served."""
        if name not in self._starting:
            unable("the frameworks are not installed: `make adapters`")
        return await asyncio.shield(self._starting[name])

    async def end(self) -> None:
        """Begin no more."""
        for task in self._starting.values():
            task.cancel()
        await asyncio.gather(*self._starting.values(), return_exceptions=True)

    async def _start(self, name: str) -> str:
        if name == "fastagent":
            agent = f"fastagent:{await self.url('function')}"
            return await self._served(f"tarko-server serve {agent}", ROOT, EXAMPLES[name].bin)
        async with self._turns:
            return await self._served(COMMANDS[name], ROOT / "examples" / name, EXAMPLES[name].bin)

    async def _served(self, command: str, place: Path, programs: Path) -> str:
        inherited = {key: value for key, value in os.environ.items() if not key.startswith("COVERAGE_")}
        environment = inherited | self._settings | {"PATH": f"{programs}:{os.environ['PATH']}"}
        process = await asyncio.create_subprocess_exec(
            "bash", "-c", f"exec env {command}", cwd=place, env=environment, stdout=PIPE
        )

        async def ended() -> None:
            if process.returncode is None:
                process.kill()
            await soon(process.communicate())

        self._stack.push_async_callback(ended)
        assert process.stdout is not None
        async with asyncio.timeout(STARTS):
            async for line in process.stdout:
                if found := ADDRESS.search(line):
                    return f"http://127.0.0.1:{int(found[1])}"
        raise AssertionError(f"`{command}` did not start")


@pytest.fixture(scope="module", params=EXAMPLES)
def name(request: pytest.FixtureRequest) -> str:
    """Each example in turn: all looks at one come before those at the next, which starts meanwhile."""
    return str(request.param)


@pytest.fixture(scope="module")
async def served(embedded_server: Server) -> AsyncIterator[Served]:
    async with AsyncExitStack() as stack:
        url = await stack.enter_async_context(own_database(embedded_server))
        model = await stack.enter_async_context(OpenAIServer())
        call = fragment(0, '{"city": "Aarhus"}', id="call_1", name="weather")
        for _ in range(LOOKS):
            model.replies(says(call, finish("tool_calls")), says("It is 11 ", "degrees in Aarhus.", finish()))
        servers = Served(stack, url, model.base_url)
        stack.push_async_callback(servers.end)
        yield servers


async def test_each_example_answers(name: str, served: Served) -> None:
    [command] = re.findall(r"^curl -s http://127.0.0.1:8888(\S+) .* -d '(.*)'$", GUIDE, re.MULTILINE)
    path, body = command
    url = await served.url(name)
    async with httpx.AsyncClient(base_url=url, trust_env=False, timeout=PATIENCE) as client:
        response = await client.post(path, json=json.loads(body))
    answer: dict[str, Any] = response.json()
    assert (response.status_code, answer.get("response")) == (200, EXAMPLES[name].answer), response.text


async def test_each_example_is_seen_in_the_official_ui(name: str, served: Served, ui: OfficialUi) -> None:
    example = EXAMPLES[name]
    await ui.visit(await served.url(name))
    await ui.send("hello")
    await expect(ui.user).to_have_text("hello")
    await expect(ui.answers.last).to_contain_text(example.answer)
    await ui.is_idle()
    cards = ui.card("Weather")
    await expect(cards).to_have_count(0 if example.found is None else 1)
    if example.found is not None:
        await cards.click()
        shown = ui.page.get_by_text(example.found, exact=True).locator("visible=true")
        await expect(shown.first).to_be_visible()


async def test_each_example_answers_over_a2a(name: str, served: Served) -> None:
    message = {"messageId": name, "role": "ROLE_USER", "parts": [{"text": "hello"}]}
    body = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": message}}
    url = await served.url(name)
    async with httpx.AsyncClient(base_url=url, trust_env=False, timeout=PATIENCE) as client:
        response = await client.post("/a2a", json=body, headers={"A2A-Version": "1.0"})
    task = response.json()["result"]["task"]
    assert task["status"]["state"] == "TASK_STATE_COMPLETED"
    parts = [part for artifact in task["artifacts"] for part in artifact["parts"]]
    said = "".join(part.get("text", "") for part in parts)
    answer = EXAMPLES[name].answer
    assert said == answer or {"data": json.loads(answer)} in parts


async def test_every_example_is_seen() -> None:
    examples = {path.name for path in (ROOT / "examples").iterdir() if any(path.glob("*.py"))}
    assert examples == {*COMMANDS} == {*EXAMPLES} - {"fastagent"}
