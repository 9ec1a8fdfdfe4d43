"""The checks of an agent, one function a statement. What a turn must not do is judged here; playing it is not.

What the protocol does not guarantee is not asked for: tool events need not pair, deltas may have any size, a turn that
was stopped needs no terminal event, and a failed one may have left traces in its session.
"""

import asyncio
import json
import math
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from app.agents.contract import AgentEvent, Prompt
from app.agents.reading import described, kind_of, shown
from app.agents.shapes import wrong_field
from app.conformance.playing import Turn, play
from app.conformance.report import FAIL, PASS, SKIP, WARN, Finding, Judgement, Report
from app.conformance.statements import AGENT, Statement
from app.conformance.stopping import StopChecks
from app.conformance.subject import Remembered, Subject, new_scope

AWKWARD_SESSIONS = ("-1001234567890", "a/b:c", "%2e%2e", "sess ion")
_PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
_MOST_LAG = 0.25
_MORE_LOOKS = 2


class Examination:
    """The checks of one subject. An ordinary turn is played once, and looked at by several."""

    def __init__(self, subject: Subject) -> None:
        self._subject = subject
        self._limits = subject.limits
        self._plain: Turn | None = None
        self._checks: dict[str, Callable[[], Awaitable[Judgement]]] = {
            "A0": self._returns_a_stream,
            "A1": self._one_terminal,
            "A1b": self._nothing_after,
            "A2": self._failures_are_events,
            **StopChecks(subject, self._ordinary).checks,
            "A4": self._is_json,
            "A4b": self._has_its_fields,
            "A5": self._text_in_deltas_only,
            "A6": self._bears_unknown_keys,
            "A7": self._keeps_sessions_apart,
            "A8": self._refuses_a_busy_session,
            "A9": self._goes_on_elsewhere,
            "A10": self._leaves_the_loop_free,
        }

    async def check(self, statement: Statement) -> Finding:
        """Try one statement."""
        try:
            verdict, evidence = await self._checks[statement.id]()
        except Exception as error:  # noqa: BLE001 - the agent's objects may raise whenever they are looked at
            verdict, evidence = FAIL, f"looking at what it did raised {described(error)}"
        return Finding(statement, verdict, evidence)

    # ── ordinary turns ───────────────────────────────────────────────────────────────────────────────────────────

    async def _ordinary(self) -> Turn:
        if self._plain is None:
            self._plain = await self._play(self._subject.prompt)
        return self._plain

    async def _play(self, prompt: Prompt) -> Turn:
        return await play(self._subject.make(), new_scope(), prompt, self._limits)

    async def _returns_a_stream(self) -> Judgement:
        turn = await self._ordinary()
        if turn.not_a_stream is not None:
            return FAIL, f"{turn.not_a_stream}: write a plain `def` or an async generator"
        return PASS, "it does"

    async def _one_terminal(self) -> Judgement:
        turn = await self._ordinary()
        if turn.overdue:
            return (
                FAIL,
                f"it had not ended after {_counted(turn.events)} and {self._limits.patience:g} s at most",
            )
        if turn.terminal is None:
            return FAIL, f"the stream ended after {_counted(turn.events)} without `completed` or `failed`"
        return PASS, f"{_counted(turn.events)}, the last is {shown(turn.terminal)}"

    async def _nothing_after(self) -> Judgement:
        turn = await self._ordinary()
        if turn.after:
            return FAIL, f"after its terminal event came {shown(turn.after[0])}"
        if turn.raised_after is not None:
            return FAIL, f"after its terminal event it raised {described(turn.raised_after)}"
        if turn.terminal is None:
            return SKIP, "there was no terminal event"
        if turn.overdue:
            return FAIL, "after its terminal event the iteration did not end"
        return PASS, "the iteration ended"

    async def _failures_are_events(self) -> Judgement:
        tried: list[str] = []
        prompts: dict[str, Prompt | None] = {
            "the ordinary prompt": self._subject.prompt,
            "an empty prompt": {"text": ""},
            "the failing prompt": self._subject.failing,
        }
        for name, prompt in prompts.items():
            if prompt is None:
                continue
            turn = await (self._ordinary() if prompt is self._subject.prompt else self._play(prompt))
            if turn.raised is not None:
                return FAIL, f"{name} made it raise {described(turn.raised)}"
            if problem := _wrong_failure(turn):
                return FAIL, f"{name}: {problem}"
            if prompt is self._subject.failing and kind_of(turn.terminal) != "failed":
                return FAIL, f"{name} ended with {shown(turn.terminal)}, not with `failed`"
            ending = "no terminal event" if turn.terminal is None else f"`{kind_of(turn.terminal)}`"
            tried.append(f"{name} ended with {ending}")
        hint = "" if self._subject.failing else "; name a prompt that makes its engine fail to see more"
        return PASS, "; ".join(tried) + hint

    # ── events ───────────────────────────────────────────────────────────────────────────────────────────────────

    async def _is_json(self) -> Judgement:
        events = await self._all_events()
        for event in events:
            if not isinstance(event, Mapping) or not isinstance(kind_of(event), str):
                return FAIL, f"an event is an object with a string `type`, not {shown(event)}"
            try:
                again = json.loads(json.dumps(dict(event), allow_nan=False))
            except (TypeError, ValueError) as error:
                return FAIL, f"{shown(event)}: {error}"
            if not _same(again, dict(event)):
                return FAIL, f"{shown(event)} becomes {shown(again)}"
        return PASS, _counted(events)

    async def _has_its_fields(self) -> Judgement:
        events = await self._all_events()
        for event in events:
            if isinstance(kind_of(event), str) and (problem := wrong_field(event)):
                return FAIL, problem
        kinds = sorted({str(kind_of(event)) for event in events})
        return PASS, f"seen: {', '.join(kinds)}"

    async def _all_events(self) -> list[Any]:
        events = list((await self._ordinary()).events)
        if self._subject.failing is not None:
            events += (await self._play(self._subject.failing)).events
        return events

    async def _text_in_deltas_only(self) -> Judgement:
        turn = await self._ordinary()
        terminal, text = turn.terminal, turn.text
        if kind_of(terminal) != "completed":
            return SKIP, "the turn did not complete"
        for key in terminal:
            if key not in ("type", "data"):
                verdict = FAIL if text and terminal[key] == text else WARN
                return verdict, f"`completed` has `{key}`: {shown(terminal[key])}"
        if text and terminal.get("data") == text:
            return FAIL, "`completed.data` repeats the text"
        if "data" in terminal and terminal["data"] is None:
            return WARN, "`completed.data` is null: leave the key out when there is no result"
        return PASS, f"{len(text)} characters of text in deltas"

    # ── scopes ───────────────────────────────────────────────────────────────────────────────────────────────────

    async def _bears_unknown_keys(self) -> Judgement:
        plain = await self._ordinary()
        extras: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
            "unknown keys": ({"source": {"channel": "kit"}, "x-kit": [1, None]}, {"x-kit": {"a": None}}),
            "images": ({}, {"images": [{"mimeType": "image/png", "data": _PIXEL}]}),
        }
        for name, (in_scope, in_prompt) in extras.items():
            scope: Any = {**new_scope(), **in_scope}
            prompt: Any = {**self._subject.prompt, **in_prompt}
            turn = await play(self._subject.make(), scope, prompt, self._limits)
            if turn.raised is not None:
                return FAIL, f"{name} made it raise {described(turn.raised)}"
            if kind_of(turn.terminal) != kind_of(plain.terminal):
                verdict = WARN if name == "images" and turn.terminal is not None else FAIL
                return verdict, f"with {name} it ended with {shown(turn.terminal)}"
        return PASS, "it ended as without them"

    async def _keeps_sessions_apart(self) -> Judgement:
        marks = ("kit-mark-one", "kit-mark-two")
        agent = self._subject.make()
        text = self._subject.prompt["text"]
        turns = await asyncio.gather(
            *(play(agent, new_scope(), {"text": f"{text} {mark}"}, self._limits) for mark in marks)
        )
        for turn, foreign in zip(turns, reversed(marks), strict=True):
            if problem := _unsound(turn):
                return FAIL, f"of two turns at once one {problem}"
            if foreign in turn.text or foreign in str(turn.events):
                return FAIL, f"a turn had {foreign!r}, which was said in the other one"
        echoed = all(mark in turn.text for turn, mark in zip(turns, marks, strict=True))
        return PASS, "each answered what it was asked" if echoed else "each ended; neither repeats its prompt"

    async def _refuses_a_busy_session(self) -> Judgement:
        if (await self._ordinary()).terminal is None:
            return SKIP, "an ordinary turn has no ending"
        agent, scope = self._subject.make(), new_scope()
        started, release = asyncio.Event(), asyncio.Event()
        prompt = self._subject.waiting or self._subject.prompt
        first = asyncio.create_task(_held(agent.invoke(scope, prompt), started, release))
        try:
            async with asyncio.timeout(self._limits.patience):
                await started.wait()
            turn = await play(agent, scope, self._subject.prompt, self._limits)
        finally:
            release.set()
            await asyncio.wait({first}, timeout=self._limits.stop)
            first.cancel()
        refusals = [
            event
            for event in turn.events
            if kind_of(event) == "failed" and event.get("code") == "session_busy"
        ]
        if not refusals:
            return SKIP, f"it does not refuse: the second turn ended with {shown(turn.terminal)}"
        if len(turn.events) > 1:
            return FAIL, f"`session_busy` came after {shown(turn.events[0])}"
        if refusals[0].get("retryable") is not True:
            return FAIL, "`session_busy` must be retryable"
        return PASS, "`session_busy`, retryable, first thing"

    async def _goes_on_elsewhere(self) -> Judgement:
        for session in AWKWARD_SESSIONS:
            for _ in range(2):
                turn = await play(
                    self._subject.make(), new_scope(session), self._subject.prompt, self._limits
                )
                if problem := _unsound(turn):
                    return FAIL, f"in session {session!r} it {problem}"
        talk = self._subject.conversation
        if talk is None:
            return SKIP, "odd session ids do no harm; name a conversation to see whether it is remembered"
        transcript = Remembered()
        session = new_scope()["session"]
        told = await play(
            self._subject.make(), new_scope(session, transcript), {"text": talk.told}, self._limits
        )
        transcript.add(talk.told, told.text, told.events)
        asked = await play(
            self._subject.make(), new_scope(session, transcript), {"text": talk.asked}, self._limits
        )
        if talk.expected not in asked.text:
            return FAIL, f"another instance answered {shown(asked.text)}, without {talk.expected!r}"
        return PASS, f"another instance answered {shown(asked.text)}"

    async def _leaves_the_loop_free(self) -> Judgement:
        lag = await self._lag()
        for _ in range(_MORE_LOOKS):
            if lag > _MOST_LAG:  # once it may be the machine, not the agent
                lag = min(lag, await self._lag())
        if lag > _MOST_LAG:
            return WARN, f"for {lag:.2f} s nothing else could run; do blocking work in a thread"
        return PASS, f"never for more than {math.ceil(lag * 1000)} ms"

    async def _lag(self) -> float:
        """For how long at most nothing else could run during a turn, in seconds."""
        lag = 0.0
        is_over = asyncio.Event()

        async def tick() -> None:
            nonlocal lag
            while not is_over.is_set():
                before = time.monotonic()
                await asyncio.sleep(0.01)
                lag = max(lag, time.monotonic() - before - 0.01)

        ticking = asyncio.create_task(tick(), name="conformance: ticks")
        await asyncio.sleep(0)
        await self._play(self._subject.prompt)
        is_over.set()
        await ticking
        return lag


