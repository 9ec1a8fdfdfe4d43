"""The checks of a middleware: a function that puts an agent around an agent."""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, TypeAlias

from app.agents.contract import Agent, AgentEvent, Prompt, Scope
from app.agents.reading import described, kind_of, shown
from app.conformance.gallery import SELF_ENDING
from app.conformance.gallery.exhibit import COMPLETED, Acting, saying, text
from app.conformance.playing import Limits, Stop, Turn, play
from app.conformance.probes import Leaks, Probe
from app.conformance.report import FAIL, PASS, SKIP, Finding, Judgement, Report
from app.conformance.statements import MIDDLEWARE, Statement
from app.conformance.subject import new_scope
from app.conformance.witnesses import clean_up

Wrap: TypeAlias = Callable[[Agent], Agent]

_STREAMS = 50
_HELLO: Prompt = {"text": "Hello"}


async def examine_middleware(
    wrap: Wrap,
    statements: Sequence[Statement] = MIDDLEWARE,
    *,
    tripping: Wrap | None = None,
    limits: Limits = Limits(patience=5),  # noqa: B008 - it is frozen
    seed: int = 0,
) -> Report:
    """Try all statements of a middleware.

    `tripping` makes one that fails by itself at an agent that goes on for ever; without it M4 is skipped. `seed`
    chooses the unknown events.
    """
    checks = _Checks(wrap, tripping, limits, seed)
    findings = []
    for statement in statements:
        try:
            verdict, evidence = await checks.checks[statement.id]()
        except Exception as error:  # noqa: BLE001 - the middleware may raise anything
            verdict, evidence = FAIL, f"it raised {described(error)}"
        findings.append(Finding(statement, verdict, evidence))
    return Report(findings)


