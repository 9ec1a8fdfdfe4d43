"""Work that is done aside: nobody waits for it, and what it raises is told to the log only."""

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

_logger = logging.getLogger(__name__)


class Errands:
    """What is under way, until it is done or all of it is given up."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    def __len__(self) -> int:
        return len(self._tasks)

    def send(self, work: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
        """Begin it."""
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def give_up(self) -> None:
        """Cancel all that is under way, without waiting for its end."""
        for task in list(self._tasks):
            task.cancel()

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _logger.warning("%s: %s", task.get_name(), error)
