"""How the flat dialect spells an event: `id`, `type`, `timestamp`, and the event's own fields beside them.

A function of one event each, so history and live stream are the same bytes. Most events are one flat event, a
`tool_call` is two, and some are none: `SPOKEN` and `SILENT` say which. The text of messages is not parsed again: the
translation writes `content` and `delta` first, and the rest of the data follows as it is stored.

Deliberate oddities:
- Each tool call comes in an assistant message of its own, since the UI draws a tool's card from `toolCalls` alone. A
  message for the whole segment would have to repeat the segment's text and all its calls with every further call.
- The empty message that closes a turn which failed or was aborted is silent: it would be an empty bubble.

Source: the events of Tarko's reference server, and what its UI was seen to do with each.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

from app.events.canonical import decode, encode, encode_text
from app.events.envelope import Envelope, now_ms
from app.events.ids import event_id, event_id_prefix

_STATUS = {"completed": "idle", "failed": "error", "interrupted": "error", "aborted": "aborted"}
_DELTAS = {
    "assistant_message_delta": b'","type":"assistant_streaming_message","timestamp":',
    "assistant_thinking_delta": b'","type":"assistant_streaming_thinking_message","timestamp":',
}
_DELTA = len(b'{"delta":')
_NOTHING_SAID = b'{"content":"",'
_OWN_TYPES = frozenset(
    {"assistant_streaming_message", "assistant_streaming_thinking_message", "system", "session_created"}
)
_BASE = frozenset({"id", "type", "timestamp"})


def spell(event: Envelope) -> list[bytes]:
    """The flat events that this one is, each as JSON."""
    speak = SPOKEN.get(event.type)
    if speak is not None:
        return speak(event)
    return [] if event.type in SILENT else _custom(event)


def frames(events: Sequence[Envelope]) -> bytes:
    """The frames of a stream: `data:` lines alone, since the UI takes no others."""
    parts: list[bytes] = []
    for event in events:
        head = _DELTAS.get(event.type)
        if head is not None:
            parts += (b"data: ", *_delta_parts(event, head), b"\n\n")
        else:
            parts += [frame(each) for each in spell(event)]
    return b"".join(parts)


def frame(flat: bytes) -> bytes:
    """The frame of one flat event."""
    return b"data: %b\n\n" % flat


def refused(session_id: str, place: int, code: str, why: str) -> bytes:
    """The frames that tell why no turn was started: a notice and an end. They are not in the log, which is at `place`."""
    own_id = event_id(session_id, place)
    base = {"timestamp": now_ms(), "sessionId": session_id}
    notice = {"level": "error", "message": why, "details": {"errorCode": code}}
    end = {"iterations": 0, "elapsedMs": 0, "status": "error"}
    return frame(encode({"id": f"{own_id}~1", "type": "system"} | base | notice)) + frame(
        encode({"id": f"{own_id}~2", "type": "agent_run_end"} | base | end)
    )


def message(event: Envelope) -> bytes:
    """An `assistant_message`, be it empty. Its metadata knows how long the first and the last piece took."""
    marks = decode(event.metadata)
    timing = b"".join(
        b',"%b":%d' % (key.encode(), marks[key]) for key in ("ttftMs", "ttltMs") if key in marks
    )
    return b"".join((_base(event, event.type), b",", event.data[1:-1], timing, b"}"))


def _delta_parts(event: Envelope, head: bytes) -> tuple[bytes, ...]:
    return (
        b'{"id":"',
        _prefix(event.session_id),
        b"%d" % event.place,
        head,
        b"%d" % event.timestamp,
        b',"content":',
        event.data[_DELTA:],
    )


def _delta(event: Envelope) -> list[bytes]:
    return [b"".join(_delta_parts(event, _DELTAS[event.type]))]


def _as_stored(event: Envelope) -> list[bytes]:
    return [b"".join((_base(event, event.type), b",", event.data[1:]))]


def _message(event: Envelope) -> list[bytes]:
    if event.data.startswith(_NOTHING_SAID) and decode(event.data)["finishReason"] in ("error", "abort"):
        return []
    return [message(event)]


def _run_start(event: Envelope) -> list[bytes]:
    data = decode(event.data)
    return [
        _flat(event, event.type, sessionId=event.session_id, runOptions={}, agentName=data["agentName"]),
    ]


def _thinking(event: Envelope) -> list[bytes]:
    data = decode(event.data)
    return [
        _flat(
            event,
            event.type,
            content=data["content"],
            isComplete=True,
            thinkingDurationMs=data["durationMs"],
            messageId=data["messageId"],
        )
    ]


def _tool_call(event: Envelope) -> list[bytes]:
    data = decode(event.data)
    function = {"name": data["name"], "arguments": encode(data["arguments"]).decode()}
    card = _flat(
        event,
        "assistant_message",
        "~1",
        content="",
        toolCalls=[{"id": data["id"], "type": "function", "function": function}],
        finishReason="tool_calls",
        messageId=f"{data['messageId']}_{data['id']}",
    )
    call = _flat(
        event,
        event.type,
        toolCallId=data["id"],
        name=data["name"],
        arguments=data["arguments"],
        startTime=event.timestamp,
        tool={"name": data["name"], "description": "", "schema": {}},
    )
    return [card, call]


def _tool_result(event: Envelope) -> list[bytes]:
    data = decode(event.data)
    error = {} if data["success"] else {"error": data["error"]}
    return [
        _flat(
            event,
            event.type,
            toolCallId=data["toolCallId"],
            name=data["name"],
            content=data.get("rawContent", data["content"]),
            elapsedMs=data["elapsedMs"],
            **error,
        )
    ]


def _error(event: Envelope) -> list[bytes]:
    data = decode(event.data)
    level = "info" if data["code"] == "aborted" else "error"  # that somebody stopped it is no fault
    details = {"errorCode": data["code"], "retryable": data["recoverable"]}
    return [_flat(event, "system", level=level, message=data["error"], details=details)]


def _run_end(event: Envelope) -> list[bytes]:
    data = decode(event.data)
    end: dict[str, Any] = {
        "sessionId": event.session_id,
        "iterations": decode(event.metadata).get("iterations", 1),
        "elapsedMs": data["elapsedMs"],
        "status": _STATUS[data["status"]],
    }
    return [_flat(event, event.type, **end, **({"data": data["data"]} if "data" in data else {}))]


def _retrying(event: Envelope) -> list[bytes]:
    """A notice. An agent that says `retrying` in words of its own is passed on as it is."""
    match decode(event.data):
        case {"attempt": int(n), "maxAttempts": int(of), "delayMs": int(ms), "reason": str(why)}:
            details = {"attempt": n, "maxAttempts": of, "delayMs": ms, "reason": why}
            text = f"Attempt {n} of {of} failed ({why}); the next one begins in {ms} ms."
            return [_flat(event, "system", level="warning", message=text, details=details)]
        case _:
            return _custom(event)


def _custom(event: Envelope) -> list[bytes]:
    """An agent's or a client's own event. One that would be taken for an event of this dialect's gets another name."""
    data = decode(event.data)
    fields = data if isinstance(data, dict) else {"data": data}
    event_type = f"custom.{event.type}" if event.type in _OWN_TYPES else event.type
    own = {key: value for key, value in fields.items() if key not in _BASE}
    return [
        b"".join(
            (_base(event, event_type), b",", encode(own)[1:]) if own else (_base(event, event_type), b"}")
        )
    ]


