"""Pages as streams and as tasks, purely: whatever an agent does and wherever pages are cut, both tell the same."""

import json
from collections.abc import Sequence
from itertools import count
from typing import Any, get_args

import hypothesis.strategies as st
import pytest
from a2a.compat.v0_3 import types as v03
from a2a.types import a2a_pb2 as pb
from google.protobuf.json_format import ParseDict
from hypothesis import given, settings

from app.agents.contract import AgentEvent
from app.agents.translate import Translation
from app.dialects.a2a.frames import Frames
from app.dialects.a2a.reading import QUESTION_CLOSED, Fold, task_of
from app.dialects.a2a.spelling import (
    State,
    Version,
    clean,
    json_of,
    pieces_of,
    result,
    streamed_task,
    timestamp,
)
from app.dialects.a2a.stream import Wrapping
from app.events.canonical import encode
from app.events.ending import Ending
from app.events.envelope import Draft, Envelope, Placed, place
from app.events.metadata import metadata
from app.transport.sse import CHUNK
from app.turns.exchanges import Exchange
from app.turns.exchanges import State as ExchangeState
from tests.a2a.calling import accumulated, state_of, texts_of
from tests.server import Json

SESSION = "sess_" + "a" * 26
FIRST, SECOND, OTHER = (f"turn_{letter * 26}" for letter in "bcd")
TEXTS = st.text(st.characters(), min_size=1, max_size=6)
EVENTS = st.lists(
    st.one_of(
        st.builds(lambda delta: {"type": "text", "delta": delta}, TEXTS),
        st.builds(lambda delta: {"type": "thinking", "delta": delta}, TEXTS),
        st.just({"type": "tool_started", "id": "t", "name": "n", "args": {"messageId": ',"messageId":"'}}),
        st.just({"type": "tool_ended", "id": "t", "isError": False, "content": "x"}),
        st.just({"type": "retrying", "attempt": 1}),
    ),
    max_size=12,
)
ENDINGS: list[Ending] = [
    Ending.completed(),
    Ending.completed({"a": [1.5, None]}),
    Ending.completed(5),
    Ending.failed("no luck", code="rate_limited", is_recoverable=True),
    Ending.failed("", code="odd", is_recoverable=False),
    Ending.aborted(),
    Ending.interrupted(),
    Ending.completed(question="Which city?"),
]
VERSIONS: tuple[Version, ...] = ("1.0", "0.3")


def turn(
    turn_id: str,
    events: Sequence[AgentEvent] = (),
    ending: Ending | None = None,
    continues: str | None = None,
    content: Any = "hi",
) -> list[tuple[str | None, Draft]]:
    """What a turn writes."""
    translation = Translation(turn_id, "demo", continues=continues, clock=count(1000).__next__)
    drafts = translation.begin(content, {"a2a": {"messageId": f"m {turn_id}"}})
    for event in events:
        drafts += translation.take(event)
    drafts += translation.end(ending) if ending else []
    return [(turn_id, draft) for draft in drafts]


def placed(drafts: Sequence[tuple[str | None, Draft]], after: int = 1) -> list[Envelope]:
    return [
        place(SESSION, turn_id, [draft], Placed(after + n, n, 0, after + n + 1))[0]
        for n, (turn_id, draft) in enumerate(drafts)
    ]


def exchange(log: Sequence[Envelope], state: ExchangeState, last: str = FIRST) -> Exchange:
    return Exchange(FIRST, SESSION, last, log[0].place, log[-1].place, state, log[-1].timestamp)


def task(log: Sequence[Envelope], state: ExchangeState, version: Version = "1.0", last: str = FIRST) -> Json:
    fold = Fold(exchange(log, state, last), "context")
    fold.take(log)
    told: Json = json.loads(json_of(result(fold.task(), version)))
    return told


