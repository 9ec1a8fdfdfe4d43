"""Each dialect on the wire is what its samples say, byte by byte."""

import json
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from tests.conftest import Server, own_database
from tests.server import Client, Json, serving
from tests.wire.recording import FLAT_SAMPLES, SAMPLES, record, record_flat, written

DIALECTS = [pytest.param(SAMPLES, record, id="tarko"), pytest.param(FLAT_SAMPLES, record_flat, id="tarko_ui")]


@pytest.mark.parametrize(("samples", "recorded"), DIALECTS)
async def test_six_turns_are_sent_as_the_samples_have_them(
    embedded_server: Server, samples: Path, recorded: Callable[[Client], Awaitable[list[Json]]]
) -> None:
    async with own_database(embedded_server) as url, serving(url) as server:
        lines = await recorded(await server.client())

    assert written(lines).splitlines() == _kept(samples)


def _kept(samples: Path) -> list[str]:
    return samples.read_text().splitlines()


@pytest.mark.parametrize(("samples", "source"), [(SAMPLES, "docs"), (FLAT_SAMPLES, "runtime")])
def test_the_samples_say_where_they_come_from_and_have_all_six_turns(samples: Path, source: str) -> None:
    first, *lines = map(json.loads, _kept(samples))

    assert source in first["provenance"]
    assert {line["turn"] for line in lines} == {
        "text", "thinking", "parallel tools", "failure", "abort", "crash",
    }  # fmt: skip
