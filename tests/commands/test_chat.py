import builtins
import json
import os
import pty
import signal
from collections.abc import Callable, Iterator

import pytest

from app.commands import chat
from app.commands.connecting import connected
from app.commands.screen import Screen
from tarko_client.request import ABORT, CREATE, DETAILS, EVENTS_STREAM, QUERY_STREAM
from tests.commands.conftest import Run, process, unmeasured
from tests.commands.scripted_server import (
    SESSION,
    Reply,
    ScriptedServer,
    Step,
    answers,
    event,
    frame,
    named_frame,
    opening,
    refuses,
    streams,
)

USER = event(2, "user_message", content="hi", role="user")
RUN = event(3, "agent_run_start", turnId="turn_1", agentName="demo")
HEL = event(4, "assistant_message_delta", delta="Hel", messageId="m")
LO = event(5, "assistant_message_delta", delta="lo", messageId="m")
MESSAGE = event(6, "assistant_message", content="Hello", messageId="m", role="assistant", finishReason="stop")
END = event(7, "agent_run_end", turnId="turn_1", status="completed", elapsedMs=12)
TURN = (USER, RUN, HEL, LO, MESSAGE, END)
ABORTED = event(7, "agent_run_end", turnId="turn_1", status="aborted", elapsedMs=12)
FAILED = (
    event(5, "error", error="It broke.", code="agent_exception", recoverable=False),
    event(6, "agent_run_end", turnId="turn_1", status="failed", elapsedMs=3),
)


@pytest.fixture(autouse=True)
def session(server: ScriptedServer) -> None:
    server.script(CREATE, answers({"sessionId": SESSION, "createdAt": 1}, 201))
    server.script(DETAILS, answers({"session": {"id": SESSION}}))


def turn(*events: bytes, cut: bool = False) -> Reply:
    return streams(opening(1), *map(named_frame, events), cut=cut)


def test_each_line_of_a_pipe_is_a_query_and_stdout_gets_the_answers(server: ScriptedServer, run: Run) -> None:
    server.script(QUERY_STREAM, turn(*TURN))
    result = run("chat", "--name", "mine", stdin=b"hi\n\n  \nyou\r\n")
    assert result.exit_code == 0
    assert result.stdout == "Hello\nHello\n"
    assert result.stderr == (
        f"Session {SESSION} at {server.url}.\ncompleted after 12 ms\ncompleted after 12 ms\n"
    )
    assert server.asked(CREATE)[0].json == {"name": "mine"}
    queries = server.asked(QUERY_STREAM)
    assert [query.json for query in queries] == [
        {"sessionId": SESSION, "query": "hi"},
        {"sessionId": SESSION, "query": "you"},
    ]
    assert len({query.headers["idempotency-key"] for query in queries}) == 2


def test_reasoning_and_tools_stay_out_of_stdout(server: ScriptedServer, run: Run) -> None:
    thinking = event(4, "assistant_thinking_delta", delta="Hm", messageId="t")
    tool = event(5, "tool_call", id="c", name="f", arguments={}, type="function", messageId="m")
    server.script(QUERY_STREAM, turn(USER, RUN, thinking, tool, MESSAGE, END))
    result = run("chat", stdin="hi")
    assert result.stdout == "Hello\n"
    assert "→ f {}\n" in result.stderr
    assert "Hm" not in result.output


def test_a_turn_that_failed_makes_the_exit_code_1_and_the_rest_is_still_asked(
    server: ScriptedServer, run: Run
) -> None:
    server.script(QUERY_STREAM, turn(USER, RUN, HEL, *FAILED), turn(*TURN))
    result = run("chat", "--session", SESSION, stdin="a\nb\n")
    assert result.exit_code == 1
    assert result.stdout == "Hel\nHello\n"
    assert "It broke. (agent_exception)\nfailed after 3 ms\n" in result.stderr
    assert server.asked(DETAILS)[0].query == {"sessionId": SESSION}
    assert not server.asked(CREATE)


def test_a_refused_query_is_told_and_the_chat_goes_on(server: ScriptedServer, run: Run) -> None:
    server.script(QUERY_STREAM, refuses(409, "session_busy", "Another turn runs."), turn(*TURN))
    result = run("chat", stdin="a\nb\n")
    assert (result.exit_code, result.stdout) == (1, "Hello\n")
    assert "Another turn runs. (session_busy)\n" in result.stderr


def test_a_session_to_join_must_be_there(server: ScriptedServer, run: Run) -> None:
    server.drop(DETAILS)
    server.script(DETAILS, refuses(404, "session_not_found", "No such session."))
    result = run("chat", "--session", "sess_x", stdin="a\n")
    assert (result.exit_code, result.output) == (1, "tarko-server: No such session. (session_not_found)\n")