def told(log: Sequence[Envelope], frames: Frames, cuts: Sequence[int] = ()) -> tuple[list[Json], int | None]:
    """What is said of the log when its pages are cut at these numbers; and where it ends."""
    said: list[Json] = []
    at = 0
    for cut in [*sorted(cuts), len(log)]:
        spoken = frames(log[at:cut])
        said += map(json.loads, spoken.results)
        if spoken.end is not None:
            return said, spoken.end
        at = cut
    return said, None


def kinds(said: Sequence[Json], version: Version) -> list[tuple[str, Json]]:
    """The events, after the SDK has read each."""
    found = []
    for event in said:
        if version == "1.0":
            ParseDict(event, pb.StreamResponse())
            [(kind, body)] = event.items()
        else:
            v03.SendStreamingMessageSuccessResponse.model_validate(
                {"id": 1, "jsonrpc": "2.0", "result": event}
            )
            kind, body = event["kind"], event
        found.append((kind.replace("Update", "").replace("-update", ""), body))
    return found


@settings(max_examples=200)
@given(EVENTS, st.sampled_from(ENDINGS), st.sampled_from(VERSIONS), st.lists(st.integers(0, 40), max_size=4))
def test_a_stream_adds_up_to_the_task_wherever_its_pages_are_cut(
    events: list[AgentEvent], ending: Ending, version: Version, cuts: list[int]
) -> None:
    log = placed(turn(FIRST, events, ending))
    state: ExchangeState = "asking" if ending.question else ending.status
    frames = Frames(version, "context", FIRST, until_question=True)

    said, end = told(log, frames, [min(cut, len(log)) for cut in cuts])

    assert end == log[-1].place
    events_told = kinds(said, version)
    whole = task(log, state, version)
    text = "".join(event["delta"] for event in events if event["type"] == "text")
    expected = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    assert "".join(accumulated(events_told).values()) == expected
    assert texts_of(whole) == ([expected] if text else [])
    last = [body for kind, body in events_told if kind == "status"][-1]
    assert last["status"] == whole["status"]
    assert version == "1.0" or last["final"]
    data = [artifact for artifact in whole["artifacts"] if artifact["name"] == "data"]
    assert data == [
        body["artifact"] for _, body in events_told if body.get("artifact", {}).get("name") == "data"
    ]


@settings(max_examples=50)
@given(EVENTS, st.integers(0, 30), st.sampled_from(VERSIONS))
def test_a_task_and_what_follows_it_add_up(events: list[AgentEvent], cut: int, version: Version) -> None:
    """A subscriber sees what one that was there from the start has seen."""
    log = placed(turn(FIRST, events, Ending.completed()))
    cut = min(max(cut, 2), len(log) - 1)
    frames = Frames(version, "context", FIRST, until_question=False)
    snapshot = task(log[:cut], "running", version)

    said, _ = told(log[cut:], frames)

    from_start = accumulated(kinds(told(log, frames)[0], version))
    assert accumulated([("task", snapshot), *kinds(said, version)]) == from_start


def asked() -> list[tuple[str | None, Draft]]:
    return turn(FIRST, [{"type": "text", "delta": "Hm. "}], Ending.completed(question="Which city?"))


def test_a_subscription_stays_through_a_question_and_its_answer() -> None:
    answer = turn(SECOND, [{"type": "text", "delta": "Rain."}], Ending.completed(), continues=FIRST)
    log = placed([*asked(), *answer])
    for version in VERSIONS:
        said, end = told(log, Frames(version, "context", FIRST, until_question=False))
        assert end == log[-1].place
        events = kinds(said, version)
        assert [state_of(body) for kind, body in events if kind == "status"] == [
            "working", "input-required", "working", "completed",
        ]  # fmt: skip
        if version == "0.3":
            finals = [body["final"] for kind, body in events if kind == "status"]
            assert finals == [False, False, False, True]
        assert list(accumulated(events).values()) == ["Hm. ", "Rain."]
        assert told(log, Frames(version, "context", FIRST, until_question=True))[1] == len(asked()) + 1
    whole = task(log, "completed", last=SECOND)
    assert texts_of(whole) == ["Hm. ", "Rain."]
    assert [message["messageId"] for message in whole["history"]] == [
        f"m {FIRST}", f"evt_{'a' * 26}_{len(asked()) + 1}", f"m {SECOND}",
    ]  # fmt: skip


