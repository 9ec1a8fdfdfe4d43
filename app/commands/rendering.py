"""Events as a person reads them: pure functions from an event to pieces of text, without a terminal.

`ChatView` tells a turn as a conversation while it happens, `line_of` tells any event as one line. Control characters
of an event never reach the terminal: an agent's text could otherwise move the cursor or retitle the window.
"""

import json
from collections.abc import Callable
from datetime import UTC, datetime, tzinfo
from typing import Any, Literal, NamedTuple

from tarko_client import Event

Kind = Literal["answer", "thinking", "tool", "error", "note", "plain"]
"""Who a piece comes from: the agent's answer, its reasoning, its tools, a failure, us. It decides style and stream."""

LONGEST_VALUE = 80
LONGEST_LINE = 200

_HARMLESS = {
    **{code: chr(0x2400 + code) for code in range(0x20)},
    ord("\n"): "\n",
    ord("\t"): "\t",
    ord("\r"): None,
    0x7F: "\u2421",
    **dict.fromkeys(range(0x80, 0xA0), "\ufffd"),
    **dict.fromkeys(range(0xD800, 0xE000), "\ufffd"),
    # What would turn the direction of all that follows on the line.
    **dict.fromkeys([*range(0x202A, 0x202F), *range(0x2066, 0x206A)], "\u25a1"),
}


class Piece(NamedTuple):
    """A piece of text to show. It ends a line only where it says so."""

    text: str
    kind: Kind


def clean(text: str) -> str:
    """The text without what could steer a terminal, or what UTF-8 cannot say."""
    return text if text.isascii() and text.isprintable() else text.translate(_HARMLESS)


