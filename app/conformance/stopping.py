"""The checks of how a turn is left: wherever a caller stops it, it ends soon, and neither way leaves anything behind."""

import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from itertools import cycle, islice

from app.agents.contract import Prompt
from app.agents.reading import described, shown
from app.conformance.playing import Stop, Turn, is_terminal, play
from app.conformance.probes import Leaks, Probe
from app.conformance.report import FAIL, PASS, SKIP, WARN, Judgement
from app.conformance.subject import Subject, new_scope

_STOPS = 4
_ENOUGH_TO_SEE_GROWTH = 3


class StopChecks:
    """The checks of one subject, by their statement. `ordinary` gives its ordinary turn, which tells where it waits."""

    def __init__(self, subject: Subject, ordinary: Callable[[], Awaitable[Turn]]) -> None:
        self._subject = subject
        self._limits = subject.limits
        self._ordinary = ordinary
        self.checks: dict[str, Callable[[], Awaitable[Judgement]]] = {
            "A3": self._while_waiting,
            "A3b": self._between_events,
            "A3c": self._before_the_first,
            "A3d": self._while_preparing,
            "A3e": self._leaves_nothing,
        }

    async def _play(self, prompt: Prompt, stop: Stop | None = None) -> Turn:
        return await play(self._subject.make(), new_scope(), prompt, self._limits, stop)

    async def _while_waiting(self) -> Judgement:
        if self._subject.waiting is not None:
            stops = [Stop(when_quiet=True)] * _ENOUGH_TO_SEE_GROWTH
            return await self._stopped(self._subject.waiting, stops)
        turn = await self._ordinary()
        first = turn.waits_before[0] if turn.waits_before else turn.waits
        waits = _spread(first + 1, turn.waits, _STOPS)
        if not waits:
            return SKIP, "it never waited between two events; name a prompt that makes it wait"
        stops = [Stop(at_wait=wait) for wait in _at_least(waits)]
        stops.append(Stop(at_wait=waits[0], is_doubled=True))
        return await self._stopped(self._subject.prompt, stops)

    async def _while_preparing(self) -> Judgement:
        turn = await self._ordinary()
        first = turn.waits_before[0] if turn.waits_before else turn.waits
        waits = _spread(1, first, _STOPS)
        if not waits:
            return SKIP, "its first event came without a wait"
        return await self._stopped(self._subject.prompt, [Stop(at_wait=wait) for wait in _at_least(waits)])

    async def _between_events(self) -> Judgement:
        turn = await self._ordinary()
        counts = _spread(1, len([event for event in turn.events if not is_terminal(event)]), _STOPS)
        if not counts:
            return SKIP, "it has no event before its terminal one"
        return await self._stopped(
            self._subject.prompt, [Stop(after_events=count) for count in _at_least(counts)]
        )

    async def _before_the_first(self) -> Judgement:
        with Probe() as probe:
            turns = [
                await self._play(self._subject.prompt, Stop(before_first=True))
                for _ in range(_ENOUGH_TO_SEE_GROWTH)
            ]
            leaks = await probe.leaks(self._limits.settle)
        work = [name for turn in turns for name in turn.work_before_first]
        if work:
            return FAIL, f"the call itself started a task ({work[0]})"
        return self._judged(turns, leaks, "it was closed before its first step")

    async def _stopped(self, prompt: Prompt, stops: Sequence[Stop]) -> Judgement:
        turns: list[Turn] = []
        began = time.monotonic()
        with Probe() as probe:
            for stop in stops:
                turns.append(await self._play(prompt, stop))
                if turns[-1].overdue:
                    break
            took = time.monotonic() - began
            leaks = await probe.leaks(self._limits.settle)
        stopped = [turn for turn in turns if turn.was_stopped]
        if not stopped:
            return SKIP, "it ended before it could be stopped; name a prompt that makes it wait"
        return self._judged(stopped, leaks, f"stopped {len(stopped)} times, in {took:.1f} s in all")

    def _judged(self, turns: Sequence[Turn], leaks: Leaks, evidence: str) -> Judgement:
        for turn in turns:
            if problem := self._wrong_stop(turn):
                return FAIL, problem
        if leaks.found:
            return FAIL, f"left behind: {leaks.found}"
        if leaks.descriptors >= len(turns) >= _ENOUGH_TO_SEE_GROWTH:
            return FAIL, f"{leaks.descriptors} more open descriptors after {len(turns)} stops"
        if late := [event for turn in turns for event in turn.late]:
            return WARN, f"it gave {shown(late[0])} to a caller that had left"
        if leaks.dropped:
            return (
                WARN,
                f"left it to the garbage collector to close {', '.join(sorted(set(leaks.dropped))[:3])}",
            )
        return PASS, evidence

    def _wrong_stop(self, turn: Turn) -> str | None:
        if turn.overdue:
            return f"it ignored being stopped: {self._limits.stop:g} s later it still ran"
        if late := [event for event in turn.late if not is_terminal(event)]:
            return f"after it was stopped came {shown(late[0])}"
        if turn.close_error is not None:
            return f"closing it raised {described(turn.close_error)}"
        if turn.raised is not None:
            return f"when it was stopped it raised {described(turn.raised)}"
        return None

    async def _leaves_nothing(self) -> Judgement:
        await self._ordinary()  # what stays for all turns (a connection, a pool) is there now
        prompts = [self._subject.prompt] * _ENOUGH_TO_SEE_GROWTH
        if self._subject.failing is not None:
            prompts.append(self._subject.failing)
        with Probe() as probe:
            turns = [await self._play(prompt) for prompt in prompts]
            leaks = await probe.leaks(self._limits.settle)
        if leaks.found:
            return FAIL, f"left behind: {leaks.found}"
        if leaks.descriptors >= len(turns):
            return FAIL, f"{leaks.descriptors} more open descriptors after {len(turns)} turns"
        return PASS, f"nothing after {len(turns)} turns"


def _spread(first: int, last: int, most: int) -> list[int]:
    """At most so many numbers from first to last, both among them, evenly."""
    count = last - first + 1
    if count <= most:
        return list(range(first, last + 1))
    return [first + round(step * (count - 1) / (most - 1)) for step in range(most)]


def _at_least(places: Sequence[int]) -> Iterator[int]:
    """The places, again and again until there are enough to see something grow."""
    return islice(cycle(places), max(len(places), _ENOUGH_TO_SEE_GROWTH))
