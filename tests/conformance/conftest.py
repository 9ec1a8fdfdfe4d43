import gc
from collections.abc import Iterator

import pytest


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(autouse=True, scope="module")
def probes_collect_what_is_new() -> Iterator[None]:
    """The kit collects garbage after each turn: in a process that other tests have filled, tenths of a second each."""
    gc.freeze()
    yield
    gc.unfreeze()
