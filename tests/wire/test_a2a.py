"""A2A on the wire is what the samples say, byte by byte, and what the SDK can read."""

import json

from a2a.compat.v0_3 import types as v03
from a2a.types import a2a_pb2 as pb
from google.protobuf.json_format import ParseDict

from tests.conftest import Server, own_database
from tests.server import serving
from tests.wire.a2a_recording import SAMPLES, record
from tests.wire.recording import written


async def test_six_turns_and_a_question_are_sent_as_the_samples_have_them(embedded_server: Server) -> None:
    async with own_database(embedded_server) as url, serving(url) as server:
        lines = await record(await server.client())

    assert written(lines).splitlines() == SAMPLES.read_text().splitlines()


def test_the_samples_say_where_they_come_from_and_have_all_turns() -> None:
    first, _, *lines = map(json.loads, SAMPLES.read_text().splitlines())

    assert "specification" in first["provenance"]
    for version in ("1.0", "0.3"):
        assert {line["turn"] for line in lines if line["version"] == version} == {
            "text", "thinking", "parallel tools", "failure", "abort", "crash", "question",
        }  # fmt: skip


def test_the_sdk_reads_every_event_of_the_samples() -> None:
    for line in map(json.loads, SAMPLES.read_text().splitlines()[2:]):
        for event in filter(None, line["body"].split("\n\n")):
            answer = json.loads(event.removeprefix("data: "))
            is_stream = event.startswith("data: ")
            if "error" in answer:
                continue
            if line["version"] == "0.3":
                model = v03.SendStreamingMessageSuccessResponse if is_stream else v03.GetTaskSuccessResponse
                model.model_validate(answer)
            else:
                ParseDict(answer["result"], pb.StreamResponse() if is_stream else pb.Task())


def test_the_sdk_reads_the_card() -> None:
    card = json.loads(json.loads(SAMPLES.read_text().splitlines()[1])["body"])
    ParseDict(card, pb.AgentCard(), ignore_unknown_fields=True)
    old = v03.AgentCard.model_validate(card)
    assert (old.protocol_version, old.preferred_transport) == ("0.3.0", "JSONRPC")
