from datetime import UTC
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.commands.rendering import ChatView, Piece, clean, duration, line_of, short
from tarko_client import Event, NotTarko
from tests.commands.scripted_server import event


def received(kind: str, /, **data: Any) -> Event:
    return Event.read(event(1, kind, **data).decode())


def told(*events: Event) -> str:
    """What a turn looks like, with a mark at each change of kind."""
    view, text, last = ChatView(), "", None
    for each in events:
        for piece in view.tell(each):
            text += piece.text if piece.kind == last else f"<{piece.kind}>{piece.text}"
            last = piece.kind
    return text


def delta(text: str, message: str = "m1") -> Event:
    return received("assistant_message_delta", delta=text, messageId=message)


def message(text: str, message: str = "m1") -> Event:
    return received("assistant_message", content=text, messageId=message, finishReason="stop")


@settings(deadline=None)
@given(st.lists(st.text("ab\n é"), max_size=5), st.integers(0, 5))
def test_a_message_reads_the_same_however_many_deltas_were_missed(parts: list[str], seen: int) -> None:
    whole = "".join(parts)
    assert told(*map(delta, parts[:seen]), message(whole)) == told(message(whole))


def test_a_message_that_its_deltas_did_not_say_is_told_whole() -> None:
    assert told(delta("Helo"), message("Hello")) == "<answer>Helo\nHello\n"


def test_a_turn_reads_as_a_conversation() -> None:
    assert told(
        received("user_message", content="hi", role="user"),
        received("agent_run_start", turnId="t", agentName="demo"),
        received("assistant_thinking_delta", delta="Let me", messageId="m0"),
        received("assistant_thinking_message", content="Let me see.", durationMs=5, messageId="m0"),
        delta("Ask"),
        received("tool_call", id="c", name="weather", arguments={"city": "Århus"}, type="function"),
        received("tool_execution_start", toolCallId="c", name="weather"),
        received(
            "tool_result", toolCallId="c", name="weather", content="11\n°C", success=True, elapsedMs=1234
        ),
        received("tool_result", toolCallId="d", name="b", content="", success=False, error="no", elapsedMs=2),
        received("retrying", attempt=2),
        received("error", error="It broke.", code="agent_exception", recoverable=False),
        received("agent_run_end", turnId="t", status="failed", elapsedMs=61_000),
    ) == (
        "<thinking>Let me see.\n"
        "<answer>Ask\n"
        '<tool>→ weather {"city": "Århus"}\n'
        "← weather (1.2 s) 11 °C\n"
        "<error>← b failed after 2 ms: no\n"
        '<note>retrying {"attempt": 2}\n'
        "<error>It broke. (agent_exception)\n"
        "failed after 61.0 s\n"
    )


def test_a_result_is_shown_with_the_ending() -> None:
    end = received("agent_run_end", turnId="t", status="completed", elapsedMs=5, data={"n": 1})
    assert told(end) == '<note>completed after 5 ms {"n": 1}\n'


def test_odd_events_are_told_without_failing() -> None:
    assert told(received("error")) == "<error>\n"
    assert told(received("tool_result")) == "<tool>← \n"
    assert told(received("session_end")) == "<error>The session was deleted.\n"
    assert told(Event("", "", "mood", None, None)) == "<note>mood null\n"
    assert told(Event("", "", "assistant_message", None, [1])) == ""
    assert told(received("assistant_message", content=[{"type": "text"}])) == '<answer>[{"type": "text"}]\n'
    assert told(Event("", "", "agent_run_end", None, "odd")) == "<error>\n"


@settings(deadline=None)
@given(st.text())
def test_nothing_that_steers_a_terminal_is_left(text: str) -> None:
    left = clean(text)
    assert not any(ord(each) < 0x20 and each not in "\n\t" for each in left)
    assert not any(0x7F <= ord(each) < 0xA0 for each in left)
    left.encode()


def test_an_escape_sequence_is_made_visible() -> None:
    assert clean("\x1b[2Jhi\r\n\x9b\x7f") == "␛[2Jhi\n\ufffd␡"
    assert clean("a\u202ab\u202ec\u2066d\u2069") == "a□b□c□d□"
    assert clean("\u200e\u200fא") == "\u200e\u200fא"
    assert told(delta("\x1b]0;title\x07")) == "<answer>␛]0;title␇"


def test_values_are_cut_to_one_line() -> None:
    assert short("a\n  b") == "a b"
    assert short({"a": [1, None]}) == '{"a": [1, null]}'
    assert len(short("x" * 500)) == 80
    assert short("x" * 500).endswith("…")


@pytest.mark.parametrize(("ms", "said"), [(5, "5 ms"), (1500, "1.5 s"), (None, ""), ("5", "")])
def test_durations(ms: Any, said: str) -> None:
    assert duration(ms) == said


@pytest.mark.parametrize(
    ("kind", "data", "said", "style"),
    [
        ("session_start", {"agentName": "demo"}, "demo", "note"),
        ("user_message", {"content": "hi\nyou"}, "hi you", "plain"),
        ("assistant_message_delta", {"delta": " a"}, "a", "answer"),
        ("tool_call", {"name": "f", "arguments": {}}, "→ f {}", "tool"),
        ("error", {"error": "No.", "code": "c"}, "No. (c)", "error"),
        ("agent_run_end", {"status": "aborted", "elapsedMs": 1}, "aborted after 1 ms", "error"),
        ("user_feedback", {"stars": 5}, '{"stars": 5}', "note"),
    ],
)
def test_any_event_is_one_line(kind: str, data: dict[str, Any], said: str, style: Any) -> None:
    when, what, text = line_of(received(kind, **data), UTC)
    assert when == Piece("22:13:20.001  ", "note")
    assert what == Piece(f"{kind:<26}  ", "plain")
    assert text == Piece(f"{said}\n", style)


@pytest.mark.parametrize("timestamp", [1e300, -1e300, float("nan"), 10**40])
def test_a_time_beyond_the_calendar_is_left_out(timestamp: float) -> None:
    assert line_of(Event("", "", "odd", timestamp, {}), UTC)[0].text == "--:--:--.---  "


@pytest.mark.parametrize("text", ["", "no", "[]", "{}", '{"type": 3}'])
def test_what_is_no_event_is_refused(text: str) -> None:
    with pytest.raises(NotTarko, match="The server sent"):
        Event.read(text)
