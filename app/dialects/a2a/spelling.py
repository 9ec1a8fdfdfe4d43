"""How A2A spells messages, parts, statuses, artifacts and tasks, in 1.0 and in 0.3. Pure: values in, JSON out.

Written by hand, where the SDK would take protobuf in between: its strings refuse what the log keeps, its numbers are
floats, and it takes several times as long. Tests hold every word of it against the SDK's own reading.

A lone surrogate, which many JSON readers refuse, becomes U+FFFD here.

Source: A2A specification 1.0.1, chapter 4 (data model) and 9 (JSON-RPC); 0.3.0, chapters 6 and 7.
"""

import re
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal, TypeAlias

import orjson

from app.events.canonical import MAX_DEPTH, decode, encode, escape_line_ends

Version: TypeAlias = Literal["1.0", "0.3"]
State: TypeAlias = Literal["submitted", "working", "input-required", "completed", "failed", "canceled"]

Json: TypeAlias = dict[str, Any]

WRAPPING = 20
"""Levels that a task has around what the log has kept."""

FINAL = frozenset({"completed", "failed", "canceled"})

_HOLE = b"\0"
"""Stands where a text goes in: no JSON has it."""

_LONE = re.compile(
    rb"(?<!\\)((?:\\\\)*)(\\ud[89ab][0-9a-f]{2}\\ud[c-f][0-9a-f]{2}|\\ud[89a-f][0-9a-f]{2})", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class Message:
    """A message of the task's history or of its status.

    `content` is what the log has: a text, or Tarko's content parts.
    """

    id: str
    content: str | list[Json]
    is_user: bool = False
    metadata: Json = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Status:
    """A task's state since `timestamp` (epoch ms), with a message for people where there is one."""

    state: State
    timestamp: int
    message: Message | None = None


@dataclass(frozen=True, slots=True)
class Task:
    """A task as it stood at a place of its session's log.

    By artifact, `texts` are the answers of its turns, as JSON and never parsed, and `data` their results.
    """

    id: str
    context_id: str
    status: Status
    history: list[Message]
    texts: dict[str, bytes]
    data: dict[str, Any]
    place: int


def json_of(value: Any) -> bytes:
    """The value as JSON that every reader takes. It came from the log, so it is JSON; bytes in it are so literally."""
    return b"".join(pieces_of(value))


def pieces_of(value: Any) -> list[bytes]:
    """The same in pieces: a text that came as bytes is one of them, and not copied."""
    texts: list[bytes] = []

    def hole(text: bytes) -> orjson.Fragment:
        texts.append(text)
        return orjson.Fragment(_HOLE)

    try:
        around = orjson.dumps(value, default=hole)
    except orjson.JSONEncodeError:
        return [clean(encode(_plain(value), max_depth=MAX_DEPTH + WRAPPING))]
    around = clean(around if around.isascii() else escape_line_ends(around))
    first, *others = around.split(_HOLE)
    return [first, *(piece for pair in zip(map(clean, texts), others, strict=True) for piece in pair)]


def _plain(value: Any) -> Any:
    """The value with its bytes parsed, for what orjson refuses to write."""
    if isinstance(value, bytes):
        return decode(value)
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list) else value


def clean(encoded: bytes) -> bytes:
    """JSON without lone surrogates."""
    if b"\\ud" not in encoded:
        return encoded
    return _LONE.sub(lambda found: found[0] if len(found[2]) > 6 else found[1] + b"\\ufffd", encoded)


def result(task: Task, version: Version, *, history: int | None = None, artifacts: bool = True) -> Json:
    """The task; with its last `history` messages (None: all) and, if wanted, its artifacts."""
    told: Json = {"id": task.id, "contextId": task.context_id, "status": _status(task.status, task, version)}
    if artifacts:
        told["artifacts"] = [
            *(_text_artifact(name, text, version) for name, text in task.texts.items()),
            *(data_artifact(name, value, version) for name, value in task.data.items()),
        ]
    messages = task.history if history is None else task.history[-history:] if history else []
    told["history"] = [_message(message, task.id, task.context_id, version) for message in messages]
    if task.status.message is not None and task.status.message.metadata:
        told["metadata"] = task.status.message.metadata
    return {"kind": "task", **told} if version == "0.3" else told


def streamed_task(task: Task, version: Version) -> Json:
    """The task as an event of a stream."""
    told = result(task, version)
    return told if version == "0.3" else {"task": told}