async def examine_agent(
    subject: Subject,
    statements: Sequence[Statement] = AGENT,
    *,
    begun: Callable[[Statement], None] = lambda statement: None,
    found: Callable[[Finding], None] = lambda finding: None,
) -> Report:
    """Try all statements of an agent. `begun` and `found` are told of each as it goes."""
    examination = Examination(subject)
    findings = []
    for statement in statements:
        begun(statement)
        findings.append(await examination.check(statement))
        found(findings[-1])
    return Report(findings)


async def _held(stream: Any, started: asyncio.Event, release: asyncio.Event) -> None:
    """Take one event and hold the stream there until it is released."""
    iterator = aiter(stream)
    try:
        await anext(iterator, None)
        started.set()
        await release.wait()
    finally:
        started.set()
        if hasattr(iterator, "aclose"):
            await iterator.aclose()


def _counted(events: Sequence[Any]) -> str:
    return f"{len(events)} event{'' if len(events) == 1 else 's'}"


def _unsound(turn: Turn) -> str | None:
    if turn.raised is not None:
        return f"raised {described(turn.raised)}"
    return None if turn.terminal is not None else "had no terminal event"


def _wrong_failure(turn: Turn) -> str | None:
    if kind_of(turn.terminal) != "failed":
        return None
    failed: AgentEvent = turn.terminal
    return wrong_field(failed)


def _same(left: Any, right: Any) -> bool:
    """Equal in types as well: JSON makes a list of a tuple and a string of a key that was a number."""
    if isinstance(right, Mapping):
        return (
            isinstance(left, dict)
            and list(left) == list(right)
            and all(_same(left[key], right[key]) for key in right)
        )
    if isinstance(right, list):
        return isinstance(left, list) and len(left) == len(right) and all(map(_same, left, right))
    return (type(left) is type(right) and bool(left == right)) or (isinstance(right, str) and left == right)
