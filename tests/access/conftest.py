"""What the tests of the gate, the login and the body limit share."""

import pytest


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"
