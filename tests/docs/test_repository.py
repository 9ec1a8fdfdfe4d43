"""What must hold of every file that is kept."""

import re
import subprocess
import tomllib
from importlib.metadata import requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parent.parent.parent
ADDRESS = re.compile(
    r"https?://[^\s\"']*(pypi|pythonhosted|npmjs|debian|githubusercontent)|https?://\S+\.(whl|tgz|tar\.gz)",
    re.I,
)
MACHINE_PATH = re.compile(r"/work/|/root/\.|/home/(?!tarko\b)\w+/")


def _kept() -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return [ROOT / name for name in listed.stdout.splitlines() if (ROOT / name).is_file()]


@pytest.mark.parametrize("pattern", [ADDRESS, MACHINE_PATH], ids=["a download address", "a machine's path"])
def test_no_file_holds(pattern: re.Pattern[str]) -> None:
    found = []
    for path in _kept():
        if path == Path(__file__):
            continue
        text = path.read_bytes().decode("utf-8", "replace")
        found += [f"{path.relative_to(ROOT)}: {match[0]}" for match in pattern.finditer(text)]
    assert found == []


def test_every_direct_dependency_is_pinned_and_has_its_reason() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    pinned = {
        line.split("==")[0].lower().replace("_", "-")
        for line in (ROOT / "constraints.txt").read_text().splitlines()
        if "==" in line
    }
    reasons = (ROOT / "docs" / "dependencies.md").read_text()
    for requirement in project["dependencies"] + project["optional-dependencies"]["dev"]:
        name = re.split(r"[\[<>=;~ ]", requirement)[0].lower()
        if "sys_platform" not in requirement:
            assert name in pinned, name
        assert name in reasons or name.startswith("types-"), name


def test_every_extra_is_pinned_and_has_its_reason() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    pinned = (ROOT / "constraints-adapters.txt").read_text().lower()
    reasons = (ROOT / "docs" / "dependencies.md").read_text()
    for extra, requirements in project["optional-dependencies"].items():
        for requirement in requirements if extra not in ("all", "dev") else ():
            name = re.split(r"[\[<>=;~ ]", requirement)[0].lower()
            assert f"\n{name}==" in pinned, name
            assert f"| {extra} | {name} |" in reasons, extra
    everything = re.split(r"[\[\],]", project["optional-dependencies"]["all"][0])[1:-1]
    assert {*everything} == {*project["optional-dependencies"]} - {"all", "dev"}


def test_the_base_install_pulls_no_framework() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    frameworks = {
        canonicalize_name(Requirement(each).name)
        for extra, requirements in project["optional-dependencies"].items()
        if extra not in ("all", "dev", "tracing")
        for each in requirements
    }
    pulled = _pulled(project["dependencies"])
    assert {"fastapi", "starlette"} <= pulled  # the walk goes on behind what is named
    assert len(frameworks) >= 7
    assert pulled & frameworks == set()


def _pulled(requirements: list[str]) -> set[str]:
    """The names of these distributions and of all that they require, as they are installed here."""
    left = [Requirement(each) for each in requirements]
    seen: set[tuple[str, frozenset[str]]] = set()
    while left:
        requirement = left.pop()
        found = canonicalize_name(requirement.name), frozenset(requirement.extras)
        if found in seen:
            continue
        seen.add(found)
        for each in map(Requirement, requires(found[0]) or []):
            extras = found[1] or {""}
            if each.marker is None or any(each.marker.evaluate({"extra": extra}) for extra in extras):
                left.append(each)
    return {name for name, _ in seen}


def test_the_changelog_and_the_package_agree_on_what_is_released() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    changelog = (ROOT / "CHANGELOG.md").read_text()
    assert "## Unreleased" in changelog or f"## {project['version']}" in changelog
