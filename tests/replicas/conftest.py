"""Two replicas for each module; tests keep apart by their sessions."""

from collections.abc import AsyncIterator

import pytest

from tests.conftest import Server, own_database
from tests.replicas.processes import Pair, pair_of_replicas


@pytest.fixture(scope="module")
async def pair(embedded_server: Server) -> AsyncIterator[Pair]:
    async with own_database(embedded_server) as url, pair_of_replicas(url) as found:
        yield found
