"""The clients as packages: made here, installed into an empty directory without any index, and used there."""

import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clients.drivers import TYPESCRIPT, node
from tests.commands.scripted_server import SESSION, ScriptedServer, event, frame, opening, streams

PYTHON = TYPESCRIPT.parent / "python"
EVENTS = (event(1, "session_start"), event(2, "session_end"))
SCRIPT_PY = """
import sys, tarko_client
with tarko_client.Client(sys.argv[1]) as client:
    print(tarko_client.__file__, *[event.type for event in client.session(sys.argv[2]).follow()])
"""
SCRIPT_JS = """
import { Client } from "tarko-client";
const types = [];
for await (const { type } of new Client({ url: process.argv[2] }).session(process.argv[3]).follow()) types.push(type);
console.log(import.meta.resolve("tarko-client"), ...types);
"""
SCRIPT_TS = """
import { Client, isEvent } from "tarko-client";
import type { AgentEvent, ConnectionState } from "tarko-client";
export async function told(onState: (state: ConnectionState) => void): Promise<number> {
  for await (const event of new Client({ url: "http://a" }).session("s").follow({ onState })) {
    const same: AgentEvent = event;
    if (isEvent(same, "tool_result")) return same.data.elapsedMs;
  }
  return 0;
}
"""


@pytest.fixture
def url() -> Iterator[str]:
    """A server with a session of two events."""
    with ScriptedServer() as server:
        server.script("/api/v1/sessions/events/stream", streams(opening(), *map(frame, EVENTS)))
        yield server.url


def said(*command: str | Path, cwd: Path) -> list[str]:
    done = subprocess.run(command, cwd=cwd, check=True, capture_output=True, text=True, timeout=60)
    return done.stdout.split()


def test_the_python_client_is_a_wheel_of_its_own(url: str, tmp_path: Path) -> None:
    source = tmp_path / "source"
    shutil.copytree(PYTHON, source)
    said(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", tmp_path, cwd=source)
    (wheel,) = tmp_path.glob("tarko_client-*-py3-none-any.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert "tarko_client/py.typed" in names
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in names)
    assert not any(name.startswith("app/") for name in names)
    environment = tmp_path / "environment"
    venv.create(environment, with_pip=False)
    (packages,) = environment.glob("lib/python*/site-packages")
    zipfile.ZipFile(wheel).extractall(packages)
    (packages / "lent.pth").write_text(
        sysconfig.get_path("purelib") + "\n"
    )  # its dependencies, without an index
    place, *types = said(environment / "bin" / "python", "-c", SCRIPT_PY, url, SESSION, cwd=tmp_path)
    assert Path(place).is_relative_to(environment)
    assert types == ["session_start", "session_end"]


def test_the_typescript_client_is_a_package_that_needs_nothing(url: str, tmp_path: Path) -> None:
    program = node()
    npm = Path(program).with_name("npm")
    source, project = tmp_path / "source", tmp_path / "project"
    shutil.copytree(TYPESCRIPT, source, ignore=shutil.ignore_patterns("dist", "build"), symlinks=True)
    packed = said(npm, "pack", "--silent", "--pack-destination", tmp_path, cwd=source)[-1]
    project.mkdir()
    (project / "package.json").write_text('{"type": "module"}')
    said(npm, "install", "--offline", "--no-package-lock", tmp_path / packed, cwd=project)
    assert [each.name for each in (project / "node_modules").iterdir() if each.name[0] != "."] == [
        "tarko-client"
    ]
    assert (project / "node_modules" / "tarko-client" / "LICENSE").exists()
    (project / "follow.js").write_text(SCRIPT_JS)
    place, *types = said(program, "follow.js", url, SESSION, cwd=project)
    assert place.startswith(project.as_uri())
    assert types == ["session_start", "session_end"]
    (project / "typed.ts").write_text(SCRIPT_TS)
    compiler = TYPESCRIPT / "node_modules" / ".bin" / "tsc"
    flags = (
        "--strict",
        "--noEmit",
        "--module",
        "nodenext",
        "--target",
        "es2022",
        "--lib",
        "es2022,dom",
        "--types",
        "",
    )
    said(compiler, *flags, "typed.ts", cwd=project)


def test_its_own_tests_pass(tmp_path: Path) -> None:
    program = node()
    source = tmp_path / "source"
    shutil.copytree(TYPESCRIPT, source, ignore=shutil.ignore_patterns("dist", "build"), symlinks=True)
    done = subprocess.run(
        [Path(program).with_name("npm"), "test"], cwd=source, capture_output=True, text=True, timeout=100
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_they_come_under_the_license_of_the_server() -> None:
    clients = TYPESCRIPT.parent
    license_of_all = (clients.parent / "LICENSE").read_text()
    for package in (TYPESCRIPT, PYTHON):
        assert (package / "LICENSE").read_text() == license_of_all


def test_no_lock_file_and_no_range_is_kept() -> None:
    for package in (TYPESCRIPT, TYPESCRIPT.parents[1] / "examples" / "react"):
        assert (package / ".npmrc").read_text() == "package-lock=false\n"
        assert "^" not in (package / "package.json").read_text()
        assert not (package / "package-lock.json").exists()