@pytest.mark.parametrize("seen", range(1, len(TURN)))
def test_wherever_the_connection_drops_no_text_is_lost_or_doubled(
    server: ScriptedServer, run: Run, seen: int
) -> None:
    server.script(QUERY_STREAM, turn(*TURN[:seen], cut=True))
    server.script(EVENTS_STREAM, streams(opening(seen + 1), *map(frame, TURN[seen:])))
    result = run("chat", stdin="hi")
    assert (result.exit_code, result.stdout) == (0, "Hello\n")
    resumed = server.asked(EVENTS_STREAM)[0]
    assert resumed.query == {"sessionId": SESSION, "after": f"evt_{SESSION[5:]}_{seen + 1}"}


def test_a_query_whose_answer_was_lost_is_sent_again_with_its_key(server: ScriptedServer, run: Run) -> None:
    server.script(QUERY_STREAM, streams(cut=True), turn(*TURN))
    result = run("chat", stdin="hi")
    assert (result.exit_code, result.stdout) == (0, "Hello\n")
    first, second = server.asked(QUERY_STREAM)
    assert first.headers["idempotency-key"] == second.headers["idempotency-key"]


def test_a_server_that_stays_away_fails_the_turn(server: ScriptedServer, run: Run) -> None:
    server.script(QUERY_STREAM, turn(USER, cut=True))
    server.script(EVENTS_STREAM, refuses(503, "storage_unavailable", "The database is away."))
    result = run("chat", stdin="hi")
    assert result.exit_code == 1
    assert result.stderr.count("Coming back") == chat.TRIES
    assert len(server.asked(EVENTS_STREAM)) == chat.TRIES


def test_a_stream_that_breaks_again_and_again_ends_the_chat_and_says_where_to_look(
    server: ScriptedServer, run: Run
) -> None:
    server.script(QUERY_STREAM, turn(USER, cut=True))
    server.script(EVENTS_STREAM, streams(cut=True))
    result = run("chat", stdin="hi\nnever asked\n")
    assert result.exit_code == 1
    assert result.stderr.endswith(
        f"The turn may go on without us: see it with `tarko-server tail {SESSION}`. (connection_lost)\n"
    )


def test_a_session_that_is_deleted_ends_the_chat(server: ScriptedServer, run: Run) -> None:
    server.script(QUERY_STREAM, turn(USER, RUN, event(4, "session_end", duration=1, messageCount=1)))
    result = run("chat", stdin="hi\nagain\n")
    assert result.exit_code == 1
    assert result.stderr.endswith(f"tarko-server: {SESSION} was deleted. (session_deleted)\n")


def interrupt() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def test_control_c_aborts_the_turn_and_tells_its_ending(server: ScriptedServer, run: Run) -> None:
    def until_aborted() -> None:
        server.wait_for(ABORT)

    steps: list[Step] = [
        opening(1),
        *map(named_frame, (USER, RUN, HEL)),
        interrupt,
        until_aborted,
        named_frame(ABORTED),
    ]
    server.script(QUERY_STREAM, streams(*steps))
    server.script(ABORT, answers({"success": True, "turnId": "turn_1", "status": "aborted"}))
    result = run("chat", stdin="hi\nnever asked\n")
    assert result.exit_code == 130
    assert result.stdout == "Hel\n"
    assert result.stderr.endswith("aborted after 12 ms\n")
    assert len(server.asked(QUERY_STREAM)) == 1
    assert server.asked(ABORT)[0].json["sessionId"] == SESSION


def test_a_second_control_c_leaves_a_turn_that_does_not_end(server: ScriptedServer, run: Run) -> None:
    def again() -> None:
        server.wait_for(ABORT)
        interrupt()

    server.script(
        QUERY_STREAM,
        streams(opening(1), interrupt, again, lambda: server.wait_for("/never"), named_frame(END)),
    )
    server.script(ABORT, refuses(503, "storage_unavailable", "The database is away."))
    result = run("chat", stdin="hi\n")
    server.release("/never")
    assert result.exit_code == 130
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.fixture
def typed(server: ScriptedServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., int]]:
    """Chat as at a terminal; each entry is what is typed, or what typing raises."""
    with connected(server.url, None) as client:

        def type_in(*entries: str | type[BaseException]) -> int:
            left = iter(entries)

            def read(prompt: str) -> str:
                entry = next(left)
                if isinstance(entry, str):
                    return entry
                raise entry

            monkeypatch.setattr(builtins, "input", read)
            monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
            return chat.chat(client, session=None, name=None)

        yield type_in


