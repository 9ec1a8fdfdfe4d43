"""A server for each module, and callers of both versions; tests keep apart by their contexts."""

from collections.abc import AsyncIterator

import pytest

from tests.a2a.calling import Caller
from tests.conftest import Server, own_database
from tests.server import Client, Serving, serving


@pytest.fixture(scope="module")
async def shared(embedded_server: Server) -> AsyncIterator[Serving]:
    async with own_database(embedded_server) as url, serving(url) as server:
        yield server


@pytest.fixture
async def client(shared: Serving) -> Client:
    return await shared.client()


@pytest.fixture(params=["1.0", "0.3"])
def caller(request: pytest.FixtureRequest, client: Client) -> Caller:
    """A caller of each version in turn."""
    return Caller(client, request.param)


@pytest.fixture
def new_caller(client: Client) -> Caller:
    """A caller of 1.0."""
    return Caller(client)


@pytest.fixture
def old_caller(client: Client) -> Caller:
    """A caller of 0.3."""
    return Caller(client, "0.3")
