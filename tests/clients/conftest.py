"""The clients under test, one at a time."""

from collections.abc import AsyncIterator

import pytest

from tests.clients import drivers
from tests.clients.drivers import Run


@pytest.fixture(scope="module")
async def typescript(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Run]:
    async with drivers.typescript(tmp_path_factory.mktemp("typescript")) as run:
        yield run


@pytest.fixture(params=["blocking", "asynchronous", "typescript"])
def run(request: pytest.FixtureRequest) -> Run:
    """Each client in turn."""
    if request.param == "typescript":
        found: Run = request.getfixturevalue("typescript")
        return found
    return {"blocking": drivers.blocking, "asynchronous": drivers.asynchronous}[request.param]
