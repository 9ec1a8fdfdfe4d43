"""Installs the peers that cannot live in the tests' own environment: `python -m tests.peers.install`.

Each gets a folder under `.peers`, named after what it was made of, so it is made once and made anew when that changes.
"""

import hashlib
import shutil
import subprocess
import venv
from pathlib import Path

HERE = Path(__file__).parent
CACHE = HERE.parent.parent / ".peers"


def python_peer() -> Path:
    """The interpreter of the environment with the SDK of 0.3."""
    return _folder("python", HERE / "python" / "requirements.txt") / "bin" / "python"


def new_python_peer() -> Path:
    """The interpreter of the environment with the SDK of 1.0 as a server, which brings a server library of its own."""
    return _folder("python-1", HERE / "python-1" / "requirements.txt") / "bin" / "python"


def js_peer() -> Path:
    """The folder with both generations of the JavaScript SDK."""
    return _folder("js", HERE / "js" / "package.json")


def is_installed(peer: Path) -> bool:
    """Whether the peer was installed to its end."""
    return any((folder / "complete").exists() for folder in (peer, *peer.parents) if CACHE in folder.parents)


def _folder(name: str, made_of: Path) -> Path:
    return CACHE / f"{name}-{hashlib.sha256(made_of.read_bytes()).hexdigest()[:12]}"


def install() -> None:
    """Install what is missing."""
    _install_python(python_peer(), HERE / "python" / "requirements.txt")
    _install_python(new_python_peer(), HERE / "python-1" / "requirements.txt")
    folder = js_peer()
    if not is_installed(folder):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        shutil.copy(HERE / "js" / "package.json", folder)
        npm = ["npm", "install", "--no-package-lock", "--no-audit", "--no-fund", "--silent"]
        subprocess.run(npm, cwd=folder, check=True)
        (folder / "complete").touch()


def _install_python(python: Path, requirements: Path) -> None:
    folder = python.parents[1]
    if is_installed(folder):
        return
    shutil.rmtree(folder, ignore_errors=True)
    venv.create(folder, with_pip=True)
    constraints = (HERE.parent.parent / "constraints.txt").read_text().splitlines()
    shared = [line for line in constraints if not line.lower().startswith("a2a-sdk")]
    (folder / "constraints.txt").write_text("\n".join(shared))
    pip = [str(python), "-m", "pip", "--disable-pip-version-check", "--quiet", "install"]
    subprocess.run([*pip, "-r", str(requirements), "-c", str(folder / "constraints.txt")], check=True)
    (folder / "complete").touch()


if __name__ == "__main__":
    install()
