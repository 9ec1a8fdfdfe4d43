"""Our driver passes the kit; each mutation of it is caught."""

import asyncio
import importlib.util
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

import pytest

from app.agents import driver
from app.agents.contract import Agent, Prompt, Scope
from app.conformance.caller import examine_caller
from app.conformance.host import Hosted, examine_host
from app.conformance.ours import collecting, driver_host
from app.conformance.playing import Limits
from app.conformance.report import Verdict
from app.conformance.statements import CALLER, HOST, named

SHORT = Limits(patience=1.5, stop=0.5, settle=0.1, quiet=0.05)
LONG = Limits(patience=60, stop=15, settle=15, quiet=0.05)


async def test_our_driver_passes() -> None:
    report = await examine_host(driver_host(), limits=LONG)
    assert set(report.verdicts().values()) == {Verdict.PASS}, report


async def test_our_buffered_reading_passes() -> None:
    report = await examine_caller(collecting, limits=LONG)
    assert set(report.verdicts().values()) == {Verdict.PASS}, report


async def test_what_a_host_leaves_behind_is_found() -> None:
    left: list[asyncio.Task[None]] = []

    def leaves_a_task(agent: Agent, scope: Scope, prompt: Prompt) -> Hosted:
        left.append(asyncio.create_task(asyncio.sleep(3600), name="left by the host"))
        return driver_host()(agent, scope, prompt)

    (finding,) = (await examine_host(leaves_a_task, [named(HOST, "H1")], limits=SHORT)).failures
    assert finding.evidence.endswith("left behind: 1 task (left by the host)")
    for task in left:
        task.cancel()


SOURCE = Path(driver.__file__).read_text()
MUTATIONS = {
    "an ending may be told twice": ("        if self.has_ended:\n            return\n", "", {"H1"}),
    "the iterator is not closed": ("                await aclose()\n", "                pass\n", {"C3"}),
    "a stream without a terminal has completed": (
        "self._settle(NO_TERMINAL)",
        "self._settle(outcome_of({'type': 'completed'}, 'completed'))",
        {"C2", "H1"},
    ),
    "an event that came after the stop is passed on": (
        "if self._stopping or not isinstance(kind, str) or",
        "if not isinstance(kind, str) or",
        {"H5"},
    ),
    "what comes after the stop decides": (
        "        if self._stopping:\n            self._settle(Cancelled())\n        elif is_terminal:",
        "        if is_terminal:",
        {"H5"},
    ),
    "the agent is not asked once more": ("        if rest is _Rest.TAIL:\n", "        if False:\n", {"H6"}),
    "an agent is never given up on": (
        "        if not pump.done():\n            self._abandon(pump)",
        "        await asyncio.wait({pump})",
        {"H4"},
    ),
    "one that is given up on has no outcome": (
        "        self._settle(Cancelled())\n        self._over.set()\n\n    def _settle",
        "        self._over.set()\n\n    def _settle",
        {"H4"},
    ),
    "the call has a task of its own": (
        "self._agent.invoke(self._scope, self._prompt)\n",
        "await asyncio.ensure_future(_calling(self._agent.invoke, self._scope, self._prompt))\n",
        {"H3"},
    ),
    "the close has a task of its own": (
        "                await aclose()\n",
        "                await asyncio.ensure_future(aclose())\n",
        {"H3"},
    ),
    "each step has a task of its own": (
        "event = await step()",
        "event = await asyncio.ensure_future(_awaited(step()))",
        {"H3"},
    ),
    "the loop is never let go": (
        "await asyncio.sleep(0)\n        self._settle",
        "pass\n        self._settle",
        {"H7"},
    ),
}


@pytest.mark.parametrize("mutation", MUTATIONS)
@pytest.mark.filterwarnings("ignore")
async def test_each_mutation_of_our_driver_is_caught(mutation: str) -> None:
    before, after, expected = MUTATIONS[mutation]
    source = SOURCE
    assert source.count(before) == 1, f"the driver has changed: write {mutation!r} anew"
    with _module(source.replace(before, after) + _AWAITED) as mutant:
        statements = [statement for statement in (*CALLER, *HOST) if statement.id in expected]
        report = await examine_host(driver_host(mutant), statements, limits=SHORT)
    assert set(report.verdicts().values()) == {Verdict.FAIL}, report


_AWAITED = """

async def _awaited(step):
    return await step

async def _calling(function, *arguments):
    return function(*arguments)
"""


@contextmanager
def _module(source: str) -> Iterator[ModuleType]:
    spec = importlib.util.spec_from_loader("mutated_driver", loader=None)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["mutated_driver"] = module
    try:
        exec(compile(source, "mutated_driver.py", "exec"), module.__dict__)  # noqa: S102 - our own source
        yield module
    finally:
        del sys.modules["mutated_driver"]
