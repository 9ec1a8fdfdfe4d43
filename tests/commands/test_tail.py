import os
import signal
import subprocess

import pytest

from tarko_client.request import DETAILS, EVENTS_STREAM
from tests.commands.conftest import COMMAND, ROOT, Run, process
from tests.commands.scripted_server import (
    SESSION,
    ScriptedServer,
    answers,
    event,
    frame,
    opening,
    refuses,
    streams,
)

START = event(1, "session_start", agentName="demo")
HELLO = event(2, "user_message", content="Ünï\u2028", role="user")
END = event(3, "session_end", duration=1, messageCount=1)


@pytest.fixture(autouse=True)
def session(server: ScriptedServer) -> None:
    server.script(DETAILS, answers({"session": {"id": SESSION}}))


def test_events_are_followed_until_the_session_is_deleted(server: ScriptedServer, run: Run) -> None:
    server.script(EVENTS_STREAM, streams(opening(), b": ping\n\n", frame(START), frame(HELLO), frame(END)))
    result = run("tail", SESSION)
    assert result.exit_code == 0
    assert [line.split()[1:] for line in result.stdout.splitlines()] == [
        ["session_start", "demo"],
        ["user_message", "Ünï"],
        ["session_end", "The", "session", "was", "deleted."],
    ]
    assert server.asked(EVENTS_STREAM)[0].query == {"sessionId": SESSION}
    assert "\x1b" not in result.output


def test_as_json_each_line_is_the_envelope_to_the_byte(server: ScriptedServer, run: Run) -> None:
    server.script(EVENTS_STREAM, streams(opening(), frame(START), frame(HELLO), frame(END)))
    assert run("tail", SESSION, "--json").stdout_bytes == b"".join(
        each + b"\n" for each in (START, HELLO, END)
    )


def test_a_cursor_or_now_says_where_to_begin(server: ScriptedServer, run: Run) -> None:
    server.script(EVENTS_STREAM, streams(frame(END)))
    run("tail", SESSION, "--after", "2")
    run("tail", SESSION, "--from", "now")
    assert [request.query for request in server.asked(EVENTS_STREAM)] == [
        {"sessionId": SESSION, "after": "2"},
        {"sessionId": SESSION, "from": "now"},
    ]


def test_a_broken_stream_is_taken_up_after_the_last_event(server: ScriptedServer, run: Run) -> None:
    server.script(
        EVENTS_STREAM,
        streams(opening(), frame(START), frame(HELLO)[:-5], cut=True),
        refuses(503, "server_shutdown"),
        streams(opening(1), cut=True),
        streams(opening(1), frame(HELLO)),
        streams(opening(2), frame(END)),
    )
    result = run("tail", SESSION, "--json")
    assert result.stdout_bytes == b"".join(each + b"\n" for each in (START, HELLO, END))
    assert result.exit_code == 0
    seen = [request.query.get("after", "").rpartition("_")[2] for request in server.asked(EVENTS_STREAM)]
    assert seen == ["", "1", "1", "1", "2"]
    assert result.stderr.count("Coming back in 0.0 s.") == 4


def test_a_session_that_was_deleted_meanwhile_ends_the_tail(server: ScriptedServer, run: Run) -> None:
    server.script(EVENTS_STREAM, streams(opening(), frame(START)), refuses(404, "session_deleted"))
    result = run("tail", SESSION)
    assert result.exit_code == 0
    assert result.stderr.endswith("The session was deleted.\n")


@pytest.mark.parametrize("code", ["session_not_found", "session_deleted"])
def test_a_session_that_is_not_there_is_an_error(server: ScriptedServer, run: Run, code: str) -> None:
    server.drop(DETAILS)
    server.script(DETAILS, refuses(404, code, "No such session."))
    result = run("tail", SESSION)
    assert (result.exit_code, result.stderr) == (1, f"tarko-server: No such session. ({code})\n")


def test_control_c_ends_it_well(server: ScriptedServer, run: Run) -> None:
    server.script(
        EVENTS_STREAM,
        streams(
            opening(),
            frame(START),
            lambda: os.kill(os.getpid(), signal.SIGINT),
            lambda: server.wait_for("/never"),
        ),
    )
    server.script("/never", refuses(404, "no"))
    result = run("tail", SESSION)
    server.release("/never")
    assert result.exit_code == 0


def test_a_reader_who_has_had_enough_ends_it_quietly(server: ScriptedServer) -> None:
    server.script(EVENTS_STREAM, streams(opening(), *(frame(START) for _ in range(5000)), frame(END)))
    for json in ([], ["--json"]):
        words = ("tail", SESSION, "--url", server.url, *json)
        with process(*words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as tail:
            tail.stdout.readline()
            tail.stdout.close()
            assert tail.stderr.read() == b""
            assert tail.wait(60) == 0


def test_a_terminal_of_another_encoding_is_no_reason_to_fail(server: ScriptedServer) -> None:
    server.script(EVENTS_STREAM, streams(opening(), frame(HELLO), frame(END)))
    done = subprocess.run(
        [*COMMAND, "tail", SESSION, "--url", server.url],
        cwd=ROOT,
        env={"PYTHONIOENCODING": "ascii"},
        capture_output=True,
        timeout=100,
    )
    assert done.returncode == 0
    assert b"?n?" in done.stdout
    assert done.stderr == b""