def status_update(
    status: Status, task_id: str, context_id: str, version: Version, *, ends_stream: bool
) -> Json:
    """A change of the status as an event of a stream."""
    told: Json = {
        "taskId": task_id,
        "contextId": context_id,
        "status": _told_status(status, task_id, context_id, version),
    }
    if status.message is not None and status.message.metadata:
        told["metadata"] = status.message.metadata
    if version == "0.3":
        return {"kind": "status-update", **told, "final": ends_stream}
    return {"statusUpdate": told}


def artifact_update(
    artifact: Json, task_id: str, context_id: str, version: Version, *, append: bool = False
) -> Json:
    """An artifact, or what is added to one, as an event of a stream."""
    told: Json = {"taskId": task_id, "contextId": context_id, "artifact": artifact}
    if append:
        told["append"] = True
    return {"kind": "artifact-update", **told} if version == "0.3" else {"artifactUpdate": told}


def answer_id(turn_id: str) -> str:
    """The artifact that holds all text of a turn."""
    return f"answer_{turn_id.removeprefix('turn_')}"


def data_id(turn_id: str) -> str:
    """The artifact that holds a turn's structured result."""
    return f"data_{turn_id.removeprefix('turn_')}"


def text_opener(artifact_id: str, version: Version) -> Json:
    """An answer that has not begun: everything that follows is appended to it."""
    return _text_artifact(artifact_id, b'""', version)


def data_artifact(artifact_id: str, value: Any, version: Version) -> Json:
    """A structured result. 0.3 knows objects only, so others are wrapped."""
    part = {"data": value}
    if version == "0.3":
        part = {"kind": "data", "data": value if isinstance(value, dict) else {"value": value}}
    return {"artifactId": artifact_id, "name": "data", "parts": [part]}


def delta_around(task_id: str, context_id: str, artifact_id: str, version: Version) -> tuple[bytes, bytes]:
    """What stands before and after the JSON text of a piece that is appended to an answer."""
    part: Json = {"text": "·"} if version == "1.0" else {"kind": "text", "text": "·"}
    artifact = {"artifactId": artifact_id, "parts": [part]}
    whole = json_of(artifact_update(artifact, task_id, context_id, version, append=True))
    before, _, after = whole.rpartition('"·"'.encode())
    return before, after


def _text_artifact(artifact_id: str, text: bytes, version: Version) -> Json:
    part = _text_part(text, version)
    return {"artifactId": artifact_id, "name": "answer", "parts": [part]}


def _status(status: Status, task: Task, version: Version) -> Json:
    return _told_status(status, task.id, task.context_id, version)


def _told_status(status: Status, task_id: str, context_id: str, version: Version) -> Json:
    state = status.state if version == "0.3" else f"TASK_STATE_{status.state.upper().replace('-', '_')}"
    told: Json = {"state": state, "timestamp": timestamp(status.timestamp)}
    if status.message is not None:
        told["message"] = _message(status.message, task_id, context_id, version)
    return told


def timestamp(epoch_ms: int) -> str:
    """The time in ISO 8601, UTC, with milliseconds."""
    return (
        datetime.fromtimestamp(epoch_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    )


def _message(message: Message, task_id: str, context_id: str, version: Version) -> Json:
    content = message.content
    parts = (
        [_text_part(content, version)] if isinstance(content, str) else [_part(p, version) for p in content]
    )
    role = "user" if message.is_user else "agent"
    told: Json = {
        "messageId": message.id,
        "contextId": context_id,
        "taskId": task_id,
        "role": role if version == "0.3" else f"ROLE_{role.upper()}",
        "parts": parts,
    }
    if message.metadata:
        told["metadata"] = message.metadata
    return {"kind": "message", **told} if version == "0.3" else told


def _text_part(text: str | bytes, version: Version) -> Json:
    return {"text": text} if version == "1.0" else {"kind": "text", "text": text}


def _part(part: Json, version: Version) -> Json:
    """One of Tarko's content parts: a text, or an image as a data URL."""
    if part["type"] == "text":
        return _text_part(part["text"], version)
    image = part["image_url"]
    head, _, data = (image["url"] if isinstance(image, dict) else image).partition(",")
    media_type = head.removeprefix("data:").removesuffix(";base64")
    if version == "1.0":
        return {"raw": data, "mediaType": media_type}
    return {"kind": "file", "file": {"bytes": data, "mimeType": media_type}}
