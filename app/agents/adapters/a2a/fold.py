"""Folds what a remote agent answers in one turn into an agent's events. No I/O.

Artifacts are the answer: their text is `text`, their files are `artifact_file` events, their data become
`completed.data` (the value if there is one, a list if there are more). What a status says while the task works is
`thinking`. A status that ends the task and an artifact-less answer, a question that waits for the user, and failures
are told by `close`, once all was read: what comes behind the status may still hold text.

Everything may come again, in a snapshot of the task: nothing is told that was told before.
"""

from collections.abc import Mapping
from typing import Any

from app.agents.adapters.a2a.known import NOTHING, Known
from app.agents.adapters.a2a.told import Told
from app.agents.adapters.a2a.wire import (
    SETTLED,
    ArtifactUpdate,
    Content,
    Data,
    Message,
    Other,
    Reply,
    Status,
    StatusUpdate,
    Task,
)
from app.agents.adapters.pieces import deltas
from app.agents.contract import AgentEvent, Json

_DETAILS_LIMIT = 2_000
NO_QUESTION = "The agent asks for input."
_CODES = ("code", "error_code", "kagent_error_code")
_ENDED = {
    "failed": ("agent_failed", "The remote task failed."),
    "rejected": ("rejected", "The remote agent rejected the task."),
    "canceled": ("canceled", "The remote task was canceled."),
    "auth-required": ("auth_required", "The remote agent asks for credentials, which can't be given here."),
}