@pytest.mark.parametrize("how", ["closed", "passed over", "deleted"])
def test_a_question_that_nobody_will_answer_ends_the_task_canceled(how: str) -> None:
    closing = Draft(QUESTION_CLOSED, 9000, encode({"turnId": FIRST}), metadata("server"))
    foreign = Draft(QUESTION_CLOSED, 8000, encode({"turnId": OTHER}), metadata("server"))
    note = Draft("note", 8500, encode({}), metadata("client"))
    deletion = Draft("session_end", 9000, encode({}), metadata("server"))
    ends: dict[str, list[tuple[str | None, Draft]]] = {
        "closed": [(None, closing)],
        "passed over": turn(OTHER),
        "deleted": [(None, deletion)],
    }
    follows = [(None, foreign), (None, note), *ends[how]]
    log = placed([*asked(), *follows])

    said, end = told(log, Frames("1.0", "context", FIRST, until_question=False))

    assert state_of(kinds(said, "1.0")[-1][1]) == "canceled"
    assert end == len(asked()) + 4
    whole = task(log[: len(asked())], "aborted")
    assert state_of(whole) == "canceled"
    assert "message" not in whole["status"]
    assert [part["text"] for part in whole["history"][-1]["parts"]] == ["Which city?"]


def test_what_is_outside_of_the_task_is_not_told() -> None:
    log = placed([*turn(OTHER, [{"type": "text", "delta": "x"}], Ending.completed())])[1:]
    assert told(log, Frames("1.0", "context", FIRST, until_question=True)) == ([], None)
    assert task_of(placed([(None, Draft("note", 1, b"{}", b"{}"))])[0]) is None


def test_what_others_write_in_between_is_not_the_tasks() -> None:
    note = (None, Draft("note", 1, b"{}", metadata("client")))
    mine = turn(FIRST, [{"type": "text", "delta": "x"}], Ending.completed())
    with_note = task(placed([mine[0], note, *mine[1:]]), "completed")
    assert texts_of(with_note) == texts_of(task(placed(mine), "completed")) == ["x"]


def test_only_a_turn_that_continues_says_so() -> None:
    tricky = Draft("tool_call", 1, b"{}", metadata("agent", toolCallId='"continues"'))
    assert task_of(placed([(FIRST, tricky)])[0]) == FIRST
    continuing = Draft("tool_call", 1, b"{}", metadata("agent", continues=FIRST))
    assert task_of(placed([(SECOND, continuing)])[0]) == FIRST


def test_readers_of_the_same_task_share_what_was_made_of_a_page() -> None:
    one, two = (Frames("1.0", "context", FIRST, until_question=True) for _ in range(2))
    assert {one: "made"}[two] == "made"
    assert Frames("0.3", "context", FIRST, until_question=True) != one
    assert Frames("1.0", "context", FIRST, until_question=False) != one


def test_an_answer_of_10_000_deltas_is_one_text_part() -> None:
    log = placed(turn(FIRST, [{"type": "text", "delta": "x"}] * 10_000, Ending.completed()))
    for state, events in (("completed", log), ("running", log[:-2])):
        [artifact] = task(events, state)["artifacts"]  # type: ignore[arg-type]
        assert [len(part["text"]) for part in artifact["parts"]] == [10_000]


def test_a_running_task_has_its_answers_artifact_from_the_start() -> None:
    log = placed(turn(FIRST))
    running = task(log, "running")
    assert (state_of(running), texts_of(running)) == ("working", [""])
    assert task(placed(turn(FIRST, (), Ending.completed())), "completed")["artifacts"] == []


