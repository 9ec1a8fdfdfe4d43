"""The official SDKs of both generations as callers, each a program of its own: all see the same."""

import asyncio
import json
import os
import shutil
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from app.agents.contract import AgentEvent, Prompt, Scope
from tests.a2a.test_contract import asking
from tests.conftest import REQUIRE_ALL, Server, own_database
from tests.peers.install import HERE, is_installed, js_peer, python_peer
from tests.server import COMPLETED, said, serving

PATIENCE = 60.0
SEEN = {
    "stream": {"text": "Hello! I'm here to help.", "states": ["working", "completed"]},
    "resubscribe": {"text": "before after", "state": "completed"},
    "cancel": "canceled",
    "question": {
        "asked": "Which city?",
        "text": "Let me see. It rains in Aarhus.",
        "state": "completed",
    },
}


async def seen_by(url: str, program: Path | str, script: Path) -> Any:
    """What the peer saw of the server."""
    process = await asyncio.create_subprocess_exec(program, script, url, stdout=PIPE, stderr=PIPE)
    async with asyncio.timeout(PATIENCE):
        out, err = await process.communicate()
    assert process.returncode == 0, err.decode()
    return json.loads(out)


@pytest.fixture(scope="module")
async def url(embedded_server: Server) -> AsyncIterator[str]:
    """A server whose agent holds a turn until another one releases it."""
    released = asyncio.Event()

    async def hold(_: Scope, __: Prompt) -> AsyncIterator[AgentEvent]:
        yield said("before ")
        await released.wait()
        released.clear()
        yield said("after")
        yield COMPLETED

    async def release(_: Scope, __: Prompt) -> AsyncIterator[AgentEvent]:
        released.set()
        yield COMPLETED

    async with own_database(embedded_server) as database, serving(database) as server:
        server.agent.for_prompt |= {
            "hold": hold,
            "release": release,
            "ask": asking(),
            "Aarhus": asking(),
        }
        yield server.url


def needed(what: Path | str | None, hint: str) -> Path | str:
    """The peer, or a loud skip."""
    if what is None or (isinstance(what, Path) and not is_installed(what)):
        if os.environ.get(REQUIRE_ALL) == "1":
            pytest.fail(f"{REQUIRE_ALL}=1, but {hint}")
        pytest.skip(f"NOT TESTED: {hint}")
    return what


INSTALL = f"the peers are not installed: {Path(sys.executable).name} -m tests.peers.install"


async def test_python_0_3(url: str) -> None:
    python = needed(python_peer(), INSTALL)
    assert await seen_by(url, python, HERE / "python" / "client.py") == SEEN


@pytest.mark.parametrize("generation", ["0.3", "1"])
async def test_javascript(url: str, generation: str) -> None:
    folder = needed(js_peer(), INSTALL)
    node = needed(shutil.which("node"), "there is no node on this machine")
    script = Path(folder) / f"client-{generation}.mjs"  # modules are looked for beside the script
    shutil.copy(HERE / "js" / script.name, script)
    expected = SEEN | ({"list": [3]} if generation == "1" else {})
    assert await seen_by(url, node, script) == expected