@pytest.mark.parametrize("leaving", [EOFError, KeyboardInterrupt])
def test_at_the_prompt_control_d_and_control_c_leave(
    server: ScriptedServer,
    typed: Callable[..., int],
    leaving: type[BaseException],
    capsys: pytest.CaptureFixture[str],
) -> None:
    server.script(QUERY_STREAM, refuses(409, "session_busy", "Busy."), turn(*TURN))
    assert typed("", "a", "b", leaving) == 0
    assert capsys.readouterr().out == "Busy. (session_busy)\nHello\ncompleted after 12 ms\n\n"


def test_control_c_at_a_terminal_keeps_the_chat(
    server: ScriptedServer, typed: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    waits = [interrupt, lambda: server.wait_for(ABORT)]
    server.script(QUERY_STREAM, streams(*waits, named_frame(ABORTED)), turn(*TURN))
    server.script(ABORT, answers({"success": True}))
    assert typed("a", "b", EOFError) == 0
    assert capsys.readouterr().out == "aborted after 12 ms\nHello\ncompleted after 12 ms\n\n"
    assert server.asked(ABORT)[0].json == {"sessionId": SESSION}


def test_a_second_control_c_leaves_at_a_terminal_too(
    server: ScriptedServer, typed: Callable[..., int]
) -> None:
    waits = [interrupt, lambda: server.wait_for(ABORT), interrupt, lambda: server.wait_for("/never")]
    server.script(QUERY_STREAM, streams(*waits))
    server.script(ABORT, answers({"success": True}))
    assert typed("a", "b") == 130
    server.release("/never")


def test_an_abort_names_the_turn_once_it_is_known(server: ScriptedServer) -> None:
    server.script(ABORT, answers({"success": True}))
    with connected(server.url, None) as client:
        query = chat.Turn(chat.Conversation(client.session(SESSION), Screen(is_plain=True)), "hi")
        server.script(QUERY_STREAM, turn(*TURN))
        list(query.events())
        query.abort()
    assert server.asked(ABORT)[0].json == {"sessionId": SESSION, "turnId": "turn_1"}


def test_a_failed_abort_is_told(server: ScriptedServer, capsys: pytest.CaptureFixture[str]) -> None:
    server.script(ABORT, refuses(503, "storage_unavailable", "The database is away."))
    with connected(server.url, None) as client:
        chat.Turn(chat.Conversation(client.session(SESSION), Screen(is_plain=True)), "hi").abort()
    assert capsys.readouterr().err == (
        "The turn could not be aborted: The database is away. Ctrl-C again leaves.\n"
    )


def test_an_abort_that_fails_after_the_chat_was_left_is_not_told(
    server: ScriptedServer, capsys: pytest.CaptureFixture[str]
) -> None:
    with connected(server.url, None) as client:
        talk = chat.Conversation(client.session(SESSION), Screen(is_plain=True), was_left=True)
    chat.Turn(talk, "hi").abort()
    assert capsys.readouterr().err == ""


def test_in_a_real_terminal_an_aborted_turn_is_told_and_the_chat_goes_on(server: ScriptedServer) -> None:
    held: list[Step] = [
        *map(named_frame, (USER, RUN, HEL)),
        lambda: server.wait_for(ABORT),
        named_frame(ABORTED),
    ]
    server.script(QUERY_STREAM, streams(*held), turn(*TURN))
    server.script(ABORT, answers({"success": True}))
    here, there = pty.openpty()
    environment = {**unmeasured(), "TERM": "xterm", "NO_COLOR": ""}
    with process(
        "chat",
        "--url",
        server.url,
        env=environment,
        stdin=there,
        stdout=there,
        stderr=there,
        start_new_session=True,
    ) as talk:
        os.close(there)
        with os.fdopen(here, "r+b", buffering=0) as terminal:
            read_until(terminal.read, b"> ")
            terminal.write(b"hi\n")
            read_until(terminal.read, b"Hel")
            talk.send_signal(signal.SIGINT)
            assert b"aborted after 12 ms" in read_until(terminal.read, b"> ")
            terminal.write(b"again\n")
            assert b"\x1b[2mcompleted after 12 ms" in read_until(terminal.read, b"> ")
            terminal.write(b"\x04")  # Ctrl-D; a Ctrl-C in the very moment of the prompt is lost by `readline`
            assert talk.wait(60) == 0
    assert json.loads(server.asked(ABORT)[0].body) == {"sessionId": SESSION, "turnId": "turn_1"}


def read_until(read: Callable[[int], bytes], mark: bytes) -> bytes:
    """What a terminal shows up to and with the mark; pytest's time limit bounds the wait."""
    shown = b""
    while mark not in shown:
        shown += read(4096)
    return shown
