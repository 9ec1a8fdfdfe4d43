import os
import stat
from pathlib import Path

import pytest

from app.commands import export as export_module
from app.commands.export import TRIES
from tarko_client.request import DETAILS, EVENTS
from tests.commands.conftest import Run
from tests.commands.scripted_server import SESSION, Reply, ScriptedServer, answers, event, refuses

FIRST = event(1, "session_start", agentName="démo")
SECOND = b'{ "type":"odd", "data":{"n":1.0e3,"big":123456789012345678901234567890,"s":"\\u00e9\\ud800"} }'
THIRD = event(3, "user_message", content="hi", role="user")


def page(*events: bytes, more: bool = False, after: str = "") -> Reply:
    body = b'{"events":[%s],"total":3,"hasMore":%s,"nextAfter":"%s"}'
    return Reply(body % (b",".join(events), b"true" if more else b"false", after.encode()))


@pytest.fixture(autouse=True)
def session(server: ScriptedServer) -> None:
    server.script(DETAILS, answers({"session": {"id": SESSION}}))


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    pauses: list[float] = []
    monkeypatch.setattr("time.sleep", pauses.append)
    return pauses


def test_every_page_is_written_to_the_byte(server: ScriptedServer, run: Run, tmp_path: Path) -> None:
    server.script(EVENTS, page(FIRST, SECOND, more=True, after="e_2"), page(THIRD, after="e_3"))
    result = run("export", SESSION, "-o", "out.jsonl")
    assert result.exit_code == 0
    assert (tmp_path / "out.jsonl").read_bytes() == b"\n".join((FIRST, SECOND, THIRD, b""))
    assert [*tmp_path.iterdir()] == [tmp_path / "out.jsonl"]
    assert result.output == f"3 events of {SESSION} are in out.jsonl.\n"
    assert [request.query for request in server.asked(EVENTS)] == [
        {"sessionId": SESSION, "limit": "1000", "after": "0"},
        {"sessionId": SESSION, "limit": "1000", "after": "e_2"},
    ]
    assert stat.S_IMODE((tmp_path / "out.jsonl").stat().st_mode) == 0o666 & ~umask()


def umask() -> int:
    now = os.umask(0)
    os.umask(now)
    return now


def test_without_a_file_it_goes_to_stdout_and_deltas_are_asked_for(server: ScriptedServer, run: Run) -> None:
    server.script(EVENTS, page(FIRST, SECOND))
    result = run("export", SESSION, "--deltas")
    assert result.stdout_bytes == b"\n".join((FIRST, SECOND, b""))
    assert server.asked(EVENTS)[0].query["deltas"] == "true"


def test_a_dropped_connection_is_taken_up_at_the_page(
    server: ScriptedServer, run: Run, no_pauses: list[float]
) -> None:
    cut = Reply(page(SECOND).body[:40], cut=True)
    server.script(
        EVENTS,
        page(FIRST, more=True, after="e_1"),
        cut,
        refuses(503, "storage_unavailable", **{"Retry-After": "7"}),
        page(SECOND),
    )
    result = run("export", SESSION)
    assert result.stdout_bytes == b"\n".join((FIRST, SECOND, b""))
    assert [request.query["after"] for request in server.asked(EVENTS)] == ["0", "e_1", "e_1", "e_1"]
    assert [pause >= 7 for pause in no_pauses] == [False, True]


def test_an_export_that_breaks_for_good_leaves_the_old_file(
    server: ScriptedServer, run: Run, tmp_path: Path
) -> None:
    (tmp_path / "out.jsonl").write_text("old")
    server.script(EVENTS, page(FIRST, more=True, after="e_1"), refuses(503, "storage_unavailable", "Away."))
    result = run("export", SESSION, "-o", "out.jsonl")
    assert result.exit_code == 1
    assert result.stderr.endswith("tarko-server: Away. (storage_unavailable)\n")
    assert len(server.asked(EVENTS)) == TRIES + 2
    assert (tmp_path / "out.jsonl").read_text() == "old"
    assert [*tmp_path.iterdir()] == [tmp_path / "out.jsonl"]


def test_a_page_that_leads_to_itself_is_an_error(server: ScriptedServer, run: Run) -> None:
    server.script(EVENTS, page(FIRST, more=True, after="0"))
    result = run("export", SESSION)
    assert (result.exit_code, result.stderr) == (
        1,
        "tarko-server: The server's page after 0 leads to itself. (not_a_tarko_server)\n",
    )


@pytest.mark.parametrize("file", ["missing/out", "."])
def test_a_file_that_cannot_be_written_is_told(server: ScriptedServer, run: Run, file: str) -> None:
    server.script(EVENTS, page(FIRST))
    result = run("export", SESSION, "-o", file)
    assert result.exit_code == 1
    assert result.stderr.startswith(f"tarko-server: {Path(file)} cannot be written: ")
    assert result.stderr.endswith(". (cannot_write)\n")


def test_a_bar_is_shown_at_a_terminal(
    server: ScriptedServer, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(export_module, "_is_terminal", lambda: True)
    monkeypatch.setenv("FORCE_COLOR", "1")
    server.script(EVENTS, page(FIRST, SECOND, THIRD))
    result = run("export", SESSION)
    assert "3/3" in result.stderr
    assert result.stdout_bytes.count(b"\n") == 3
