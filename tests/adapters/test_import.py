"""The server pays for no framework that it doesn't serve."""

import json
import subprocess
import sys
from typing import Any

MEASURE = """
import json, sys, time
began = time.process_time()
import app.main, app.cli, app.serving
{}
names = sorted(sys.modules)
print(json.dumps([len(sys.modules), time.process_time() - began, names]))
"""
ALL = "\n".join(
    f"import app.agents.adapters.frameworks.{name}"
    for name in (
        "anthropic", "google_adk", "langchain", "langgraph", "mcp_tools", "openai_agents", "pydantic_ai",
    )
)  # fmt: skip


def measured(more: str = "") -> Any:
    done = subprocess.run(
        [sys.executable, "-c", MEASURE.format(more)], capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout.splitlines()[-1])


def test_without_frameworks_it_is_under_six_tenths_of_the_modules_and_of_the_time() -> None:
    modules, seconds, names = measured()
    all_modules, all_seconds, _ = measured(ALL)
    assert modules < 0.6 * all_modules
    assert seconds < 0.6 * all_seconds
    assert not {
        "agents",
        "anthropic",
        "google.adk",
        "google.genai",
        "langchain_core",
        "langgraph",
        "mcp",
        "openai",
        "pydantic_ai",
    } & {*names}
