"""The checks of those who call agents: callers that want a result, and hosts that serve any agent.

A caller is a coroutine function that reads a turn to its result. A host is a function that starts a turn and gives a
`Hosted`, through which what it passes on and how it ends can be seen. Every host is also checked as a caller.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from app.agents.contract import Agent, AgentEvent, Prompt, Scope
from app.agents.reading import described
from app.conformance.gallery import COMPLETED, FAILED, SELF_ENDING, SOUND, Acting, Exhibit, text
from app.conformance.playing import Limits
from app.conformance.probes import Probe
from app.conformance.report import Finding, Report, Verdict
from app.conformance.statements import CALLER, HOST, Statement
from app.conformance.subject import new_scope

PASS, FAIL = Verdict.PASS, Verdict.FAIL
_MANY = 20_000


@dataclass(frozen=True, slots=True)
class Reply:
    """What a turn came to."""

    text: str
    is_failure: bool = False
    code: str | None = None
    retryable: bool = False


class Hosted(Protocol):
    """A turn that a host runs. `events` are those that were passed on, `outcomes` must come to be one."""

    events: list[AgentEvent]
    outcomes: list[Reply]

    async def over(self) -> None:
        """Wait until the agent's code has stopped running, or was given up on."""
        ...

    async def stop(self) -> None:
        """Stop the turn, and wait so."""
        ...


Caller: TypeAlias = Callable[[Agent, Scope, Prompt], Awaitable[Reply]]
Host: TypeAlias = Callable[[Agent, Scope, Prompt], Hosted]
Judgement: TypeAlias = tuple[Verdict, str]


def as_caller(host: Host) -> Caller:
    """A host as a caller: it reads to the outcome, and stops the turn when it is cancelled."""

    async def call(agent: Agent, scope: Scope, prompt: Prompt) -> Reply:
        hosted = host(agent, scope, prompt)
        try:
            await hosted.over()
        except asyncio.CancelledError:
            await hosted.stop()
            raise
        return hosted.outcomes[0]

    return call


async def examine_caller(
    caller: Caller,
    statements: Sequence[Statement] = CALLER,
    *,
    limits: Limits = Limits(patience=5),  # noqa: B008
) -> Report:
    """Try all statements of a caller."""
    checks = _CallerChecks(caller, limits)
    return Report([await _finding(statement, checks.checks[statement.id]) for statement in statements])


async def examine_host(
    host: Host,
    statements: Sequence[Statement] = (*CALLER, *HOST),
    *,
    limits: Limits = Limits(patience=5),  # noqa: B008
) -> Report:
    """Try all statements of a host, those of a caller among them."""
    checks = _CallerChecks(as_caller(host), limits).checks | _HostChecks(host, limits).checks
    return Report([await _finding(statement, checks[statement.id]) for statement in statements])


async def _finding(statement: Statement, check: Callable[[], Awaitable[Judgement]]) -> Finding:
    try:
        verdict, evidence = await check()
    except Exception as error:  # noqa: BLE001 - whoever is checked may raise anything
        verdict, evidence = FAIL, f"it raised {described(error)}"
    return Finding(statement, verdict, evidence)


class _Late(Exception):
    """It took longer than it may."""


async def _bounded(work: Awaitable[Any], seconds: float, what: str) -> Any:
    """What it gives. Leaves it behind when it is late: it may ignore a cancel."""
    task = asyncio.ensure_future(work)
    await asyncio.wait({task}, timeout=seconds)
    if not task.done():
        task.cancel()
        raise _Late(f"{what} took longer than {seconds:g} s")
    return task.result()


