"""The guide's commands, run as they stand: each example is served by its own process, and answers."""

import asyncio
import json
import os
import re
import sys
import tomllib
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.conftest import Server, own_database
from tests.replicas.processes import ADDRESS, STARTS
from tests.server import PATIENCE, soon

pytestmark = pytest.mark.timeout(300)

ROOT = Path(__file__).parents[2]
GUIDE = (ROOT / "docs" / "frameworks.md").read_text()
COMMANDS = re.findall(r"^cd examples/(\w+) && (tarko-server serve \S+)$", GUIDE, re.MULTILINE)
ANSWERS = {
    "function": "hello - after 0 earlier messages",
    "langgraph": "The weather: 11 degrees in Aarhus.",
    "langchain": "Hello from the chain.",
    "pydantic_ai": '{"weather":"11 degrees in a"}',
    "openai_agents": "It is 11 degrees.",
    "google_adk": "You said: hello",
    "anthropic": "Hello from no network.",
}


@pytest.fixture(scope="module")
async def served(embedded_server: Server) -> AsyncIterator[dict[str, str]]:
    """The addresses of all examples' servers. They start two at a time: each imports a whole framework."""
    turns = asyncio.Semaphore(2)
    async with AsyncExitStack() as stack:
        url = await stack.enter_async_context(own_database(embedded_server))

        async def start(example: str, command: str) -> str:
            async with turns:
                return await _started(stack, example, command, url)

        started = [start(example, command) for example, command in COMMANDS]
        yield dict(zip(dict(COMMANDS), await asyncio.gather(*started), strict=True))


async def _started(stack: AsyncExitStack, example: str, command: str, database: str) -> str:
    bin_directory = str(Path(sys.executable).parent)
    environment = {
        **os.environ, "PATH": f"{bin_directory}:{os.environ['PATH']}", "TARKO_PORT": "0",
        "TARKO_DATABASE_URL": database, "TARKO_DRAIN_GRACE": "1", "PYTHONDONTWRITEBYTECODE": "1",
    }  # fmt: skip
    process = await asyncio.create_subprocess_exec(
        *command.split(), cwd=ROOT / "examples" / example, env=environment, stdout=PIPE
    )

    async def ended() -> None:
        if process.returncode is None:
            process.kill()
        await soon(process.communicate())

    stack.push_async_callback(ended)
    assert process.stdout is not None
    async with asyncio.timeout(STARTS):
        async for line in process.stdout:
            if found := ADDRESS.search(line):
                return f"http://127.0.0.1:{int(found[1])}"
    raise AssertionError(f"{example} did not start")


@pytest.mark.parametrize("example", ANSWERS)
async def test_each_example_answers(example: str, served: dict[str, str]) -> None:
    [command] = re.findall(r"^curl -s http://127.0.0.1:8888(\S+) .* -d '(.*)'$", GUIDE, re.MULTILINE)
    path, body = command
    async with httpx.AsyncClient(base_url=served[example], trust_env=False, timeout=PATIENCE) as client:
        response = await client.post(path, json=json.loads(body))
    answer: dict[str, Any] = response.json()
    assert (response.status_code, answer.get("response")) == (200, ANSWERS[example]), response.text


@pytest.mark.parametrize("example", ANSWERS)
async def test_each_example_answers_over_a2a(example: str, served: dict[str, str]) -> None:
    message = {"messageId": example, "role": "ROLE_USER", "parts": [{"text": "hello"}]}
    body = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": message}}
    async with httpx.AsyncClient(base_url=served[example], trust_env=False, timeout=PATIENCE) as client:
        response = await client.post("/a2a", json=body, headers={"A2A-Version": "1.0"})
    task = response.json()["result"]["task"]
    assert task["status"]["state"] == "TASK_STATE_COMPLETED"
    parts = [part for artifact in task["artifacts"] for part in artifact["parts"]]
    said = "".join(part.get("text", "") for part in parts)
    assert said == ANSWERS[example] or {"data": json.loads(ANSWERS[example])} in parts


def test_the_guide_names_every_example_and_every_extra() -> None:
    examples = {path.name for path in (ROOT / "examples").iterdir() if any(path.glob("*.py"))}
    assert examples == {example for example, _ in COMMANDS} | {"mcp"}
    assert set(ANSWERS) == {example for example, _ in COMMANDS}
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    named = set(re.findall(r"tarko-server\[([\w-]+)\]", GUIDE))
    assert named == set(extras) - {"dev", "all", "tracing"}


def test_the_guides_versions_are_those_that_are_tested() -> None:
    pinned = (ROOT / "constraints-adapters.txt").read_text()
    table = GUIDE.partition("## Versions")[2]
    found = re.findall(r"([\w-]+) (\d+\.\d+\.\d+)", table)
    assert len(found) >= 8
    for name, version in found:
        assert f"\n{name}=={version}\n" in pinned
