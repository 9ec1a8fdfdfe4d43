import asyncio
from collections.abc import Callable

import pytest


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
async def pass_time(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Lets so many seconds pass for the loop: what waits for less is over, and no test has to be quick before."""
    loop = asyncio.get_running_loop()
    now, passed = loop.time, 0.0

    def pass_time(seconds: float) -> None:
        nonlocal passed
        passed += seconds

    monkeypatch.setattr(loop, "time", lambda: now() + passed)
    return pass_time
