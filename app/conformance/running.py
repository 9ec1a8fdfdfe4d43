"""Runs a check from code that has no event loop, such as an ordinary test."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from app.conformance.agent import examine_agent
from app.conformance.report import Report
from app.conformance.statements import AGENT, Statement
from app.conformance.subject import Subject

T = TypeVar("T")
_LAST_WAIT = 0.5


def examine(subject: Subject, *statements: Statement) -> Report:
    """Try these statements of an agent, or all, in a loop of their own.

    An agent that never waits and never ends blocks this process; `check_isolated` bears that, too.
    """
    return run(examine_agent(subject, statements or AGENT))


def run(work: Coroutine[Any, Any, T]) -> T:
    """Like `asyncio.run`, which waits for ever for a task that ignores its cancellation; this one leaves it behind."""
    loop = asyncio.new_event_loop()
    try:
        result = loop.run_until_complete(work)
        left = asyncio.all_tasks(loop)
        for task in left:
            task.cancel()
        if left:
            loop.run_until_complete(asyncio.wait(left, timeout=_LAST_WAIT))
        return result
    finally:
        loop.close()