SPOKEN: dict[str, Callable[[Envelope], list[bytes]]] = {
    "user_message": _as_stored,
    "agent_run_start": _run_start,
    "assistant_message_delta": _delta,
    "assistant_message": _message,
    "assistant_thinking_delta": _delta,
    "assistant_thinking_message": _thinking,
    "tool_call": _tool_call,
    "tool_result": _tool_result,
    "error": _error,
    "agent_run_end": _run_end,
    "retrying": _retrying,
}
"""What each event of the vocabulary is in this dialect."""

SILENT = frozenset({"session_start", "session_end", "assistant_message_start", "tool_execution_start"})
"""Events without a flat one: a session is no event here, and a message or a tool begins with its first words."""


def _flat(event: Envelope, event_type: str, mark: str = "", /, **fields: Any) -> bytes:
    return b"".join((_base(event, event_type, mark), b",", encode(fields)[1:]))


def _base(event: Envelope, event_type: str, mark: str = "") -> bytes:
    """A flat event's beginning. `mark` tells two of one event apart."""
    return b'{"id":"%b%d%b","type":%b,"timestamp":%d' % (
        _prefix(event.session_id),
        event.place,
        mark.encode(),
        _quoted(event_type),
        event.timestamp,
    )


@lru_cache(maxsize=4096)
def _prefix(session_id: str) -> bytes:
    return event_id_prefix(session_id).encode()


@lru_cache(maxsize=1024)
def _quoted(event_type: str) -> bytes:
    return encode_text(event_type)