class _CallerChecks:
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
            reply: Reply = await _bounded(work, self._limits.patience, "a turn")
        except _Late:
            raise
        except Exception as error:  # noqa: BLE001 - how a caller tells a failure is its own affair
            code = getattr(error, "code", None)
            return Reply("", is_failure=True, code=code, retryable=bool(getattr(error, "retryable", False)))
        return reply

    async def _passes_over_unknown_events(self) -> Judgement:
        odd: AgentEvent = {"type": "unheard_of", "delta": "not text", "x": [None]}
        reply = await self._call(_saying(odd, text("a"), odd, text("b"), odd, COMPLETED))
        expected = Reply("ab")
        return (PASS, "the text was whole") if reply == expected else (FAIL, f"it made {reply} of it")

    async def _reads_to_the_terminal(self) -> Judgement:
        reply = await self._call(_saying(text("a"), COMPLETED, text("late"), FAILED))
        if reply != Reply("a"):
            return FAIL, f"with events after the terminal one it made {reply}"
        for events in ([], [text("a")]):
            if not (await self._call(_saying(*events))).is_failure:
                return FAIL, f"a stream of {len(events)} events without a terminal one was no error"
        return PASS, "no further, and a stream without one was an error"

    async def _closes(self) -> Judgement:
        for agent in (_Closable(), _ClosableByHand()):
            await self._call(agent)
            if not agent.is_closed:
                return FAIL, f"{agent.name}: after the terminal event it was not closed"
        for agent in (_Closable(waits=True), _ClosableByHand(waits=True)):
            task = asyncio.ensure_future(self._caller(agent, new_scope(), {"text": "Hello"}))
            await _bounded(agent.is_waiting.wait(), self._limits.patience, "reading two events")
            task.cancel()
            await asyncio.wait({task}, timeout=self._limits.stop)
            if not agent.is_closed:
                return FAIL, f"{agent.name}: when its caller left it was not closed"
        return PASS, "closed after the terminal event, and when the caller left"

    async def _leaves_thinking_out(self) -> Judgement:
        thinking: AgentEvent = {"type": "thinking", "delta": "hm"}
        tool: AgentEvent = {"type": "tool_started", "id": "t", "name": "look", "args": {}}
        ended: AgentEvent = {"type": "tool_ended", "id": "other", "isError": True, "content": None}
        reply = await self._call(_saying(thinking, text("a"), tool, thinking, ended, text("b"), COMPLETED))
        return (PASS, "the answer was the text alone") if reply == Reply("ab") else (FAIL, f"it made {reply}")

    async def _goes_by_code(self) -> Judgement:
        for code, retryable in (("session_busy", True), ("aborted", False), ("unheard_of", False)):
            replies = {
                await self._call(
                    _saying({"type": "failed", "details": details, "retryable": retryable, "code": code})
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


class _HostChecks:
    def __init__(self, host: Host, limits: Limits) -> None:
        self._host = host
        self._limits = limits
        self.checks: dict[str, Callable[[], Awaitable[Judgement]]] = {
            "H1": self._one_outcome,
            "H2": self._first_terminal_wins,
            "H3": self._one_task,
            "H4": self._is_not_held_up,
            "H5": self._is_silent_once_stopped,
            "H6": self._lets_it_finish,
            "H7": self._shares_the_loop,
        }

    def _start(self, agent: Agent) -> Hosted:
        return self._host(agent, new_scope(), {"text": "Hello"})

    async def _over(self, hosted: Hosted) -> None:
        await _bounded(hosted.over(), self._limits.patience, "a turn")

    async def _one_outcome(self) -> Judgement:
        exhibits = (*SELF_ENDING, *SOUND)
        for exhibit in exhibits:
            with Probe() as probe:
                problem = await self._wrong_outcome(exhibit)
                leaks = await probe.leaks(self._limits.settle)
            if problem or leaks.found:
                return FAIL, f"{exhibit}: {problem or f'left behind: {leaks.found}'}"
        return PASS, f"of {len(exhibits)} agents"

    async def _wrong_outcome(self, exhibit: Exhibit) -> str | None:
        hosted = self._start(exhibit.make())
        await self._over(hosted)
        if len(hosted.outcomes) != 1:
            return f"it has {len(hosted.outcomes)} outcomes"
        if hosted.outcomes[0].is_failure != exhibit.is_failure:
            return f"its outcome is {hosted.outcomes[0]}"
        return None

    async def _first_terminal_wins(self) -> Judgement:
        for events, expected in (
            ((FAILED, COMPLETED, text("late")), Reply("", is_failure=True, code="luck")),
            ((text("a"), COMPLETED, FAILED), Reply("a")),
            ((COMPLETED, text("late")), Reply("")),
        ):
            hosted = self._start(_saying(*events))
            await self._over(hosted)
            if hosted.outcomes != [expected]:
                return FAIL, f"the outcome was {hosted.outcomes}, not {expected}"
            if any(event.get("delta") == "late" for event in hosted.events):
                return FAIL, "an event after the terminal one was passed on"
        return PASS, "and what came after it was not passed on"

    async def _one_task(self) -> Judgement:
        for agent, is_stopped in ((_ClosableByHand(), False), (_ClosableByHand(waits=True), True)):
            hosted = self._start(agent)
            if is_stopped:
                await _bounded(agent.is_waiting.wait(), self._limits.patience, "reading two events")
                await _bounded(hosted.stop(), self._limits.patience, "a stop")
            else:
                await self._over(hosted)
            if len(agent.tasks) != 1:
                return FAIL, f"{len(agent.tasks)} tasks touched the stream"
        return PASS, "one task for all of it"

    async def _is_not_held_up(self) -> Judgement:
        release = asyncio.Event()

        async def is_deaf(_: Scope, __: Prompt) -> AsyncIterator[AgentEvent]:
            yield text("a")
            await _deaf(release)

        async def lingers(_: Scope, __: Prompt) -> AsyncIterator[AgentEvent]:
            yield COMPLETED
            await _deaf(release)

        try:
            for function in (is_deaf, lingers):
                hosted = self._start(Acting(function))
                while not hosted.events and not hosted.outcomes:  # noqa: ASYNC110 - nobody sets an event for it
                    await asyncio.sleep(0)
                wait = hosted.stop() if function is is_deaf else hosted.over()
                await _bounded(wait, self._limits.patience, f"waiting for one that {function.__name__}")
                if len(hosted.outcomes) != 1:
                    return FAIL, f"{function.__name__}: it has {len(hosted.outcomes)} outcomes"
        finally:
            release.set()
        return PASS, "it was given up on"

    async def _is_silent_once_stopped(self) -> Judgement:
        for last in (text("late"), COMPLETED):
            agent = _Stubborn(last)
            hosted = self._start(agent)
            await _bounded(agent.is_waiting.wait(), self._limits.patience, "reading an event")
            await _bounded(hosted.stop(), self._limits.patience, "a stop")
            if any(event.get("delta") == "late" for event in hosted.events):
                return FAIL, "an event that came after the stop was passed on"
            if len(hosted.outcomes) != 1 or not hosted.outcomes[0].is_failure:
                return FAIL, f"after the stop its outcome was {hosted.outcomes}"
        return PASS, "neither an event nor a terminal one"

    async def _lets_it_finish(self) -> Judgement:
        ends: list[str] = []

        async def agent(_: Scope, __: Prompt) -> AsyncIterator[AgentEvent]:
            try:
                yield COMPLETED
                await asyncio.sleep(0)
                ends.append("as it expects")
            except GeneratorExit:
                ends.append("by a close")
                raise

        await self._over(self._start(Acting(agent)))
        return (PASS if ends == ["as it expects"] else FAIL), f"it ended {', '.join(ends) or 'never'}"

    async def _shares_the_loop(self) -> Judgement:
        is_over = False

        async def agent(_: Scope, __: Prompt) -> AsyncIterator[AgentEvent]:
            for _number in range(_MANY):
                yield text("a")
            yield COMPLETED

        async def count() -> int:
            ticks = 0
            while not is_over:
                await asyncio.sleep(0)
                ticks += 1
            return ticks

        counting = asyncio.create_task(count())
        await self._over(self._start(Acting(agent)))
        is_over = True
        ticks = await counting
        return (PASS if ticks > 10 else FAIL), f"others ran {ticks} times during {_MANY} events"


# ── scripted agents ──────────────────────────────────────────────────────────────────────────────────────────────────


def _saying(*events: AgentEvent) -> Agent:
    async def say(_: Scope, __: Prompt) -> AsyncIterator[AgentEvent]:
        for event in events:
            yield event

    return Acting(say)


class _Closable:
    """A generator that knows whether it was closed."""

    name = "a generator"

    def __init__(self, *, waits: bool = False) -> None:
        self._waits = waits
        self.is_waiting = asyncio.Event()
        self.is_closed = False

    async def invoke(self, scope: Scope, prompt: Prompt, /) -> AsyncIterator[AgentEvent]:
        try:
            yield text("a")
            if self._waits:
                self.is_waiting.set()
                await asyncio.Event().wait()
            yield COMPLETED
        finally:
            await asyncio.sleep(0)
            self.is_closed = True


class _ClosableByHand:
    """An iterator whose clean-up is its `aclose`, and nothing else. `tasks` have touched it."""

    name = "an iterator"

    def __init__(self, *, waits: bool = False) -> None:
        self._waits = waits
        self._left: list[AgentEvent] = [text("a"), COMPLETED]
        self.is_waiting = asyncio.Event()
        self.is_closed = False
        self.tasks: set[Any] = set()

    def invoke(self, scope: Scope, prompt: Prompt, /) -> "_ClosableByHand":
        self.tasks.add(asyncio.current_task())
        return self

    def __aiter__(self) -> "_ClosableByHand":
        return self

    async def __anext__(self) -> AgentEvent:
        self.tasks.add(asyncio.current_task())
        if len(self._left) == 1 and self._waits:
            self.is_waiting.set()
            await asyncio.Event().wait()
        return self._left.pop(0) if self._left else await self._linger()

    async def _linger(self) -> AgentEvent:
        raise ValueError("it does not end by itself")

    async def aclose(self) -> None:
        self.tasks.add(asyncio.current_task())
        await asyncio.sleep(0)
        self.is_closed = True


class _Stubborn:
    """It answers a cancel with an event."""

    def __init__(self, last: AgentEvent) -> None:
        self._last = last
        self.is_waiting = asyncio.Event()

    async def invoke(self, scope: Scope, prompt: Prompt, /) -> AsyncIterator[AgentEvent]:
        yield text("a")
        try:
            self.is_waiting.set()
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            yield self._last


async def _deaf(release: asyncio.Event) -> None:
    while not release.is_set():
        try:
            await release.wait()
        except asyncio.CancelledError:
            continue
