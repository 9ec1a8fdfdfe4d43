"""The console's model, compiled and run by Node."""

import json
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

from tests.browser.kit import unable
from tests.browser.processes import ROOT

WEB = ROOT / "web"
COMPILED = WEB / "build" / "web"


@cache
def compiled() -> tuple[str, Path]:
    """The program `node`, and the folder of the compiled model and its tests."""
    node = shutil.which("node")
    if node is None or not (WEB / "node_modules").is_dir():
        unable("there is no Node here, or the console's packages are not installed: run `make web`")
    compiler = WEB / "node_modules" / "typescript" / "bin" / "tsc"
    run = subprocess.run(
        [node, compiler, "-p", "tsconfig.test.json"], cwd=WEB, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stdout
    return node, COMPILED


def run_own_tests() -> tuple[int, str]:
    """Runs the model's own tests: the exit status, and what was said."""
    node, folder = compiled()
    files = sorted(folder.glob("test/*.test.js"))
    assert files
    run = subprocess.run([node, "--test", *files], capture_output=True, text=True, check=False)
    return run.returncode, run.stdout


def folded(*prefixes: list[dict[str, Any]]) -> list[Any]:
    """What the fold makes of each list of events."""
    node, folder = compiled()
    script = f"""
import {{ EMPTY, fold }} from {json.dumps(str(folder / "src" / "model" / "conversation.js"))};
let text = "";
for await (const chunk of process.stdin) text += chunk;
console.log(JSON.stringify(JSON.parse(text).map((events) => fold(EMPTY, events))));
"""
    run = subprocess.run(
        [node, "--input-type=module", "-e", script],
        input=json.dumps(prefixes),
        capture_output=True,
        text=True,
        check=True,
    )
    found: list[Any] = json.loads(run.stdout)
    return found
