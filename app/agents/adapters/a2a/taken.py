"""Finds out whether a message was taken that got no answer, from what the agent tells of its tasks.

Each answer is the id of the task that has the message, an empty one if none has, or None if that can't be told.
"""

from collections.abc import Awaitable, Callable
from typing import Any

from app.agents.adapters.a2a import wire

PAGES = 10

Ask = Callable[[str, Any], Awaitable[Any]]
"""Calls a method of the agent with parameters, for its result."""


async def taken_by_task(ask: Ask, task_id: str, message_id: str) -> str | None:
    """By the task that the message answers. Raises what asking raises."""
    task = wire.reply(await ask("GetTask", {"id": task_id}))
    if not isinstance(task, wire.Task):
        return None
    if any(message.id == message_id for message in task.history):
        return task_id
    return None if task.status.state != "input-required" or not task.history else ""


async def taken_by_context(ask: Ask, context_id: str, message_id: str) -> str | None:
    """By one of the context's tasks. A list without histories tells nothing. Raises what asking raises."""
    token = ""
    for _ in range(PAGES):
        params: dict[str, Any] = {"contextId": context_id, "pageSize": 50}
        params |= {"pageToken": token} if token else {}
        tasks, token = wire.listed_tasks(await ask("ListTasks", params))
        for task in tasks:
            if any(message.id == message_id for message in task.history):
                return task.id
        if not all(task.history for task in tasks):
            return None
        if not token:
            return ""
    return None
