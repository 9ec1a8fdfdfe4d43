"""The Tarko dialect on the wire is what the samples say, byte by byte."""

import json

from tests.conftest import Server, own_database
from tests.server import serving
from tests.wire.recording import SAMPLES, record, written


async def test_six_turns_are_sent_as_the_samples_have_them(embedded_server: Server) -> None:
    async with own_database(embedded_server) as url, serving(url) as server:
        lines = await record(await server.client())

    assert written(lines).splitlines() == SAMPLES.read_text().splitlines()


def test_the_samples_say_where_they_come_from_and_have_all_six_turns() -> None:
    first, *lines = map(json.loads, SAMPLES.read_text().splitlines())

    assert "docs" in first["provenance"]
    assert {line["turn"] for line in lines} == {
        "text", "thinking", "parallel tools", "failure", "abort", "crash",
    }  # fmt: skip
