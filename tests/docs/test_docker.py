"""The container's files, held without Docker: linted, and the same entry point run with the same environment."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

from compose_spec import PyCompose

ROOT = Path(__file__).parent.parent.parent
DOCKERFILE = (ROOT / "Dockerfile").read_text()


def test_the_dockerfile_passes_its_linter() -> None:
    linter = shutil.which("hadolint", path=str(Path(sys.executable).parent))
    assert linter is not None
    linted = subprocess.run(
        [linter, "--format", "json", str(ROOT / "Dockerfile")], capture_output=True, text=True, check=False
    )
    assert json.loads(linted.stdout) == []


def test_the_image_runs_as_an_ordinary_user() -> None:
    users = re.findall(r"^USER (.+)$", DOCKERFILE, re.MULTILINE)
    assert users
    assert users[-1] not in ("root", "0")


def test_the_compose_file_is_valid_and_published_on_the_loopback_address_only() -> None:
    text = re.sub(r"\$\{\w+:-(\w*)\}", r"\1", (ROOT / "docker-compose.yml").read_text())
    compose = PyCompose.from_yaml(text).to_dict()
    services = compose["services"]
    assert set(services) == {"database", "server"}
    assert "test" in services["database"]["healthcheck"]
    assert services["server"]["depends_on"]["database"]["condition"] == "service_healthy"
    assert all("127.0.0.1" in json.dumps(port) for port in services["server"]["ports"])


def test_the_compose_file_of_the_replicas_is_valid_and_published_on_the_loopback_address_only() -> None:
    directory = ROOT / "examples" / "replicas"
    text = re.sub(r"\$\{\w+:-(\w*)\}", r"\1", (directory / "docker-compose.yml").read_text())
    services = PyCompose.from_yaml(text).to_dict()["services"]
    replicas = {"replica-one", "replica-two"}
    assert set(services) == {"database", "proxy"} | replicas
    assert "test" in services["database"]["healthcheck"]
    for name in replicas:
        assert services[name]["depends_on"]["database"]["condition"] == "service_healthy"
        assert services[name]["build"] == "../.."
        assert not services[name].get("ports")
        assert f"server {name}:8888;" in (directory / "nginx.conf").read_text()
        # Its health is the image's own.
        assert services["proxy"]["depends_on"][name]["condition"] == "service_healthy"
    assert "HEALTHCHECK" in DOCKERFILE
    assert all("127.0.0.1" in json.dumps(port) for port in services["proxy"]["ports"])
    assert "./nginx.conf" in json.dumps(services["proxy"]["volumes"])


def test_what_the_image_copies_is_there() -> None:
    for line in re.findall(r"^COPY (.+)$", DOCKERFILE, re.MULTILINE):
        *sources, _ = line.split()
        for source in sources:
            assert (ROOT / source).exists(), source
