"""Both versions of A2A over JSON-RPC: spells what is asked, reads what is answered into one form. No I/O.

Replies are read by their shape and not by the version that was asked for, as agents mix them; what is missing is taken
for absent, what is of a wrong type is refused with BadRemoteEvent. A result that has artifacts and nothing else is a
completed task: agentfootprint answers so.

Source: A2A specification 1.0.1 and 0.3.0.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from app.agents.adapters.a2a.card import Version
from app.agents.adapters.remote_failures import BadRemoteEvent
from app.agents.contract import Json, Prompt

_OLD_NAMES = {
    "SendMessage": "message/send",
    "SendStreamingMessage": "message/stream",
    "GetTask": "tasks/get",
    "CancelTask": "tasks/cancel",
    "SubscribeToTask": "tasks/resubscribe",
}

SETTLED = frozenset({"completed", "failed", "canceled", "rejected", "input-required", "auth-required"})
"""The states in which a task waits for its caller, or for nobody."""


@dataclass(frozen=True, slots=True)
class Data:
    """A part that is structured."""

    value: Json


@dataclass(frozen=True, slots=True)
class File:
    """A part that is a file, by its address or by its bytes in base64."""

    name: str
    media_type: str
    url: str | None
    raw: str | None


Other: TypeAlias = Data | File


@dataclass(frozen=True, slots=True)
class Content:
    """What parts hold: their text, joined, and the others in order."""

    text: str = ""
    others: tuple[Other, ...] = ()


@dataclass(frozen=True, slots=True)
class Message:
    """What somebody said. `is_agents`: the agent, not its caller."""

    id: str
    is_agents: bool
    content: Content
    metadata: Mapping[str, Any]
    task_id: str
    context_id: str


@dataclass(frozen=True, slots=True)
class Status:
    """A task's state, in the old spelling (`input-required`), and what was said with it."""

    state: str
    message: Message | None = None
    timestamp: str = ""


@dataclass(frozen=True, slots=True)
class Artifact:
    id: str
    content: Content


@dataclass(frozen=True, slots=True)
class Task:
    """A whole task."""

    id: str
    context_id: str
    status: Status
    artifacts: tuple[Artifact, ...]
    history: tuple[Message, ...]
    metadata: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class StatusUpdate:
    task_id: str
    context_id: str
    status: Status
    metadata: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ArtifactUpdate:
    task_id: str
    context_id: str
    artifact: Artifact
    appends: bool


Reply: TypeAlias = Task | Message | StatusUpdate | ArtifactUpdate


# ── what is asked ────────────────────────────────────────────────────────────────────────────────────────────────────


def request(version: Version, method: str, params: Json, number: int) -> Json:
    """The JSON-RPC request. `method` is named as in 1.0."""
    name = method if version == "1.0" else _OLD_NAMES[method]
    return {"jsonrpc": "2.0", "id": number, "method": name, "params": params}


def sending(
    version: Version,
    prompt: Prompt,
    message_id: str,
    *,
    context_id: str = "",
    task_id: str = "",
    waits: bool = True,
) -> Json:
    """The parameters that send a prompt. `waits`: the answer may take as long as the task does."""
    is_new = version == "1.0"
    message = {"messageId": message_id, "role": "ROLE_USER" if is_new else "user"}
    message |= {} if is_new else {"kind": "message"}
    message |= {"contextId": context_id} if context_id else {}
    message |= {"taskId": task_id} if task_id else {}
    params: dict[str, Any] = {"message": {**message, "parts": _parts(prompt, is_new=is_new)}}
    if not waits:
        params["configuration"] = {"returnImmediately": True} if is_new else {"blocking": False}
    return params


def _parts(prompt: Prompt, *, is_new: bool) -> list[Json]:
    images = prompt.get("images", [])
    parts: list[Json] = []
    if prompt["text"] or not images:
        parts.append({"text": prompt["text"]} if is_new else {"kind": "text", "text": prompt["text"]})
    for image in images:
        if is_new:
            parts.append({"raw": image["data"], "mediaType": image["mimeType"]})
        else:
            file = {"bytes": image["data"], "mimeType": image["mimeType"]}
            parts.append({"kind": "file", "file": file})
    return parts


