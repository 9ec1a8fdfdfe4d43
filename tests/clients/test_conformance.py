"""Every scenario of `clients/conformance.json`, lived through by each client over each transport.

Whatever happens on the way, a client ends with exactly the log's events: none missing, none twice, in order.
"""

from collections.abc import AsyncIterator
from itertools import pairwise

import pytest

from tests.clients.drivers import Job, Run
from tests.clients.network import Network, open_network
from tests.clients.scenarios import SESSION, Scenario, scenarios
from tests.clients.script import Script, open_script


@pytest.fixture(scope="module")
async def stage() -> AsyncIterator[tuple[Script, Network]]:
    """A scripted server behind a network that breaks."""
    async with open_script() as (script, port), open_network(port) as network:
        script.fault_of = network.fault_of
        yield script, network


CASES = [
    pytest.param(scenario, transport, id=f"{scenario.name} ({transport})")
    for scenario in scenarios()
    for transport in (("sse", "websocket") if scenario.do == "follow" else ("sse",))
]


@pytest.mark.parametrize(("scenario", "transport"), CASES)
async def test_a_client_ends_with_exactly_the_logs_events(
    stage: tuple[Script, Network], run: Run, scenario: Scenario, transport: str
) -> None:
    script, network = stage
    script.play(scenario)
    network.expect(scenario.faults)
    job = Job(
        network.url,
        SESSION,
        "websocket" if transport == "websocket" else "sse",
        scenario.do,
        scenario.after,
        abort_at="assistant_message_delta" if scenario.held else None,
    )
    result = await run(job)
    assert result.error == scenario.error
    assert result.events == scenario.expected
    assert result.states[-1] == "closed"
    assert all(before != after for before, after in pairwise(result.states))
    if scenario.pauses_ms and transport == "sse":
        longest = max(after - before for before, after in pairwise(network.began))
        assert longest * 1000 >= scenario.pauses_ms
    if scenario.do == "stream" and scenario.error is None:
        assert len(script.keys) == 1