class _Checks:
    def __init__(self, wrap: Wrap, tripping: Wrap | None, limits: Limits, seed: int) -> None:
        self._wrap = wrap
        self._tripping = tripping
        self._limits = limits
        self._chance = random.Random(seed)  # noqa: S311 - the same events each time
        self.checks: dict[str, Callable[[], Awaitable[Judgement]]] = {
            "M1": self._passes_unknown_events,
            "M2": self._ends_once,
            "M3": self._stops_inside,
            "M4": self._fails_in_order,
            "M5": self._holds_nothing_back,
            "M6": self._passes_keys,
        }

    async def _play(self, agent: Agent, stop: Stop | None = None) -> Turn:
        return await play(self._wrap(agent), new_scope(), _HELLO, self._limits, stop)

    async def _passes_unknown_events(self) -> Judgement:
        for _ in range(_STREAMS):
            events = [self._unknown_event() for _ in range(self._chance.randrange(1, 6))]
            came = (await self._play(saying(*events, COMPLETED))).events
            if came != [*events, COMPLETED]:
                return FAIL, f"of {shown(events)} came {shown(came)}"
            if [list(event) for event in came] != [list(event) for event in [*events, COMPLETED]]:
                return FAIL, f"of {shown(events)} the keys came in another order"
        return PASS, f"in {_STREAMS} streams"

    async def _ends_once(self) -> Judgement:
        for exhibit in SELF_ENDING:
            turn = await self._play(exhibit.make())
            if turn.raised is not None or turn.raised_after is not None:
                error = turn.raised or turn.raised_after
                return FAIL, f"around {exhibit} it raised {described(error or ValueError())}"
            if turn.overdue or turn.terminal is None or turn.after:
                return FAIL, f"around {exhibit} came {shown([*turn.events, *turn.after])}"
            if (kind_of(turn.terminal) == "failed") != exhibit.is_failure:
                return FAIL, f"around {exhibit} the end was {shown(turn.terminal)}"
        return PASS, f"around {len(SELF_ENDING)} misbehaving agents"

    async def _stops_inside(self) -> Judgement:
        stops = {
            "while it waited": Stop(when_quiet=True),
            "between two events": Stop(after_events=1),
            "before the first event": Stop(before_first=True),
        }
        for place, stop in stops.items():
            inner = _Endless(waits=stop.when_quiet)
            with Probe() as probe:
                turn = await self._play(inner, stop)
                is_clean = inner.is_closed or not inner.has_begun
                leaks = await probe.leaks(self._limits.settle)
            if problem := _wrong_stop(turn, leaks, is_clean=is_clean):
                return FAIL, f"stopped {place} {problem}"
        return PASS, f"stopped {', '.join(stops)}"

    async def _fails_in_order(self) -> Judgement:
        if self._tripping is None:
            return SKIP, "no way to make it fail by itself was given"
        inner = _Endless()
        turn = await play(self._tripping(inner), new_scope(), _HELLO, self._limits)
        if turn.raised is not None:
            return FAIL, f"it raised {described(turn.raised)}"
        if kind_of(turn.terminal) != "failed" or turn.overdue:
            return FAIL, f"it ended with {shown(turn.terminal)}"
        if inner.has_begun and not inner.is_closed:
            return FAIL, "the inner agent was not closed"
        return PASS, f"{shown(turn.terminal)}"

    async def _holds_nothing_back(self) -> Judgement:
        gate, is_out = asyncio.Event(), asyncio.Event()

        async def waits_at_the_gate(_: Scope, __: Prompt) -> AsyncIterator[AgentEvent]:
            yield text("a ")
            await gate.wait()
            yield COMPLETED

        playing = asyncio.ensure_future(
            play(
                self._wrap(Acting(waits_at_the_gate)),
                new_scope(),
                _HELLO,
                self._limits,
                seen=lambda _: is_out.set(),
            )
        )
        looking = asyncio.ensure_future(is_out.wait())
        await asyncio.wait({looking}, timeout=self._limits.stop)
        looking.cancel()
        was_out = is_out.is_set()
        gate.set()
        await playing
        return (PASS, "it was out first") if was_out else (FAIL, "the first event waited for the second")

    async def _passes_keys(self) -> Judgement:
        came: list[Any] = []

        async def remembers(scope: Scope, prompt: Prompt) -> AsyncIterator[AgentEvent]:
            came.append((dict(scope), dict(prompt)))
            yield COMPLETED

        for _ in range(_STREAMS):
            scope: Any = {**new_scope(), **self._fields()}
            prompt: Any = {"text": "Hello", "images": [], **self._fields()}
            await play(self._wrap(Acting(remembers)), scope, prompt, self._limits)
            if not came or came.pop() != (scope, prompt):
                return FAIL, f"of {shown(scope)} and {shown(prompt)} not all came"
        return PASS, f"in {_STREAMS} turns"

    def _unknown_event(self) -> AgentEvent:
        fields = list(self._fields().items())
        fields.insert(self._chance.randrange(len(fields) + 1), ("type", f"x_{self._chance.randrange(9)}"))
        return dict(fields)

    def _fields(self) -> dict[str, Any]:
        names = self._chance.sample(["id", "x", "details", "code", "delta", "data", "é", ""], 4)
        return {name: self._value(3) for name in names}

    def _value(self, depth: int) -> Any:
        leaves: list[Any] = [None, True, 0, -1.5, 2**70, "", "é\u2028\x00", []]
        if depth == 0 or self._chance.random() < 0.4:
            return self._chance.choice(leaves)
        if self._chance.random() < 0.5:
            return [self._value(depth - 1) for _ in range(self._chance.randrange(3))]
        return {name: self._value(depth - 1) for name in self._chance.sample(["a", "b", "type"], 2)}


class _Endless:
    """It goes on for ever, or waits after its first event, and knows whether it was closed."""

    def __init__(self, *, waits: bool = False) -> None:
        self._waits = waits
        self.has_begun = False
        self.is_closed = False

    async def invoke(self, scope: Scope, prompt: Prompt, /) -> AsyncIterator[AgentEvent]:
        self.has_begun = True
        try:
            yield text("a ")
            if self._waits:
                await asyncio.Event().wait()
            while True:
                await asyncio.sleep(0)
                yield {"type": "tool_started", "id": "t", "name": "look", "args": {}}
        finally:
            await clean_up()
            self.is_closed = True


def _wrong_stop(turn: Turn, leaks: Leaks, *, is_clean: bool) -> str | None:
    if turn.overdue:
        return "it did not end"
    if turn.late:
        return f"it said {shown(turn.late[0])}"
    error = turn.raised or turn.close_error
    if error is not None:
        return f"it raised {described(error)}"
    if not is_clean:
        return "it was over before the inner agent had cleaned up"
    if leaks.found or leaks.dropped:
        return f"it left behind: {leaks.found or ', '.join(leaks.dropped)}"
    return None
