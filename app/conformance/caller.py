"""The checks of callers: coroutine functions that read a turn to its result."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from app.agents.contract import Agent, AgentEvent, Prompt, Scope
from app.agents.reading import described
from app.conformance.gallery.exhibit import COMPLETED, FAILED, Acting, saying, text
from app.conformance.playing import Limits
from app.conformance.report import FAIL, PASS, Finding, Judgement, Report
from app.conformance.statements import CALLER, Statement
from app.conformance.subject import new_scope
from app.conformance.witnesses import Closable, ClosableByHand


@dataclass(frozen=True, slots=True)
class Reply:
    """What a turn came to."""

    text: str
    is_failure: bool = False
    code: str | None = None
    retryable: bool = False


Caller: TypeAlias = Callable[[Agent, Scope, Prompt], Awaitable[Reply]]


async def examine_caller(
    caller: Caller,
    statements: Sequence[Statement] = CALLER,
    *,
    limits: Limits = Limits(patience=5),  # noqa: B008
) -> Report:
    """Try all statements of a caller."""
    checks = CallerChecks(caller, limits)
    return Report([await finding_of(statement, checks.checks[statement.id]) for statement in statements])


async def finding_of(statement: Statement, check: Callable[[], Awaitable[Judgement]]) -> Finding:
    """What the check found; what it raises is a failure."""
    try:
        verdict, evidence = await check()
    except Exception as error:  # noqa: BLE001 - whoever is checked may raise anything
        verdict, evidence = FAIL, f"it raised {described(error)}"
    return Finding(statement, verdict, evidence)


class Late(Exception):
    """It took longer than it may."""


async def bounded(work: Awaitable[Any], seconds: float, what: str) -> Any:
    """What it gives. Leaves it behind when it is late: it may ignore a cancel."""
    task = asyncio.ensure_future(work)
    await asyncio.wait({task}, timeout=seconds)
    if not task.done():
        task.cancel()
        raise Late(f"{what} took longer than {seconds:g} s")
    return task.result()


class CallerChecks:
    def __init__(self, caller: Caller, limits: Limits) -> None:
        self._caller = caller
        self._limits = limits
        self.checks: dict[str, Callable[[], Awaitable[Judgement]]] = {
            "C1": self._passes_over_unknown_events,
            "C2": self._reads_to_the_terminal,
            "C3": self._closes,
            "C4": self._leaves_thinking_out,
            "C5": self._goes_by_code,
            "C6": self._does_not_repeat,
        }

    async def _call(self, agent: Agent) -> Reply:
        """The reply; a caller may also raise for a turn that failed."""
        work = self._caller(agent, new_scope(), {"text": "Hello"})
        try:
            reply: Reply = await bounded(work, self._limits.patience, "a turn")
        except Late:
            raise
        except Exception as error:  # noqa: BLE001 - how a caller tells a failure is its own affair
            code = getattr(error, "code", None)
            return Reply("", is_failure=True, code=code, retryable=bool(getattr(error, "retryable", False)))
        return reply

    async def _passes_over_unknown_events(self) -> Judgement:
        odd: AgentEvent = {"type": "unheard_of", "delta": "not text", "x": [None]}
        reply = await self._call(saying(odd, text("a"), odd, text("b"), odd, COMPLETED))
        expected = Reply("ab")
        return (PASS, "the text was whole") if reply == expected else (FAIL, f"it made {reply} of it")

    async def _reads_to_the_terminal(self) -> Judgement:
        reply = await self._call(saying(text("a"), COMPLETED, text("late"), FAILED))
        if reply != Reply("a"):
            return FAIL, f"with events after the terminal one it made {reply}"
        for events in ([], [text("a")]):
            if not (await self._call(saying(*events))).is_failure:
                return FAIL, f"a stream of {len(events)} events without a terminal one was no error"
        return PASS, "no further, and a stream without one was an error"

    async def _closes(self) -> Judgement:
        for agent in (Closable(), ClosableByHand()):
            await self._call(agent)
            if not agent.is_closed:
                return FAIL, f"{agent.name}: after the terminal event it was not closed"
        for agent in (Closable(waits=True), ClosableByHand(waits=True)):
            task = asyncio.ensure_future(self._caller(agent, new_scope(), {"text": "Hello"}))
            await bounded(agent.is_waiting.wait(), self._limits.patience, "reading two events")
            task.cancel()
            await asyncio.wait({task}, timeout=self._limits.stop)
            if not agent.is_closed:
                return FAIL, f"{agent.name}: when its caller left it was not closed"
        return PASS, "closed after the terminal event, and when the caller left"

    async def _leaves_thinking_out(self) -> Judgement:
        thinking: AgentEvent = {"type": "thinking", "delta": "hm"}
        tool: AgentEvent = {"type": "tool_started", "id": "t", "name": "look", "args": {}}
        ended: AgentEvent = {"type": "tool_ended", "id": "other", "isError": True, "content": None}
        reply = await self._call(saying(thinking, text("a"), tool, thinking, ended, text("b"), COMPLETED))
        return (PASS, "the answer was the text alone") if reply == Reply("ab") else (FAIL, f"it made {reply}")

    async def _goes_by_code(self) -> Judgement:
        for code, retryable in (("session_busy", True), ("aborted", False), ("unheard_of", False)):
            replies = {
                await self._call(
                    saying({"type": "failed", "details": details, "retryable": retryable, "code": code})
                )
                for details in ("session_busy", "aborted", "", "anything")
            }
            if len(replies) > 1:
                return FAIL, f"{code!r} was understood differently with other details"
            (reply,) = replies
            if not reply.is_failure or (reply.code, reply.retryable) != (code, retryable):
                return FAIL, f"{code!r} became {reply}"
        return PASS, "whatever the details"

    async def _does_not_repeat(self) -> Judgement:
        calls = 0

        async def fails_after_a_tool(_: Scope, __: Prompt) -> AsyncIterator[AgentEvent]:
            nonlocal calls
            calls += 1
            yield {"type": "tool_started", "id": "t", "name": "pay", "args": {}}
            yield {"type": "failed", "details": "overloaded", "retryable": True}

        await self._call(Acting(fails_after_a_tool))
        return (PASS, "called once") if calls == 1 else (FAIL, f"the turn was run {calls} times")
