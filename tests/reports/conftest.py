"""A server for each module, and one client of it; tests keep apart by their sessions."""

from collections.abc import AsyncIterator

import pytest

from tests.conftest import Server, own_database
from tests.server import Client, Serving, serving, short_bounds


@pytest.fixture(scope="module")
async def shared(embedded_server: Server) -> AsyncIterator[Serving]:
    """A server that is impatient with agents."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("app.wiring.Limits", short_bounds())
        async with own_database(embedded_server) as url, serving(url) as server:
            yield server


@pytest.fixture
async def client(shared: Serving) -> Client:
    return await shared.client()
