"""What a client's text on `/ws` means, and how answers are spelled: without a socket."""

import json

import pytest
from starlette.requests import HTTPConnection

from app.dialects.parts import principal_of
from app.dialects.tarko.socket import (
    AbortQuery,
    Answers,
    JoinSession,
    LeaveSession,
    Misunderstood,
    Ping,
    SendQuery,
    error_data,
    refusal,
    understand,
)
from app.errors import SessionBusy, Unauthenticated

SESSION = "sess_" + "a" * 26


@pytest.mark.parametrize(
    ("text", "command"),
    [
        ('{"type":"ping"}', Ping(type="ping")),
        (b'{"type":"ping","requestId":"r"}', Ping(type="ping", requestId="r")),
        ('{"type":"leave_session","sessionId":"s"}', LeaveSession(type="leave_session", sessionId="s")),
        ('{"type":"join_session","sessionId":"s"}', JoinSession(type="join_session", sessionId="s")),
        (
            '{"type":"join_session","sessionId":"s","after":5}',
            JoinSession(type="join_session", sessionId="s", after=5),
        ),
        (
            '{"type":"join_session","sessionId":"s","from":"now","extra":1}',
            JoinSession.model_validate({"type": "join_session", "sessionId": "s", "from": "now"}),
        ),
        (
            '{"type":"send_query","sessionId":"s","query":"q"}',
            SendQuery(type="send_query", sessionId="s", query="q"),
        ),
        (
            '{"type":"abort_query","sessionId":"s","turnId":"t"}',
            AbortQuery(type="abort_query", sessionId="s", turnId="t"),
        ),
    ],
)
def test_a_message_is_a_command(text: str | bytes, command: object) -> None:
    assert understand(text) == command


def test_what_is_wrong_is_named_with_its_place() -> None:
    problem = understand('{"type":"send_query","sessionId":"s","query":[1],"requestId":"r"}')

    assert isinstance(problem, Misunderstood)
    assert problem.code == "bad_message"
    assert problem.error.startswith("query.")
    assert problem.session_id == "s"
    assert problem.details == {"requestType": "send_query", "requestId": "r"}


def test_long_names_are_cut_and_names_of_other_types_left_out() -> None:
    long = understand(json.dumps({"type": "x" * 300, "requestId": 5}))

    assert isinstance(long, Misunderstood)
    assert long.details == {"requestType": "x" * 200}
    assert error_data(Misunderstood("c", "e")) == {"error": "e", "code": "c", "recoverable": True}


def test_a_refusal_names_the_request_and_the_errors_details() -> None:
    command = SendQuery(type="send_query", sessionId=SESSION, query="q", requestId="r")

    told = refusal(command, SessionBusy("busy", details={"turnId": "t"}))

    assert told == Misunderstood(
        "session_busy", "busy", SESSION, {"requestType": "send_query", "requestId": "r", "turnId": "t"}
    )


def test_answers_have_ids_of_their_own() -> None:
    answers = Answers()

    ids = [json.loads(answers.spell("x", {}, *where))["id"] for where in ((), (SESSION, 7), (SESSION, 7), ())]

    assert ids == ["ctl_1", f"evt_{'a' * 26}_7~2", f"evt_{'a' * 26}_7~3", "ctl_4"]


def test_who_has_no_name_is_asked_for_it() -> None:
    """The gate lets nobody pass who has none; this is the second lock."""
    with pytest.raises(Unauthenticated):
        principal_of(HTTPConnection({"type": "http", "headers": []}))
