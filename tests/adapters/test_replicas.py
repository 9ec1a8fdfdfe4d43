"""Any replica takes the next turn: two server processes on one database, each asked in turn by every adapter."""

from collections.abc import AsyncIterator

import pytest

from tests.adapters.brain import WEATHER
from tests.adapters.replicated import CONTINUED
from tests.conftest import Server, own_database
from tests.replicas import processes
from tests.replicas.processes import Replica, two_replicas

STARTS = 200.0  # all frameworks are imported first
pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
async def replicas(embedded_server: Server) -> AsyncIterator[tuple[Replica, Replica]]:
    agent = "tests.adapters.replicated:make"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(processes, "STARTS", STARTS)
        async with own_database(embedded_server) as url, two_replicas(url, agent=agent) as both:
            yield both


@pytest.mark.parametrize("subject", CONTINUED)
async def test_the_second_turn_knows_the_first_on_another_replica(
    subject: str, replicas: tuple[Replica, Replica]
) -> None:
    one, two = (replica.client for replica in replicas)
    session = await one.session()
    first = await one.query(session, f"{subject} weather")
    assert first.json()["response"] == f"Let me look. It is {WEATHER}.", first.text
    second = await two.query(session, f"{subject} history")
    shown = second.json()["response"]
    assert shown.startswith("I saw 2 prompts: ")
    for part in (f"user: {subject} weather", "assistant: Let me look.", f"tool: {WEATHER}", f"assistant: It is {WEATHER}."):  # fmt: skip
        assert part in shown
    third = await one.query(session, f"{subject} history")
    assert third.json()["response"].startswith("I saw 3 prompts: ")
