"""The console's build: it says clearly when there is no Node, and asks npm for nothing that is there."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import REQUIRE_ALL

ROOT = Path(__file__).parent.parent.parent
BUILD = ROOT / "web" / "build.py"
NO_NODE = 3


def build(what: str, path: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-I", BUILD, what],
        env={"PATH": str(path)},
        capture_output=True,
        text=True,
        check=False,
    )


def program(folder: Path, name: str, says: str, status: int = 0) -> None:
    file = folder / name
    file.write_text(f"#!/bin/sh\necho '{says}'\nexit {status}\n")
    file.chmod(0o755)


@pytest.mark.parametrize("found", ["nothing", "an old one"])
def test_without_a_node_that_is_new_enough_it_says_so(tmp_path: Path, found: str) -> None:
    if found == "an old one":
        program(tmp_path, "node", "v20.18.1")
        program(tmp_path, "npm", "10")
    tried = build("build", tmp_path)
    assert tried.returncode == NO_NODE
    assert "needs Node 20.19 or newer" in tried.stderr
    assert "Traceback" not in tried.stderr


def test_what_is_installed_is_not_asked_for_again(tmp_path: Path) -> None:
    if not (ROOT / "web" / "node_modules" / ".installed").is_file():
        if os.environ.get(REQUIRE_ALL) == "1":
            pytest.fail(f"{REQUIRE_ALL}=1, but what builds the console is not installed: run `make web`")
        pytest.skip("NOT TESTED: what builds the console is not installed here")
    program(tmp_path, "node", "v24.0.0")
    program(tmp_path, "npm", "no network", status=1)
    tried = build("check", tmp_path)
    assert (tried.returncode, tried.stderr) == (0, "")


def test_it_depends_on_exact_versions_and_keeps_no_lock_file() -> None:
    package = (ROOT / "web" / "package.json").read_text()
    assert "^" not in package
    assert "~" not in package
    assert (ROOT / "web" / ".npmrc").read_text().strip() == "package-lock=false"
    assert not list((ROOT / "web").glob("*lock*"))
