import json
from typing import Any

import pytest

from app.commands.abort import receipt
from tarko_client.request import ABORT, SESSIONS
from tarko_client.shapes import AbortReceipt
from tests.commands.conftest import Run
from tests.commands.scripted_server import SESSION, ScriptedServer, answers, refuses


def item(number: int, **fields: Any) -> dict[str, Any]:
    return {
        "id": f"sess_{number:026}",
        "createdAt": 1_700_000_000_000,
        "updatedAt": 1_700_000_000_000,
        "name": None,
        "tags": [],
        "agent": "demo",
        "status": {"isProcessing": False, "state": "idle"},
    } | fields


def test_sessions_are_a_table(server: ScriptedServer, run: Run) -> None:
    odd = item(2, name="[red]n\x1b[0m", tags=["a", "b"], updatedAt=None, status=None)
    server.script(SESSIONS, answers({"sessions": [item(1, name="x" * 120), odd]}))
    result = run("sessions")
    heading, first, second = result.stdout.splitlines()
    assert heading.split() == ["SESSION", "NAME", "AGENT", "STATE", "UPDATED", "TAGS"]
    assert first.split()[:4] == [f"sess_{1:026}", "x" * 120, "demo", "idle"]
    assert second.split() == [f"sess_{2:026}", "[red]n␛[0m", "demo", "a", "b"]
    assert not result.stderr


def test_at_a_terminal_the_table_fits_its_width(
    server: ScriptedServer, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "90")
    server.script(SESSIONS, answers({"sessions": [item(1, name="x" * 120)]}))
    lines = run("sessions").stdout.splitlines()
    assert len(lines) > 2
    assert f"sess_{1:026}" in lines[1]


def test_pages_are_read_up_to_the_limit(server: ScriptedServer, run: Run) -> None:
    server.script(
        SESSIONS,
        answers({"sessions": [item(n) for n in range(100)], "nextAfter": "c1"}),
        answers({"sessions": [item(n) for n in range(100, 120)], "nextAfter": "c2"}),
    )
    result = run("sessions", "--limit", "120", "--json")
    assert [json.loads(line)["id"][-3:] for line in result.stdout.splitlines()] == [
        f"{n:03}" for n in range(120)
    ]
    assert [request.query for request in server.requests] == [
        {"limit": "100"},
        {"limit": "20", "after": "c1"},
    ]
    assert result.stderr == "There are more than 120: see --limit.\n"


@pytest.mark.parametrize(
    ("answer", "turn", "said"),
    [
        (
            {"success": True, "turnId": "t1", "status": "aborted", "lastEventId": "e_9"},
            None,
            "Aborted t1: it ended aborted with e_9.",
        ),
        ({"success": True}, None, "Aborted the turn: it ended aborted."),
        ({"success": False}, None, f"Nothing to abort: no turn runs in {SESSION}."),
        ({"success": False}, "t1", f"Nothing to abort: t1 does not run in {SESSION}."),
        (
            {"success": False, "turnId": "t1", "status": "completed"},
            "t1",
            "Nothing to abort: t1 had ended completed.",
        ),
    ],
)
def test_the_receipt_of_an_abort_says_what_was_done(
    answer: AbortReceipt, turn: str | None, said: str
) -> None:
    assert receipt(answer, SESSION, turn) == said


def test_an_abort_names_the_session_and_the_turn(server: ScriptedServer, run: Run) -> None:
    server.script(ABORT, answers({"success": False}), answers({"success": True, "turnId": "t1"}))
    assert run("abort", SESSION).exit_code == 0
    result = run("abort", SESSION, "--turn", "t1", "--token", "a-token")
    assert (result.exit_code, result.output) == (0, "Aborted t1: it ended aborted.\n")
    assert [request.json for request in server.requests] == [
        {"sessionId": SESSION},
        {"sessionId": SESSION, "turnId": "t1"},
    ]
    assert server.requests[1].headers["authorization"] == "Bearer a-token"


def test_a_refused_abort_is_an_error(server: ScriptedServer, run: Run) -> None:
    server.script(ABORT, refuses(404, "session_not_found", "No such session."))
    result = run("abort", "sess_x")
    assert (result.exit_code, result.output) == (1, "tarko-server: No such session. (session_not_found)\n")