def test_images_and_texts_of_tarko_are_parts() -> None:
    content = [
        {"type": "text", "text": "look"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}},
        {"type": "image_url", "image_url": "data:image/gif;base64,aGk="},
    ]
    log = placed(turn(FIRST, content=content))
    new, old = (task(log, "running", version)["history"][0]["parts"] for version in VERSIONS)
    assert new == [
        {"text": "look"},
        {"raw": "aGk=", "mediaType": "image/png"},
        {"raw": "aGk=", "mediaType": "image/gif"},
    ]
    assert old[1] == {"kind": "file", "file": {"bytes": "aGk=", "mimeType": "image/png"}}


@pytest.mark.parametrize(
    ("sent", "told"),
    [
        (b'"\\ud800"', b'"\\ufffd"'),
        (b'"\\ud800\\ud801x"', b'"\\ufffd\\ufffdx"'),
        (b'"\\ud83d\\ude00"', b'"\\ud83d\\ude00"'),
        (b'"\\ude00\\ud83d"', b'"\\ufffd\\ufffd"'),
        (b'"\\\\ud800"', b'"\\\\ud800"'),
        (b'"\\\\\\ud800"', b'"\\\\\\ufffd"'),
        ('"é"'.encode(), '"é"'.encode()),
    ],
)
def test_a_lone_surrogate_is_replaced(sent: bytes, told: bytes) -> None:
    assert clean(sent) == told


def test_times_are_told_to_the_millisecond() -> None:
    assert timestamp(1_622_548_800_007) == "2021-06-01T12:00:00.007Z"


def test_a_history_is_cut_from_its_front() -> None:
    log = placed([*asked(), *turn(SECOND, (), Ending.completed(), continues=FIRST)])
    fold = Fold(exchange(log, "completed", SECOND), "context")
    fold.take(log)
    whole = fold.task()
    for length, found in ((None, 3), (0, 0), (1, 1), (9, 3)):
        assert len(result(whole, "1.0", history=length)["history"]) == found
    assert result(whole, "1.0", history=1)["history"][0]["messageId"] == f"m {SECOND}"
    assert streamed_task(whole, "0.3")["kind"] == "task"
    assert set(get_args(State)) >= {state_of(streamed_task(whole, "0.3"))}


@pytest.mark.parametrize("size", [0, 1, CHUNK, CHUNK + 1, 3 * CHUNK])
def test_a_result_in_pieces_is_the_same_frame(size: int) -> None:
    wrapping = Wrapping.of("é")
    result = [b"[", b"x" * size, b"]"]
    pieces = list(wrapping.pieces(result))
    assert b"".join(pieces) == wrapping.around((b"".join(result),))
    assert max(map(len, pieces)) <= CHUNK


def test_a_text_in_pieces_is_not_copied() -> None:
    texts = [b'"%d"' % n * 1000 for n in range(2)]
    pieces = pieces_of({"first": texts[0], "rest": [{"nul": "\0"}, texts[1]], "number": 1})
    assert all(any(piece is text for piece in pieces) for text in texts)
    assert b"".join(pieces) == b'{"first":%b,"rest":[{"nul":"\\u0000"},%b],"number":1}' % tuple(texts)


@pytest.mark.parametrize("odd", [2**70, "\ud800", [[[0]] * 3], {"deep": json.loads("[" * 199 + "]" * 199)}])
def test_an_answer_is_told_beside_whatever_else_the_log_keeps(odd: Any) -> None:
    """Also what the fast encoder refuses."""
    told = json_of({"text": b'"a\\ud83d\\ude00\\ud800"', "odd": odd, "line": "\u2028"})
    found = json.loads(told)
    assert found["text"] == "a😀\ufffd"
    assert found["odd"] == (odd if odd != "\ud800" else "\ufffd")
    assert b"\\u2028" in told
