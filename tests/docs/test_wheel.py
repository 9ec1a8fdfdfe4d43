"""The wheel: built from the repository, installed into an environment of its own, it migrates and serves there.

Its dependencies are lent from this environment, so that the test needs no network.
"""

import signal
import subprocess
import sys
import sysconfig
import urllib.request
import venv
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.test_readme import environment_of, told_port
from tests.places import data_directory

WHERE = """
import app, app.postgres.migrations
print(app.__file__, app.postgres.migrations.config().get_main_option("script_location"))
"""
ROOT = Path(__file__).parent.parent.parent


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment elsewhere that has the wheel; returns the command."""
    place = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(place)],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    (wheel,) = place.glob("*.whl")
    environment = place / "environment"
    venv.create(environment, with_pip=False)
    (packages,) = environment.glob("lib/python*/site-packages")
    zipfile.ZipFile(wheel).extractall(packages)
    (packages / "lent.pth").write_text(sysconfig.get_path("purelib") + "\n")
    command = environment / "bin" / "tarko-server"
    command.write_text(
        f"#!{environment}/bin/python\nimport sys\nfrom app.cli import main\nsys.exit(main())\n"
    )
    command.chmod(0o755)
    return command


@pytest.fixture
def environment() -> Iterator[dict[str, str]]:
    """An environment that knows nothing of this repository."""
    with data_directory() as data:
        clean = environment_of(data)
        yield {name: value for name, value in clean.items() if not name.startswith("PYTHON")}


def test_the_wheel_migrates_and_serves_from_an_environment_elsewhere(
    installed: Path, environment: dict[str, str], tmp_path: Path
) -> None:
    migrated = subprocess.run(
        [installed, "migrate"], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    )
    assert "000" in migrated.stdout + migrated.stderr
    with subprocess.Popen(
        [installed, "serve"], cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            base = f"http://127.0.0.1:{told_port(process)}"
            with urllib.request.urlopen(f"{base}/", timeout=60) as page:
                assert b"/assets/" in page.read()
            query = urllib.request.Request(
                f"{base}/api/v1/oneshot/query",
                data=b'{"query": "hello"}',
                headers={"content-type": "application/json"},
            )
            with urllib.request.urlopen(query, timeout=60) as answer:
                assert b'"status":"completed"' in answer.read()
            chat = [str(installed), "chat", "--url", base]
            talked = subprocess.run(
                chat, cwd=tmp_path, input="hello\n", capture_output=True, text=True, check=True
            )
            assert talked.stdout.startswith("Hello!")
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(timeout=60)
    assert process.returncode == 0


def test_the_code_that_runs_is_the_wheels(installed: Path) -> None:
    python = installed.parent / "python"
    found = subprocess.run(
        [
            python,
            "-c",
            "import app, tarko_client, app.postgres.migrations as m; print(app.__file__, tarko_client.__file__, m.config().get_main_option('script_location'))",
        ],
        cwd="/",
        capture_output=True,
        text=True,
        check=True,
        env={},
    )
    places = found.stdout.split()
    assert len(places) == 3
    assert all(Path(place).is_relative_to(installed.parent.parent) for place in places)
