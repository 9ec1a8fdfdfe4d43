"""What a turn leaves for the next one in its session: the remote conversation, its last task, and an open question.

It stands in the log, as an event of the agent's own: any replica finds it, no client can forge it. The remote agent is
named by a fingerprint only. No I/O.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from app.agents.adapters.a2a.told import Told, recalled
from app.agents.contract import AgentEvent

REMOTE_TASK = "remote_task"


@dataclass(frozen=True, slots=True)
class Known:
    """`question` marks the task's open question, and is empty without one; `told` is what was said of its artifacts."""

    context_id: str = ""
    task_id: str = ""
    question: str = ""
    told: Mapping[str, Told] = field(default_factory=dict)

    def event(self, server: str) -> AgentEvent:
        """The event by which it is remembered."""
        event: dict[str, Any] = {
            "type": REMOTE_TASK,
            "server": server,
            "contextId": self.context_id,
            "taskId": self.task_id,
        }
        if self.question:
            told = {artifact_id: told.mark() for artifact_id, told in self.told.items()}
            event |= {"question": self.question, "told": told}
        return event


NOTHING = Known()


def remembered(event: Mapping[str, Any]) -> Known:
    """What such an event's data say."""
    told = {artifact_id: recalled(mark) for artifact_id, mark in event.get("told", {}).items()}
    return Known(event["contextId"], event["taskId"], event.get("question", ""), told)
