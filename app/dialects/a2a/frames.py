"""A page of the log as the events of a task's stream.

A function of the page alone, so readers of the same task share what was made: what differs between them, the id of
their request, is put around it as it is sent. The answer's artifact is opened, empty, when the run starts, so that each
delta can be appended without knowing whether it is the first; a delta's text is not parsed again.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

from app.dialects.a2a.reading import closed_task, completion, delta_of, failure, task_of, user_message
from app.dialects.a2a.spelling import (
    FINAL,
    State,
    Status,
    Task,
    Version,
    answer_id,
    artifact_update,
    clean,
    data_artifact,
    data_id,
    delta_around,
    json_of,
    status_update,
    streamed_task,
    text_opener,
)
from app.events.canonical import decode
from app.events.envelope import Envelope


class Spoken(NamedTuple):
    """The results that a page becomes; the place at which the stream ends, if it does; the last state, if one is told."""

    results: Sequence[bytes]
    end: int | None
    state: State | None


@dataclass(frozen=True, slots=True)
class Frames:
    """How a task's events are told in one version. Equal ones share what they made of a page.

    The stream ends with the task; one that is `until_question` also when the agent asks.
    """

    version: Version
    context_id: str
    task_id: str
    until_question: bool

    def __call__(self, events: Sequence[Envelope]) -> Spoken:
        told = _Telling(self)
        for event in events:
            if event.type == "assistant_message_delta":
                if task_of(event) == self.task_id:
                    told.results.append(self._delta(event))
            else:
                told.take(event)
                if told.end is not None:
                    break
        return Spoken(told.results, told.end, told.state)

    def _delta(self, event: Envelope) -> bytes:
        before, after = _around(self.task_id, self.context_id, event.turn_id or "", self.version)
        return before + clean(bytes(delta_of(event))) + after


class _Telling:
    """One page being told."""

    def __init__(self, frames: Frames) -> None:
        self._frames = frames
        self.results: list[bytes] = []
        self.end: int | None = None
        self.state: State | None = None

    def take(self, event: Envelope) -> None:
        task_id = self._frames.task_id
        if task_of(event) == task_id:
            self._take_own(event)
        elif closed_task(event) == task_id or event.type in ("user_message", "session_end"):
            # The session goes on with another turn, or not at all, so nobody will answer what this task asks.
            self._tell(Status("canceled", event.timestamp))
            self.end = event.place

    def _take_own(self, event: Envelope) -> None:
        frames = self._frames
        match event.type:
            case "user_message" if event.turn_id == frames.task_id:
                submitted = Status("submitted", event.timestamp)
                history = [user_message(event)]
                task = Task(frames.task_id, frames.context_id, submitted, history, {}, {}, event.place)
                self._say(streamed_task(task, frames.version))
            case "agent_run_start":
                self._tell(Status("working", event.timestamp))
                self._artifact(text_opener(answer_id(event.turn_id or ""), frames.version))
            case "error":
                self._tell(failure(event))
            case "agent_run_end":
                self._end(event)

    def _end(self, event: Envelope) -> None:
        data = decode(event.data)
        if "data" in data:
            self._artifact(data_artifact(data_id(event.turn_id or ""), data["data"], self._frames.version))
        if data["status"] == "completed":
            self._tell(completion(event, data))
        if self.state != "input-required" or self._frames.until_question:
            self.end = event.place

    def _artifact(self, artifact: dict[str, Any]) -> None:
        frames = self._frames
        self._say(artifact_update(artifact, frames.task_id, frames.context_id, frames.version))

    def _tell(self, status: Status) -> None:
        frames = self._frames
        ends = status.state in FINAL or (status.state == "input-required" and frames.until_question)
        self._say(status_update(status, frames.task_id, frames.context_id, frames.version, ends_stream=ends))
        self.state = status.state

    def _say(self, told: dict[str, Any]) -> None:
        self.results.append(json_of(told))


@lru_cache(maxsize=1024)
def _around(task_id: str, context_id: str, turn_id: str, version: Version) -> tuple[bytes, bytes]:
    return delta_around(task_id, context_id, answer_id(turn_id), version)
