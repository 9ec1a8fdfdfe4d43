"""The pure parts of the remote A2A agent: cards, addresses, replies in both spellings, and what is told of them."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.agents.adapters import pieces
from app.agents.adapters.a2a.card import Endpoint, card_urls, endpoint_of, is_card, speaks_for, without_card
from app.agents.adapters.a2a.failures import NotA2A, WrongVersion
from app.agents.adapters.a2a.fold import TaskFold
from app.agents.adapters.a2a.known import Known, remembered
from app.agents.adapters.a2a.told import Told, recalled
from app.agents.adapters.a2a.wire import Content, Data, File, Message, StatusUpdate, Task, listed_tasks, reply
from app.agents.adapters.remote_failures import BadRemoteEvent, RemoteFailure
from app.agents.contract import AgentEvent
from app.agents.translate import MAX_EVENT

HOST = "http://agent.example"


def new_card(*interfaces: Any, **changes: Any) -> dict[str, Any]:
    listed = [
        {"url": url, "protocolBinding": "JSONRPC", "protocolVersion": version} for url, version in interfaces
    ]
    return {"name": "a", "supportedInterfaces": listed, "capabilities": {"streaming": True}} | changes


def old_card(url: str | None = f"{HOST}/a2a", **changes: Any) -> dict[str, Any]:
    card = {"name": "a", "protocolVersion": "0.3.0", "capabilities": {"streaming": True}, "url": url}
    return {key: value for key, value in (card | changes).items() if value is not None}


# ── cards ────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("address", "urls"),
    [
        (f"{HOST}/c/card.json?x=1", [f"{HOST}/c/card.json?x=1"]),
        (HOST, [f"{HOST}/.well-known/agent-card.json", f"{HOST}/.well-known/agent.json"]),
        (
            f"{HOST}/a/b/?x=1",
            [
                f"{HOST}/a/b/.well-known/agent-card.json",
                f"{HOST}/a/b/.well-known/agent.json",
                f"{HOST}/.well-known/agent-card.json",
                f"{HOST}/.well-known/agent.json",
            ],
        ),
    ],
)
def test_a_card_is_looked_for_under_the_agent_and_at_the_root(address: str, urls: list[str]) -> None:
    assert card_urls(address) == urls


@pytest.mark.parametrize(
    ("card", "endpoint"),
    [
        (
            new_card((f"{HOST}/old", "0.3"), (f"{HOST}/new", "1.0")),
            Endpoint(f"{HOST}/new", "1.0", streams=True),
        ),
        (new_card((f"{HOST}/old", "0.3.0")), Endpoint(f"{HOST}/old", "0.3", streams=True)),
        (new_card((f"{HOST}/x", "")), Endpoint(f"{HOST}/x", "1.0", streams=True)),
        (new_card((f"{HOST}/x", "1.1")), Endpoint(f"{HOST}/x", "1.0", streams=True)),
        (new_card((f"{HOST}/1", "1.0"), (f"{HOST}/2", "1.0")), Endpoint(f"{HOST}/1", "1.0", streams=True)),
        (new_card(("x/y", "1.0")), Endpoint(f"{HOST}/x/y", "1.0", streams=True)),
        (new_card((f"{HOST}:80/x?k=v", "1.0")), Endpoint(f"{HOST}/x?k=v", "1.0", streams=True)),
        (
            new_card(("http://other.example/x", "1.0")),
            Endpoint("http://other.example/x", "1.0", streams=True, is_strange=True),
        ),
        (
            new_card((f"{HOST}:81/x", "1.0")),
            Endpoint(f"{HOST}:81/x", "1.0", streams=True, is_strange=True),
        ),
        (old_card(), Endpoint(f"{HOST}/a2a", "0.3", streams=True)),
        (old_card(protocolVersion="0.2.6"), Endpoint(f"{HOST}/a2a", "0.3", streams=True)),
        (old_card(protocolVersion=None), Endpoint(f"{HOST}/a2a", "0.3", streams=True)),
        (old_card(url=None), Endpoint(HOST, "0.3", streams=True)),
        (old_card(capabilities=None), Endpoint(f"{HOST}/a2a", "0.3", streams=False)),
        (old_card(capabilities={"streaming": "yes"}), Endpoint(f"{HOST}/a2a", "0.3", streams=False)),
        (
            old_card(
                preferredTransport="GRPC",
                additionalInterfaces=[
                    {"url": "x", "transport": "HTTP+JSON"},
                    {"url": "/rpc", "transport": "JSONRPC"},
                ],
            ),
            Endpoint(f"{HOST}/rpc", "0.3", streams=True),
        ),
        (
            new_card((f"{HOST}/new", "1.0"), url=f"{HOST}/old", protocolVersion="0.3.0"),
            Endpoint(f"{HOST}/new", "1.0", streams=True),
        ),
        (
            old_card(capabilities={"extensions": [3, {"uri": "u"}, {"uri": "u", "required": False}]}),
            Endpoint(f"{HOST}/a2a", "0.3", streams=False),
        ),
    ],
)
def test_the_newest_interface_that_both_know_is_taken(card: Any, endpoint: Endpoint) -> None:
    assert endpoint_of(card, HOST) == endpoint


def test_a_version_can_be_asked_for() -> None:
    card = new_card((f"{HOST}/new", "1.0"), (f"{HOST}/old", "0.3"))
    assert endpoint_of(card, HOST, "0.3").url == f"{HOST}/old"


@pytest.mark.parametrize("named", ["http://localhost:9/x", "http://0.0.0.0:9/x", "http://[::1]:9/x"])
def test_the_names_of_this_machine_are_one_host(named: str) -> None:
    assert endpoint_of(new_card((named, "1.0")), "http://127.0.0.1:9") == Endpoint(
        "http://127.0.0.1:9/x", "1.0", streams=True
    )
    assert endpoint_of(new_card((named, "1.0")), HOST).is_strange


@pytest.mark.parametrize(
    "named", ["https://agent:9/x", "http://agent:10/x", "http://agent/x", "http://other:9/x"]
)
def test_another_scheme_port_or_host_is_a_strangers(named: str) -> None:
    assert endpoint_of(new_card((named, "1.0")), "http://agent:9").is_strange


@pytest.mark.parametrize(
    ("card", "address", "error", "code"),
    [
        (new_card(), HOST, NotA2A, "not_a2a"),
        (new_card(supportedInterfaces=[3, {"protocolBinding": "GRPC"}]), HOST, NotA2A, "not_a2a"),
        (new_card((HOST, "2.0"), (HOST, "0.1")), HOST, WrongVersion, "remote_version_unsupported"),
        (new_card(("gopher://x", "1.0")), HOST, NotA2A, "not_a2a"),
        (new_card(("http://u:p@agent.example/", "1.0")), HOST, NotA2A, "not_a2a"),
        (new_card(("http://x:port", "1.0")), HOST, NotA2A, "not_a2a"),
        (old_card(url=None), f"{HOST}/card.json", NotA2A, "not_a2a"),
        (
            new_card((HOST, "1.0"), capabilities={"extensions": [{"uri": "u", "required": True}]}),
            HOST,
            NotA2A,
            "remote_extension_required",
        ),
    ],
)
def test_a_card_that_can_not_be_used_says_why(
    card: Any, address: str, error: type[RemoteFailure], code: str
) -> None:
    with pytest.raises(error) as raised:
        endpoint_of(card, address)
    assert raised.value.code == code


def test_a_card_at_the_root_speaks_for_an_address_only_if_it_names_it() -> None:
    root, own = f"{HOST}/.well-known/agent-card.json", f"{HOST}/a/.well-known/agent.json"
    assert speaks_for(old_card(), root, f"{HOST}/a2a/")
    assert not speaks_for(old_card(), root, f"{HOST}/other")
    assert not speaks_for(old_card(url="http://x:port"), root, f"{HOST}/other")
    assert not speaks_for(old_card(url=None), root, f"{HOST}/other")
    assert speaks_for(old_card(), own, f"{HOST}/a")
    assert speaks_for(old_card(), root, HOST)
    assert speaks_for(old_card(), f"{HOST}/c.json", f"{HOST}/c.json")


def test_what_can_be_a_card() -> None:
    assert is_card(new_card())
    assert is_card(old_card())
    others: list[Any] = [None, [], {}, {"name": 3}, "x"]
    assert not any(is_card(each) for each in others)


def test_without_a_card_an_endpoint_is_asked_in_the_oldest_way() -> None:
    assert without_card(f"{HOST}/x") == Endpoint(f"{HOST}/x", None, streams=False)
    with pytest.raises(NotA2A):
        without_card(f"{HOST}/x.json")


# ── replies ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_both_spellings_mean_the_same() -> None:
    new = {
        "task": {
            "id": "t",
            "contextId": "c",
            "status": {
                "state": "TASK_STATE_INPUT_REQUIRED",
                "timestamp": "now",
                "message": {"messageId": "m", "role": "ROLE_AGENT", "parts": [{"text": "?"}]},
            },
            "artifacts": [
                {
                    "artifactId": "a",
                    "parts": [
                        {"text": "x"},
                        {"data": [1]},
                        {"url": "u", "filename": "f", "mediaType": "t"},
                        {"raw": "aGk="},
                        {"smell": 1},
                    ],
                }
            ],
        }
    }
    old = {
        "kind": "task",
        "id": "t",
        "contextId": "c",
        "status": {
            "state": "input-required",
            "timestamp": "now",
            "message": {"messageId": "m", "role": "agent", "parts": [{"kind": "text", "text": "?"}]},
        },
        "artifacts": [
            {
                "artifactId": "a",
                "parts": [
                    {"kind": "text", "text": "x"},
                    {"kind": "data", "data": [1]},
                    {"kind": "file", "file": {"uri": "u", "name": "f", "mimeType": "t"}},
                    {"kind": "file", "file": {"bytes": "aGk="}},
                ],
            }
        ],
    }
    assert reply(new) == reply(old)
    task = reply(new)
    assert isinstance(task, Task)
    assert task.artifacts[0].content == Content(
        "x", (Data([1]), File("f", "t", "u", None), File("", "", None, "aGk="))
    )


@pytest.mark.parametrize(
    "result",
    [
        None,
        [],
        3,
        {},
        {"task": 3},
        {"kind": "task"},
        {"parts": 3},
        {"parts": [3]},
        {"parts": [{"text": 3}]},
        {"parts": [{"file": 3}]},
        {"artifact": 3},
        {"artifacts": {}},
        {"artifacts": [3]},
        {"id": 3, "artifacts": []},
        {"taskId": "t", "status": 3},
        {"id": "t", "status": {"state": 3}},
        {"id": "t", "status": {"state": "working", "message": 3}},
        {"id": "t", "status": {}, "history": [3]},
    ],
)
def test_what_is_no_reply_is_refused(result: Any) -> None:
    with pytest.raises(BadRemoteEvent):
        reply(result)


def test_a_list_of_tasks() -> None:
    assert listed_tasks({}) == ([], "")
    tasks, token = listed_tasks({"tasks": [{"id": "t", "status": {"state": "x"}}], "nextPageToken": "n"})
    assert (tasks[0].id, token) == ("t", "n")
    for bad in ({"tasks": 3}, {"tasks": [3]}, 3):
        with pytest.raises(BadRemoteEvent):
            listed_tasks(bad)


# ── what is told ─────────────────────────────────────────────────────────────────────────────────────────────────────


@settings(deadline=None)
@given(st.lists(st.text(max_size=4)), st.data())
def test_pieces_and_snapshots_in_any_order_say_the_text_once(pieces: list[str], data: st.DataObject) -> None:
    told, said, whole = Told(), "", ""
    for piece in pieces:
        if data.draw(st.booleans()):
            # A snapshot may lag behind; it may come from another turn's point of view, too.
            lag = data.draw(st.integers(0, len(whole)))
            said += told.catch_up(Content(whole[: len(whole) - lag])).text
        if data.draw(st.booleans()):
            told = recalled(told.mark())
        whole += piece
        said += (
            told.add(Content(piece)).text if data.draw(st.booleans()) else told.catch_up(Content(whole)).text
        )
    said += told.catch_up(Content(whole)).text
    assert said == whole


def test_a_replaced_text_is_said_on_a_line_of_its_own() -> None:
    told = Told()
    assert told.replace(Content("")).text == ""
    assert told.replace(Content("Hello")).text == "Hello"
    assert told.replace(Content("Hello you")).text == " you"
    assert told.replace(Content("Hell")).text == ""
    assert told.add(Content("!")).text == "!"
    assert told.replace(Content("Bye")).text == "\nBye"
    later = recalled(told.mark())
    assert later.replace(Content("Bye bye")).text == " bye"
    later = recalled(told.mark())
    assert later.replace(Content("Anew")).text == "Anew"


def test_other_parts_are_said_once() -> None:
    one, two = Data(1), Data(2)
    told = Told()
    assert told.add(Content("", (one,))).others == (one,)
    assert told.catch_up(Content("", (one, two))).others == (two,)
    later = recalled(told.mark())
    assert later.catch_up(Content("", (one, two, one))).others == (one,)
    assert later.replace(Content("", (two, two, two, one))).others == (two, two, two, one)
    told.add(Content("text"))
    assert told.catch_up(Content()).others == ()
    assert told.catch_up(Content("", (one, two, two))).others == (two,)


# ── folding ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def status_update(state: str, text: str = "", **fields: Any) -> dict[str, Any]:
    message = {"messageId": fields.get("id", ""), "role": "agent", "parts": [{"text": text}]}
    status = {"state": state, "timestamp": fields.get("timestamp", "")} | (
        {"message": message} if text else {}
    )
    return {"taskId": "t", "contextId": "c", "status": status, "metadata": fields.get("metadata")}


def fold_of(*results: Any, known: Known | None = None) -> tuple[TaskFold, list[AgentEvent]]:
    fold = TaskFold(known) if known else TaskFold()
    return fold, [event for result in results for event in fold.take(reply(result))]


def test_thoughts_are_told_once_each_on_a_line_of_its_own() -> None:
    fold, said = fold_of(
        status_update("submitted"),
        status_update("working", "One", id="1"),
        status_update("working", "One", id="1"),
        status_update("working", "Two"),
        status_update("working", "Two"),
        {
            "taskId": "t",
            "status": {"state": "working", "message": {"role": "user", "parts": [{"text": "x"}]}},
        },
        {"taskId": "t", "status": {"state": "working", "message": {"role": "agent", "parts": []}}},
    )
    assert [event["delta"] for event in said] == ["One", "\nTwo"]
    assert not fold.is_settled


def test_a_completed_task_without_artifacts_answers_by_its_status_or_its_history() -> None:
    fold, said = fold_of(status_update("completed", "Done"))
    assert said == []
    assert fold.close() == [{"type": "text", "delta": "Done"}, {"type": "completed"}]
    agents = {"messageId": "a", "role": "agent", "parts": [{"text": "From history"}]}
    users = {"messageId": "u", "role": "user", "parts": [{"text": "hi"}]}
    task = {"id": "t", "status": {"state": "completed"}, "history": [users, agents]}
    fold, _ = fold_of(task)
    assert fold.close()[0] == {"type": "text", "delta": "From history"}
    fold, _ = fold_of({**task, "history": [agents, users]})
    assert fold.close() == [{"type": "completed"}]


def test_parts_of_a_last_status_are_told_too() -> None:
    parts = [{"text": "Done"}, {"data": {"n": 1}}, {"url": "u"}]
    status = {"state": "completed", "message": {"role": "agent", "parts": parts}}
    fold, _ = fold_of({"taskId": "t", "status": status})
    assert fold.close() == [
        {"type": "text", "delta": "Done"},
        {"type": "artifact_file", "artifactId": "", "url": "u"},
        {"type": "completed", "data": {"n": 1}},
    ]


def test_a_task_that_has_settled_is_not_working_any_more() -> None:
    fold, said = fold_of(status_update("completed"), status_update("working", "again"))
    assert said == []
    assert fold.is_settled
    assert fold.may_lack_text(was_cut=False)
    fold, _ = fold_of(status_update("completed", "text"))
    assert not fold.may_lack_text(was_cut=False)
    assert fold.may_lack_text(was_cut=True)


def test_the_question_that_is_being_answered_is_not_asked_again() -> None:
    asked = status_update("input-required", "Which?", id="q", timestamp="1")
    fold, _ = fold_of({"taskId": "t", "artifact": {"artifactId": "a", "parts": [{"text": "Hm"}]}}, asked)
    event = fold.known.event("server")
    known = remembered(event)
    assert (known.question, known.task_id, known.context_id) == ("q 1", "t", "c")

    again, _ = fold_of(asked, known=known)
    assert not again.is_settled
    for other in (
        status_update("input-required", "Which?", id="q", timestamp="2"),
        status_update("input-required", "Which?", id="r", timestamp="1"),
    ):
        assert fold_of(asked, other, known=known)[0].is_settled
    assert fold_of(status_update("working"), asked, known=known)[0].is_settled

    task = {
        "id": "t",
        "status": {"state": "working"},
        "artifacts": [{"artifactId": "a", "parts": [{"text": "Hm, on"}]}],
    }
    assert fold_of(task, known=known)[1] == [{"type": "text", "delta": ", on"}]
    assert fold_of({**task, "id": "other"}, known=known)[1] == [{"type": "text", "delta": "Hm, on"}]


def test_a_snapshot_is_a_sign_of_life_only_if_it_is_another() -> None:
    task = {
        "id": "t",
        "status": {"state": "working"},
        "artifacts": [{"artifactId": "a", "parts": [{"text": "x"}]}],
    }
    fold, _ = fold_of(task)
    signs = fold.signs
    fold.take(reply(task))
    assert fold.signs == signs
    fold.take(reply({**task, "status": {"state": "working", "timestamp": "later"}}))
    assert fold.signs == signs + 1
    for update in (status_update("working"), {"taskId": "t", "artifact": {"artifactId": "a", "parts": []}}):
        signs = fold.signs
        fold.take(reply(update))
        assert fold.signs == signs + 1


def test_british_spelling_is_understood() -> None:
    update = reply(status_update("cancelled"))
    assert isinstance(update, StatusUpdate)
    assert update.status.state == "canceled"


def test_a_failure_says_what_it_knows() -> None:
    fold, _ = fold_of(status_update("failed", metadata={"error_code": "timeout", "code": 3}))
    fold.blame("the stream said so")
    assert fold.close() == [
        {"type": "failed", "details": "the stream said so", "retryable": False, "code": "timeout"}
    ]


def test_a_large_answer_is_said_in_pieces_that_an_event_may_have() -> None:
    long = "x" * (2 * pieces.LONGEST + 1)
    _, said = fold_of({"messageId": "m", "contextId": "c", "parts": [{"text": long}]})
    assert [len(event["delta"]) for event in said] == [pieces.LONGEST, pieces.LONGEST, 1]
    assert 6 * pieces.LONGEST < MAX_EVENT


def test_a_message_is_the_whole_answer() -> None:
    found = reply({"messageId": "m", "contextId": "c", "parts": [{"text": "Hi"}]})
    assert isinstance(found, Message)
    assert found.is_agents
    fold, said = fold_of({"messageId": "m", "contextId": "c", "parts": [{"text": "Hi"}]})
    assert said == [{"type": "text", "delta": "Hi"}]
    assert fold.close() == [{"type": "completed"}]
    assert fold.known == Known("c", "")