class TaskFold:
    """One turn. `signs` counts what has changed: a task whose count stands still shows no sign of life."""

    def __init__(self, known: Known = NOTHING) -> None:
        self.task_id = known.task_id if known.question else ""
        self.context_id = known.context_id
        self.signs = 0
        self._question = known.question
        self._told: dict[str, Told] = dict(known.told)
        self._status = Status("")
        self._metadata: Mapping[str, Any] = {}
        self._thoughts: set[str] = set()
        self._has_text = False
        self._last_text = ""
        self._data: list[Json] = []
        self._snapshot: object = None
        self._last_words: Message | None = None
        self._is_whole = False
        self._blame = ""

    @property
    def is_settled(self) -> bool:
        """Whether the task goes on no more, unless it is answered."""
        return self._status.state in SETTLED

    @property
    def is_over(self) -> bool:
        """Whether nothing is left on the remote side that could be canceled."""
        return self.is_settled and self._status.state != "auth-required"

    def may_lack_text(self, *, was_cut: bool) -> bool:
        """Whether the whole task should be looked at: its end came without it, and something may not have come."""
        has_words = self._status.message is not None and self._status.message.content.text
        return not self._is_whole and bool(self.task_id) and (was_cut or not (self._has_text or has_words))

    def blame(self, details: str) -> None:
        """Say this of a task that failed and does not say why."""
        self._blame = details

    @property
    def known(self) -> Known:
        """What the next turn must know."""
        if self._status.state != "input-required":
            return Known(self.context_id, self.task_id)
        return Known(self.context_id, self.task_id, _mark(self._status), self._told)

    def take(self, reply: Reply) -> list[AgentEvent]:
        """What the agent says by this reply."""
        self._is_whole = isinstance(reply, Task | Message)
        self._name(reply)
        match reply:
            case Task():
                return self._take_task(reply)
            case StatusUpdate():
                self.signs += 1
                return self._take_status(reply.status, reply.metadata)
            case ArtifactUpdate(artifact=artifact):
                self.signs += 1
                told = self._told.get(artifact.id)
                if told is None:
                    self._told[artifact.id] = told = Told()
                said = (told.add if reply.appends else told.replace)(artifact.content)
                return self._say(artifact.id, said)
            case message:
                self.signs += 1
                self._status = Status("completed")
                return self._say(message.id, message.content)

    def close(self) -> list[AgentEvent]:
        """What is left to say of a task that is settled, the terminal event last."""
        status = self._status
        words = status.message.content if status.message is not None else Content()
        if status.state == "input-required":
            return self._ask(words)
        if status.state == "completed":
            return self._complete(words)
        code, details = _ENDED[status.state]
        marks = {**self._metadata, **(status.message.metadata if status.message is not None else {})}
        named = [marks[key] for key in _CODES if isinstance(marks.get(key), str) and marks[key]]
        return [
            {
                "type": "failed",
                "details": (words.text or self._blame)[:_DETAILS_LIMIT] or details,
                "retryable": marks.get("retryable") is True,
                "code": named[0] if named and status.state != "auth-required" else code,
            }
        ]

    def _name(self, reply: Reply) -> None:
        task_id = reply.id if isinstance(reply, Task) else reply.task_id
        if task_id and task_id != self.task_id:
            # Artifacts of another task may have the same names.
            self._told.clear()
            self._question = ""
            self.task_id = task_id
        self.context_id = reply.context_id or self.context_id

    def _take_task(self, task: Task) -> list[AgentEvent]:
        sizes = [(len(each.content.text), len(each.content.others)) for each in task.artifacts]
        snapshot = (task.status.state, _mark(task.status), sizes, len(task.history))
        if snapshot != self._snapshot:
            self._snapshot = snapshot
            self.signs += 1
        said: list[AgentEvent] = []
        for artifact in task.artifacts:
            told = self._told.setdefault(artifact.id, Told())
            said += self._say(artifact.id, told.catch_up(artifact.content))
        said += self._take_status(task.status, task.metadata)
        self._last_words = None
        for message in task.history:
            self._last_words = message if message.is_agents else None
        return said

    def _take_status(self, status: Status, metadata: Mapping[str, Any]) -> list[AgentEvent]:
        if self.is_settled and status.state not in SETTLED:
            return []
        if status.state == "input-required" and self._question and _mark(status) == self._question:
            return []  # the question that is being answered
        self._status, self._metadata = status, metadata
        if status.state in SETTLED:
            return []
        self._question = ""
        return self._think(status.message)

    def _think(self, message: Message | None) -> list[AgentEvent]:
        if message is None or not message.content.text or not message.is_agents:
            return []
        key = message.id or message.content.text
        if key in self._thoughts:
            return []
        line = "\n" if self._thoughts else ""
        self._thoughts.add(key)
        return deltas("thinking", line + message.content.text)

    def _say(self, artifact_id: str, said: Content) -> list[AgentEvent]:
        events = self._text(said.text)
        for other in said.others:
            events += self._other(artifact_id, other)
        return events

    def _text(self, text: str) -> list[AgentEvent]:
        if not text:
            return []
        self._has_text = True
        self._last_text = (self._last_text + text)[-len(text) - 10_000 :]
        return deltas("text", text)

    def _other(self, artifact_id: str, other: Other) -> list[AgentEvent]:
        match other:
            case Data(value):
                self._data.append(value)
                return []
            case file:
                event = {"type": "artifact_file", "artifactId": artifact_id}
                told = {
                    "name": file.name,
                    "mediaType": file.media_type,
                    "url": file.url,
                    "bytes": file.raw,
                }
                return [event | {key: value for key, value in told.items() if value}]

    def _ask(self, words: Content) -> list[AgentEvent]:
        question = words.text if words.text.strip() else NO_QUESTION
        said: list[AgentEvent] = []
        if not self._last_text.endswith(question):
            said += self._text(f"\n\n{question}" if self._has_text else question)
        said.append({"type": "input_required", "text": question})
        return said + self._completed(words)

    def _complete(self, words: Content) -> list[AgentEvent]:
        said: list[AgentEvent] = []
        if not self._has_text and not words.text and self._last_words is not None:
            words = Content(self._last_words.content.text, words.others)
        if not self._has_text:
            said += self._text(words.text)
        return said + self._completed(words)

    def _completed(self, words: Content) -> list[AgentEvent]:
        said = [event for other in words.others for event in self._other("", other)]
        terminal: AgentEvent = {"type": "completed"}
        if self._data:
            terminal = {"type": "completed", "data": self._data[0] if len(self._data) == 1 else self._data}
        return [*said, terminal]


def _mark(status: Status) -> str:
    """Two questions are the same if both the message and the time are."""
    message = status.message
    return f"{message.id if message is not None else ''} {status.timestamp}"