def short(value: Any, limit: int = LONGEST_VALUE) -> str:
    """Any JSON on one line, cut at `limit` characters."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    line = clean(" ".join(text[: 4 * limit].split()))
    return line if len(line) <= limit else line[: limit - 1] + "…"


def duration(milliseconds: Any) -> str:
    """A time as people say it; nothing for what is no number."""
    if not isinstance(milliseconds, int | float):
        return ""
    return f"{milliseconds:.0f} ms" if milliseconds < 1000 else f"{milliseconds / 1000:.1f} s"


class ChatView:
    """Tells the events of turns as they come. Remembers where the line stands, and what of a message was shown.

    Told in deltas or whole, a message reads the same: its closing event shows only what no delta has.
    """

    def __init__(self) -> None:
        self._open: Kind | None = None
        self._shown: dict[str, str] = {}

    def tell(self, event: Event) -> list[Piece]:
        """What this event adds to the screen."""
        match event.type:
            case "assistant_message_delta":
                return self._delta(event, "answer")
            case "assistant_thinking_delta":
                return self._delta(event, "thinking")
            case "assistant_message":
                return self._close(event, "answer")
            case "assistant_thinking_message":
                return self._close(event, "thinking")
            case _:
                return self._aside(event)

    def break_line(self) -> list[Piece]:
        """End the line that is open, if one is."""
        pieces = [] if self._open is None else [Piece("\n", self._open)]
        self._open = None
        return pieces

    def line(self, text: str, kind: Kind) -> list[Piece]:
        """A line of its own."""
        return [*self.break_line(), Piece(f"{text}\n", kind)]

    def _delta(self, event: Event, kind: Kind) -> list[Piece]:
        text, message = event.text_of("delta"), event.text_of("messageId")
        self._shown[message] = self._shown.get(message, "") + text
        return self._run(text, kind)

    def _close(self, event: Event, kind: Kind) -> list[Piece]:
        content = event.text_of("content")
        shown = self._shown.pop(event.text_of("messageId"), "")
        if content.startswith(shown):
            pieces = self._run(content[len(shown) :], kind)
        else:  # the deltas said something else: the message is what stands
            pieces = [*self.break_line(), *self._run(content, kind)]
        return [*pieces, *self.break_line()]

    def _run(self, text: str, kind: Kind) -> list[Piece]:
        """Text that goes on where the line stands, if it is of the same kind."""
        if not text:
            return []
        before = self.break_line() if self._open not in (kind, None) else []
        self._open = None if text.endswith("\n") else kind
        return [*before, Piece(clean(text), kind)]

    def _aside(self, event: Event) -> list[Piece]:
        if event.type == "agent_run_end":  # no message outlives its turn
            self._shown.clear()
        told = aside(event)
        return self.line(*told) if told else []


def aside(event: Event) -> Piece | None:
    """What an event that is no text says in a conversation; None for what goes without saying."""
    if event.type in _SILENT:
        return None
    tell = _ASIDES.get(event.type)
    return tell(event) if tell else Piece(f"{short(event.type)} {short(event.data)}", "note")


def _tool_call(event: Event) -> Piece:
    return Piece(f"→ {short(event.text_of('name'))} {short(event.get('arguments', {}))}", "tool")


def _tool_result(event: Event) -> Piece:
    head = f"← {short(event.text_of('name'))}"
    took = duration(event.get("elapsedMs", None))
    if event.get("success", True) is False:
        said = short(event.text_of("error") or event.text_of("content"))
        return Piece(" ".join(filter(None, (head, "failed", took and f"after {took}:", said))), "error")
    return Piece(
        " ".join(filter(None, (head, took and f"({took})", short(event.text_of("content"))))), "tool"
    )


def _error(event: Event) -> Piece:
    code = event.text_of("code")
    message = clean(event.text_of("error")).replace("\n", " ")
    return Piece(f"{message} ({short(code)})" if code else message, "error")


def _run_end(event: Event) -> Piece:
    status = event.text_of("status")
    took = duration(event.get("elapsedMs", None))
    result = f" {short(event.data['data'])}" if isinstance(event.data, dict) and "data" in event.data else ""
    text = f"{short(status)}{took and f' after {took}'}{result}"
    return Piece(text, "note" if status == "completed" else "error")


def _session_end(event: Event) -> Piece:
    return Piece("The session was deleted.", "error")


_ASIDES: dict[str, Callable[[Event], Piece]] = {
    "tool_call": _tool_call,
    "tool_result": _tool_result,
    "error": _error,
    "agent_run_end": _run_end,
    "session_end": _session_end,
}
_SILENT = {
    "user_message",
    "agent_run_start",
    "assistant_message_start",
    "tool_execution_start",
    "session_start",
}
_KINDS: dict[str, Kind] = {
    "user_message": "plain",
    "assistant_message": "answer",
    "assistant_message_delta": "answer",
    "assistant_thinking_message": "thinking",
    "assistant_thinking_delta": "thinking",
    "tool_execution_start": "tool",
}
_TELLING = ("delta", "content", "name", "agentName", "messageId")
"""The fields that tell what an event is about, the most telling first."""


def line_of(event: Event, zone: tzinfo | None = None) -> list[Piece]:
    """Any event as one line: when, what, and what it says. `zone` is that of the times; None: this machine's."""
    tell = _ASIDES.get(event.type)
    said = tell(event) if tell else Piece(_said(event), _KINDS.get(event.type, "note"))
    return [
        Piece(f"{_clock(event.timestamp, zone)}  ", "note"),
        Piece(f"{short(event.type):<26}  ", "plain"),
        Piece(f"{short(said.text, LONGEST_LINE)}\n", said.kind),
    ]


def _said(event: Event) -> str:
    """What an event says that a conversation doesn't mention."""
    for name in _TELLING:
        if value := event.get(name, None):
            return short(value, LONGEST_LINE)
    return short(event.data, LONGEST_LINE)


def _clock(timestamp: float | None, zone: tzinfo | None) -> str:
    try:
        moment = datetime.fromtimestamp((timestamp or 0) / 1000, tz=UTC).astimezone(zone)
    except (ValueError, OverflowError, OSError):
        return "--:--:--.---"
    return f"{moment:%H:%M:%S}.{moment.microsecond // 1000:03}"
