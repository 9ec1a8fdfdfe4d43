"""The checks of hosts, which serve any agent.

A host is a function that starts a turn and gives a `Hosted`, through which what it passes on and how it ends can be
seen. Every host is also checked as a caller.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Protocol, TypeAlias

from app.agents.contract import Agent, AgentEvent, Prompt, Scope
from app.conformance.caller import Caller, CallerChecks, Reply, bounded, finding_of
from app.conformance.gallery import SELF_ENDING, SOUND, Exhibit
from app.conformance.gallery.exhibit import COMPLETED, FAILED, Acting, saying, text
from app.conformance.playing import Limits
from app.conformance.probes import Probe
from app.conformance.report import FAIL, PASS, Judgement, Report
from app.conformance.statements import CALLER, HOST, Statement
from app.conformance.subject import new_scope
from app.conformance.witnesses import ClosableByHand, Stubborn, deaf_until

_MANY = 20_000


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


Host: TypeAlias = Callable[[Agent, Scope, Prompt], Hosted]


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


async def examine_host(
    host: Host,
    statements: Sequence[Statement] = (*CALLER, *HOST),
    *,
    limits: Limits = Limits(patience=5),  # noqa: B008
) -> Report:
    """Try all statements of a host, those of a caller among them."""
    checks = CallerChecks(as_caller(host), limits).checks | _HostChecks(host, limits).checks
    return Report([await finding_of(statement, checks[statement.id]) for statement in statements])


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
        await bounded(hosted.over(), self._limits.patience, "a turn")

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
            hosted = self._start(saying(*events))
            await self._over(hosted)
            if hosted.outcomes != [expected]:
                return FAIL, f"the outcome was {hosted.outcomes}, not {expected}"
            if any(event.get("delta") == "late" for event in hosted.events):
                return FAIL, "an event after the terminal one was passed on"
        return PASS, "and what came after it was not passed on"

    async def _one_task(self) -> Judgement:
        for agent, is_stopped in ((ClosableByHand(), False), (ClosableByHand(waits=True), True)):
            hosted = self._start(agent)
            if is_stopped:
                await bounded(agent.is_waiting.wait(), self._limits.patience, "reading two events")
                await bounded(hosted.stop(), self._limits.patience, "a stop")
            else:
                await self._over(hosted)
            if len(agent.tasks) != 1:
                return FAIL, f"{len(agent.tasks)} tasks touched the stream"
        return PASS, "one task for all of it"

    async def _is_not_held_up(self) -> Judgement:
        release = asyncio.Event()

        async def is_deaf(_: Scope, __: Prompt) -> AsyncIterator[AgentEvent]:
            yield text("a")
            await deaf_until(release)

        async def lingers(_: Scope, __: Prompt) -> AsyncIterator[AgentEvent]:
            yield COMPLETED
            await deaf_until(release)

        try:
            for function in (is_deaf, lingers):
                hosted = self._start(Acting(function))
                while not hosted.events and not hosted.outcomes:  # noqa: ASYNC110 - nobody sets an event for it
                    await asyncio.sleep(0)
                wait = hosted.stop() if function is is_deaf else hosted.over()
                await bounded(wait, self._limits.patience, f"waiting for one that {function.__name__}")
                if len(hosted.outcomes) != 1:
                    return FAIL, f"{function.__name__}: it has {len(hosted.outcomes)} outcomes"
        finally:
            release.set()
        return PASS, "it was given up on"

    async def _is_silent_once_stopped(self) -> Judgement:
        for last in (text("late"), COMPLETED):
            agent = Stubborn(last)
            hosted = self._start(agent)
            await bounded(agent.is_waiting.wait(), self._limits.patience, "reading an event")
            await bounded(hosted.stop(), self._limits.patience, "a stop")
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