# ── what is answered ─────────────────────────────────────────────────────────────────────────────────────────────────


def reply(result: Any) -> Reply:
    """The result of a call, or of an event of a stream. Raises BadRemoteEvent."""
    found = _object(result, "a result")
    for wrapper in ("task", "message", "statusUpdate", "artifactUpdate"):
        if len(found) == 1 and wrapper in found:
            found = _object(found[wrapper], f"`{wrapper}`")
            break
    if "artifact" in found:
        artifact = _artifact(found["artifact"])
        return ArtifactUpdate(
            _word(found, "taskId"), _word(found, "contextId"), artifact, found.get("append") is True
        )
    if "parts" in found:
        return _message(found)
    if "taskId" in found and "status" in found:
        status = _status(found["status"])
        return StatusUpdate(_word(found, "taskId"), _word(found, "contextId"), status, _metadata(found))
    if "status" in found or "artifacts" in found:
        return _task(found)
    raise BadRemoteEvent("a result must be a task, a message, or an update of a task")


def listed_tasks(result: Any) -> tuple[list[Task], str]:
    """The tasks of a page, and where the next one begins, if there is one. Raises BadRemoteEvent."""
    found = _object(result, "a list of tasks")
    return [_task(_object(each, "a task")) for each in _list(found, "tasks")], _word(found, "nextPageToken")


def _task(found: Mapping[str, Any]) -> Task:
    return Task(
        _word(found, "id"),
        _word(found, "contextId"),
        _status(found["status"]) if "status" in found else Status("completed"),
        tuple(_artifact(each) for each in _list(found, "artifacts")),
        tuple(_message(_object(each, "a message")) for each in _list(found, "history")),
        _metadata(found),
    )


def _status(value: Any) -> Status:
    found = _object(value, "a status")
    state = _word(found, "state").removeprefix("TASK_STATE_").lower().replace("_", "-")
    said = found.get("message")
    message = None if said is None else _message(_object(said, "a message"))
    return Status("canceled" if state == "cancelled" else state, message, _word(found, "timestamp"))


def _message(found: Mapping[str, Any]) -> Message:
    role = _word(found, "role").removeprefix("ROLE_").lower()
    return Message(
        _word(found, "messageId"),
        role != "user",
        _content(_list(found, "parts")),
        _metadata(found),
        _word(found, "taskId"),
        _word(found, "contextId"),
    )


def _artifact(value: Any) -> Artifact:
    found = _object(value, "an artifact")
    return Artifact(_word(found, "artifactId"), _content(_list(found, "parts")))


def _content(parts: Sequence[Any]) -> Content:
    texts: list[str] = []
    others: list[Other] = []
    for value in parts:
        part = _object(value, "a part")
        if "text" in part:
            texts.append(_word(part, "text"))
        elif "data" in part:
            others.append(Data(part["data"]))
        elif "file" in part:
            file = _object(part["file"], "a file")
            others.append(_file(file, "uri", "bytes", "mimeType"))
        elif "raw" in part or "url" in part:
            others.append(_file(part, "url", "raw", "mediaType"))
    return Content("".join(texts), tuple(others))


def _file(found: Mapping[str, Any], url: str, raw: str, media_type: str) -> File:
    name = _word(found, "name") or _word(found, "filename")
    return File(name, _word(found, media_type), _word(found, url) or None, _word(found, raw) or None)


def _metadata(found: Mapping[str, Any]) -> Mapping[str, Any]:
    metadata = found.get("metadata")
    return metadata if isinstance(metadata, dict) else {}


def _object(value: Any, what: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise BadRemoteEvent(f"{what} must be an object, not {type(value).__name__}")
    return value


def _list(found: Mapping[str, Any], key: str) -> list[Any]:
    value = found.get(key)
    if value is None:
        return []
    if not isinstance(value, list):
        raise BadRemoteEvent(f"`{key}` must be a list, not {type(value).__name__}")
    return value


def _word(found: Mapping[str, Any], key: str) -> str:
    value = found.get(key)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise BadRemoteEvent(f"`{key}` must be text, not {type(value).__name__}")
    return value
