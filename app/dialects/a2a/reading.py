"""What the log's events mean for a task. Pure.

An event belongs to the task of its own turn, or, if that turn answers a question, to the task of the turn that asked
first; its metadata says so. So each event can be read alone, and `fold` makes a task of all of them.
"""

from collections.abc import Iterable
from functools import lru_cache
from typing import Any

from app.dialects.a2a.spelling import Message, State, Status, Task, answer_id, data_id
from app.events.canonical import decode
from app.events.ending import ASKS
from app.events.envelope import Envelope
from app.events.ids import event_id
from app.turns.exchanges import Exchange

_DELTA, _AFTER_DELTA = len(b'{"delta":'), b',"messageId":"'
_CONTENT, _AFTER_CONTENT = len(b'{"content":'), b',"role":"assistant"'

QUESTION_CLOSED = "question_closed"
MARKS = "a2a"
CANCELING = frozenset({"aborted", "server_shutdown"})
CATEGORIES = {
    "context_length_exceeded": "context_limit",
    "rate_limited": "rate_limit",
    "authentication_failed": "authentication",
    "provider_timeout": "timeout",
    "deadline_exceeded": "timeout",
    "agent_silent": "timeout",
    "permission_denied": "permission",
}
"""What callers show for a failure's code; the metadata of a failed status has both."""

STATES: dict[str, State] = {
    "running": "working",
    "asking": "input-required",
    "completed": "completed",
    "failed": "failed",
    "interrupted": "failed",
    "aborted": "canceled",
}


def task_of(event: Envelope) -> str | None:
    """The task that the event belongs to; None outside of turns."""
    if event.turn_id is None or b'"continues"' not in event.metadata:
        return event.turn_id
    return _continued(event.metadata) or event.turn_id


def delta_of(event: Envelope) -> memoryview:
    """The text of a delta, as it is encoded: the first of its two fields."""
    return memoryview(event.data)[_DELTA : event.data.rindex(_AFTER_DELTA)]


def content_of(event: Envelope) -> memoryview:
    """The same of a message that closes."""
    return memoryview(event.data)[_CONTENT : event.data.rindex(_AFTER_CONTENT)]


@lru_cache(maxsize=1024)
def _continued(metadata: bytes) -> str | None:
    first: str | None = decode(metadata).get("continues")
    return first


def user_message(event: Envelope) -> Message:
    """What the user said; under the caller's own id if it came over A2A."""
    marks = decode(event.metadata).get(MARKS, {})
    message_id = marks.get("messageId") or event_id(event.session_id, event.place)
    return Message(
        message_id, decode(event.data)["content"], is_user=True, metadata=marks.get("metadata") or {}
    )


def failure(event: Envelope) -> Status:
    """The status that a turn's `error` event means."""
    data = decode(event.data)
    code = data["code"]
    metadata = {"code": code, "retryable": data["recoverable"]}
    if (category := CATEGORIES.get(code)) is not None:
        metadata["error_code"] = category
    message = Message(event_id(event.session_id, event.place), data["error"] or code, metadata=metadata)
    return Status("canceled" if code in CANCELING else "failed", event.timestamp, message)


def completion(event: Envelope, data: dict[str, Any]) -> Status:
    """The status that the end of a turn that completed means."""
    if data.get("code") != ASKS:
        return Status("completed", event.timestamp)
    message = Message(event_id(event.session_id, event.place), data["question"])
    return Status("input-required", event.timestamp, message)


def closed_task(event: Envelope) -> str | None:
    """The task whose question this event closes, if it closes one."""
    if event.type != QUESTION_CLOSED:
        return None
    task_id: str = decode(event.data)["turnId"]
    return task_id


class Fold:
    """Takes a task's events, oldest first, and is the task."""

    def __init__(self, exchange: Exchange, context_id: str) -> None:
        self._exchange = exchange
        self._context_id = context_id
        self._history: list[Message] = []
        self._texts: dict[str, list[memoryview]] = {}
        self._open: list[memoryview] = []
        self._data: dict[str, Any] = {}
        self._status = Status("submitted", exchange.updated_at)

    def take(self, events: Iterable[Envelope]) -> None:
        """Take those that belong to the task."""
        for event in events:
            if task_of(event) == self._exchange.id and event.turn_id is not None:
                self._take(event, event.turn_id)

    def task(self) -> Task:
        """The task, in the state that its exchange has."""
        state = STATES[self._exchange.state]
        status = self._status
        if status.state != state:
            # A question that was closed, by hand or because the session went on: it is history then.
            self._past_question()
            status = Status(state, max(status.timestamp, self._exchange.updated_at))
        if self._open:
            self._texts[self._exchange.last_turn] += self._open
            self._open = []
        is_over = state not in ("submitted", "working")
        texts = {turn: _joined(said) for turn, said in self._texts.items()}
        return Task(
            self._exchange.id,
            self._context_id,
            status,
            self._history,
            {answer_id(turn): text for turn, text in texts.items() if text != b'""' or not is_over},
            {data_id(turn): data for turn, data in self._data.items()},
            self._exchange.last_place,
        )

    def _take(self, event: Envelope, turn_id: str) -> None:
        match event.type:
            case "user_message":
                self._past_question()
                self._history.append(user_message(event))
            case "agent_run_start":
                self._status = Status("working", event.timestamp)
                self._texts[turn_id] = []
            case "assistant_message_delta":
                self._open.append(delta_of(event))
            case "assistant_message":
                self._texts[turn_id].append(content_of(event))
                self._open = []
            case "error":
                self._status = failure(event)
            case "agent_run_end":
                self._end(event, turn_id)

    def _end(self, event: Envelope, turn_id: str) -> None:
        data = decode(event.data)
        if data["status"] == "completed":
            self._status = completion(event, data)
        if "data" in data:
            self._data[turn_id] = data["data"]

    def _past_question(self) -> None:
        if self._status.state == "input-required" and self._status.message is not None:
            self._history.append(self._status.message)


def _joined(texts: Iterable[memoryview]) -> bytes:
    """One JSON text of several, without parsing any."""
    return b"".join((b'"', *(text[1:-1] for text in texts), b'"'))
