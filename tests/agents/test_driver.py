"""The driver against every shape of agent, good and bad: exactly one outcome, and nothing left behind."""

import asyncio
import contextvars
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import anyio
import pytest

from app.agents import driver
from app.agents.contract import AgentEvent
from app.agents.driver import Bounds, Drive, abandoned_pumps
from app.agents.outcome import BadEvent, Cancelled, Completed, Failed, Outcome
from app.conformance.gallery.sound import Dictlike, Handmade
from app.errors import StorageUnavailable, TarkoError
from tests.agents.driving import COMPLETED, PATIENCE, FunctionAgent, Recorded, nothing_left, text

Events = AsyncIterator[AgentEvent]
FAILED: AgentEvent = {"type": "failed", "details": "no luck", "retryable": True, "code": "luck"}
NO_TERMINAL = Failed(
    "the stream ended without `completed` or `failed`", retryable=False, code="agent_protocol_error"
)


def raised(details: str) -> Failed:
    return Failed(details, retryable=False, code="agent_exception")


async def good() -> Events:
    yield text("a")
    yield {"type": "unheard_of", "x": [None]}
    yield COMPLETED


async def good_with_null() -> Events:
    yield {"type": "completed", "data": None}


async def failing() -> Events:
    yield text("a")
    yield FAILED


async def failing_without_code() -> Events:
    yield {"type": "failed", "details": "", "retryable": False}


async def empty() -> Events:
    return
    yield


async def no_terminal() -> Events:
    yield text("a")


async def two_terminals() -> Events:
    yield FAILED
    yield COMPLETED


async def chatters_on() -> Events:
    yield COMPLETED
    yield text("late")


async def raises_at_once() -> Events:
    raise ValueError("first line")
    yield


async def raises_later() -> Events:
    yield text("a")
    raise ValueError("later")


async def raises_after_the_terminal() -> Events:
    yield COMPLETED
    raise ValueError("too late")


async def exits() -> Events:
    yield text("a")
    raise SystemExit(3)


async def interrupts() -> Events:
    yield text("a")
    raise KeyboardInterrupt


async def stops_iteration() -> Events:
    yield text("a")
    raise StopIteration


async def leaks_a_cancel() -> Events:
    yield text("a")
    raise asyncio.CancelledError


async def cancels_itself() -> Events:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    await asyncio.sleep(0)
    yield COMPLETED


async def group_of_errors() -> Events:
    yield text("a")
    async with asyncio.TaskGroup() as group:
        group.create_task(asyncio.sleep(0)).add_done_callback(lambda _: None)
        raise ValueError("inside")


class Unprintable(Exception):
    def __str__(self) -> str:
        raise ValueError("no text")


async def raises_the_unprintable() -> Events:
    yield text("a")
    raise Unprintable


async def in_a_cancel_scope() -> Events:
    with anyio.CancelScope():
        async with anyio.create_task_group() as group:
            group.start_soon(anyio.sleep, 0)
            yield text("a")
    yield COMPLETED


class HandmadeBad(Handmade):
    """It can't be closed either."""

    def __init__(self) -> None:
        self._left = [{}]


class BadAiter:
    def __aiter__(self) -> Events:
        raise ValueError("aiter")


class NoAnext:
    def __aiter__(self) -> object:
        return object()


def raises_in_the_call() -> Events:
    raise ValueError("call")


async def awaited_first() -> Events:
    await asyncio.sleep(0)
    return good()


async def awaited_none() -> None:
    return None


class Spiteful(Dictlike):
    def __getitem__(self, key: str) -> Any:
        raise ValueError("hands off")


class Unshowable:
    """`reprlib` goes by the name of a type, and there are no items in this one."""


Unshowable.__name__ = "list"


async def dictlike() -> Events:
    yield Dictlike(type="text", delta="a")
    yield Dictlike(type="completed", data=1)


GALLERY: list[tuple[Callable[[], Any], Outcome]] = [
    (good, Completed()),
    (good_with_null, Completed(None, has_data=True)),
    (failing, Failed("no luck", retryable=True, code="luck")),
    (failing_without_code, Failed("", retryable=False, code=None)),
    (empty, NO_TERMINAL),
    (no_terminal, NO_TERMINAL),
    (two_terminals, Failed("no luck", retryable=True, code="luck")),
    (chatters_on, Completed()),
    (raises_at_once, raised("ValueError: first line")),
    (raises_later, raised("ValueError: later")),
    (raises_after_the_terminal, Completed()),
    (exits, raised("SystemExit: 3")),
    (interrupts, raised("KeyboardInterrupt")),
    (stops_iteration, raised("RuntimeError: async generator raised StopIteration")),
    (leaks_a_cancel, raised("CancelledError")),
    (cancels_itself, raised("CancelledError")),
    (group_of_errors, raised("ExceptionGroup: unhandled errors in a TaskGroup (1 sub-exception)")),
    (raises_the_unprintable, raised("Unprintable")),
    (in_a_cancel_scope, Completed()),
    (Handmade, Completed()),
    (
        HandmadeBad,
        Failed(
            "an event is an object with a string `type`, not {}", retryable=False, code="agent_protocol_error"
        ),
    ),
    (BadAiter, raised("ValueError: aiter")),
    (
        NoAnext,
        Failed(
            "`__aiter__` must return an async iterator, not object",
            retryable=False,
            code="agent_protocol_error",
        ),
    ),
    (raises_in_the_call, raised("ValueError: call")),
    (awaited_first, Completed()),
    (
        awaited_none,
        Failed(
            "`invoke` must return an async iterable, not NoneType",
            retryable=False,
            code="agent_protocol_error",
        ),
    ),
    (
        list,
        Failed(
            "`invoke` must return an async iterable, not list", retryable=False, code="agent_protocol_error"
        ),
    ),
    (dictlike, Completed(1, has_data=True)),
]


@pytest.mark.parametrize(("shape", "outcome"), GALLERY, ids=lambda value: getattr(value, "__name__", ""))
async def test_any_agent_has_exactly_one_outcome(shape: Callable[[], Any], outcome: Outcome) -> None:
    async with nothing_left():
        recorded = await Recorded(shape).run()
        assert recorded.outcome == outcome
        assert not recorded.drive.abandoned
        assert recorded.drive.is_over


@pytest.mark.parametrize(
    ("event", "details"),
    [
        ("text", "an event is an object with a string `type`, not 'text'"),
        (None, "an event is an object with a string `type`, not None"),
        ({}, "an event is an object with a string `type`, not {}"),
        ({"type": 7}, "an event is an object with a string `type`, not {'type': 7}"),
        (Spiteful(), "an event is an object with a string `type`, not <tests.agents"),
        (Unshowable(), "an event is an object with a string `type`, not list"),
        ({"type": "failed", "retryable": True}, "`failed` needs `details` as a string, not None"),
        ({"type": "failed", "details": "d"}, "`failed` needs `retryable` as a boolean, not None: d"),
        (
            {"type": "failed", "details": "d", "retryable": False, "code": 3},
            "`failed` may have `code` as a string, not 3: d",
        ),
    ],
)
async def test_what_is_no_event_fails_the_turn_and_closes_the_agent(event: Any, details: str) -> None:
    closed = asyncio.Event()

    async def agent() -> Events:
        try:
            yield text("a")
            yield event
            yield COMPLETED
        finally:
            closed.set()

    recorded = await Recorded(agent).run()

    assert isinstance(recorded.outcome, Failed)
    assert recorded.outcome.code == "agent_protocol_error"
    assert recorded.outcome.details.startswith(details)
    assert recorded.events == [text("a")]
    assert closed.is_set()


async def test_long_messages_of_exceptions_are_bounded_and_carry_no_stack(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def agent() -> Events:
        raise ValueError("x" * 10_000)
        yield

    recorded = await Recorded(agent).run()

    assert recorded.outcome == raised(("ValueError: " + "x" * 10_000)[:2_000])
    (record,) = caplog.records
    assert record.exc_info is not None
    assert record.levelno == logging.ERROR


async def test_events_reach_the_sink_in_order_and_terminals_do_not() -> None:
    recorded = await Recorded(good).run()
    assert recorded.events == [text("a"), {"type": "unheard_of", "x": [None]}]
    assert recorded.drive.violations == []


@pytest.mark.parametrize(
    ("shape", "violation"),
    [
        (chatters_on, "an event came after the terminal one"),
        (raises_after_the_terminal, "did not end after its terminal event: ValueError: too late"),
        (awaited_first, "invoke returned an awaitable, not an async iterable"),
    ],
)
async def test_lesser_breaches_are_only_recorded(shape: Callable[[], Any], violation: str) -> None:
    recorded = await Recorded(shape).run()
    assert recorded.outcome == Completed()
    assert recorded.drive.violations == [violation]


async def test_the_outcome_is_told_before_the_agent_has_cleaned_up() -> None:
    may_clean_up = asyncio.Event()
    cleaned_up: list[str] = []

    async def agent() -> Events:
        yield COMPLETED
        await may_clean_up.wait()
        cleaned_up.append("yes")

    recorded = Recorded(agent, bounds=Bounds())
    recorded.drive.start()
    await recorded.has_ended.wait()
    assert cleaned_up == []
    assert not recorded.drive.is_over
    may_clean_up.set()
    await recorded.over()
    assert cleaned_up == ["yes"]
    assert recorded.drive.violations == []


async def test_an_agent_that_lingers_after_its_terminal_is_closed() -> None:
    ended_by: list[str] = []

    async def agent() -> Events:
        yield COMPLETED
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            ended_by.append("cancel")
            raise

    async with nothing_left():
        recorded = await Recorded(agent).run()
        assert recorded.outcome == Completed()
        assert ended_by == ["cancel"]
        assert recorded.drive.violations == ["did not end after its terminal event: TimeoutError"]


async def test_an_agent_that_can_not_be_ended_after_its_terminal_is_abandoned() -> None:
    """The pump's own bounds can be swallowed too, so a guard outside starts the escalation."""
    release = asyncio.Event()

    async def agent() -> Events:
        yield COMPLETED
        await deaf_until(release)

    recorded = await Recorded(agent).run()
    assert recorded.outcome == Completed()
    assert recorded.drive.abandoned
    await released(release)


async def test_back_pressure_holds_the_agent() -> None:
    full, room = asyncio.Event(), asyncio.Event()
    steps: list[int] = []

    async def agent() -> Events:
        for number in range(2):
            steps.append(number)
            yield text(str(number))
        yield COMPLETED

    async def wait_for_room() -> None:
        full.set()
        await room.wait()

    recorded = Recorded(agent, sink=lambda _: wait_for_room())
    recorded.drive.start()
    await full.wait()
    assert steps == [0]
    room.set()
    await recorded.over()
    assert steps == [0, 1]
    assert recorded.outcome == Completed()


async def raise_later(error: BaseException) -> None:
    await asyncio.sleep(0)
    raise error


@pytest.mark.parametrize("at_once", [True, False])
@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (BadEvent("NaN is no JSON"), Failed("NaN is no JSON", retryable=False, code="bad_event")),
        (
            BadEvent("17 MiB", code="event_too_large"),
            Failed("17 MiB", retryable=False, code="event_too_large"),
        ),
        (
            StorageUnavailable("no database"),
            Failed("no database", retryable=True, code="storage_unavailable"),
        ),
        (TarkoError("odd", code="odd"), Failed("odd", retryable=False, code="odd")),
        (KeyError("bug"), Failed("an event could not be taken", retryable=False, code="internal_error")),
        (
            asyncio.CancelledError(),
            Failed("an event could not be taken", retryable=False, code="internal_error"),
        ),
    ],
)
async def test_an_event_that_is_refused_fails_the_turn(
    error: BaseException, outcome: Outcome, at_once: bool
) -> None:
    closed: list[str] = []

    async def agent() -> Events:
        try:
            yield text("a")
            yield text("b")
        finally:
            closed.append("yes")

    def refuse(_: AgentEvent) -> Awaitable[None]:
        if at_once:
            raise error
        return raise_later(error)

    async with nothing_left():
        recorded = await Recorded(agent, sink=refuse).run()
        assert recorded.outcome == outcome
        assert closed == ["yes"]
        assert len(recorded.events) == 1


async def test_an_agent_that_never_awaits_does_not_keep_the_loop() -> None:
    async def agent() -> Events:
        for number in range(1_000):
            yield text(str(number))
        yield COMPLETED

    turns = 0
    recorded = Recorded(agent)
    recorded.drive.start()
    while not recorded.outcomes:
        turns += 1
        await asyncio.sleep(0)
    assert turns >= 1_000 // 64
    assert len(recorded.events) == 1_000
    await recorded.over()


async def test_everything_of_the_agent_happens_in_one_named_task_and_the_callers_context() -> None:
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable")
    variable.set("the caller's")
    seen: list[object] = []

    async def agent() -> Events:
        token = variable.set("the agent's")
        try:
            seen.append(asyncio.current_task())
            yield text("a")
            seen.append(asyncio.current_task())
            yield COMPLETED
        finally:
            seen.append(asyncio.current_task())
            variable.reset(token)

    def invoke() -> Events:
        seen.append(variable.get())
        seen.append(asyncio.current_task())
        return agent()

    recorded = await Recorded(invoke).run()
    assert recorded.outcome == Completed()
    assert seen[0] == "the caller's"
    assert len(set(seen[1:])) == 1
    task = seen[1]
    assert isinstance(task, asyncio.Task)
    assert task.get_name() == "turn 1"
    assert variable.get() == "the caller's"


async def test_a_caller_whose_ended_raises_does_not_keep_the_agent_from_its_clean_up(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def ended(_: Outcome) -> None:
        raise ValueError("the caller's bug")

    drive = Drive(FunctionAgent(good), {"session": "s"}, {"text": ""}, lambda _: None, ended, name="turn 1")
    drive.start()
    await drive.wait()
    assert drive.has_ended
    assert drive.violations == []
    assert "telling the outcome failed" in caplog.text


async def test_a_drive_is_started_once() -> None:
    recorded = await Recorded(good).run()
    with pytest.raises(RuntimeError, match="turn 1 was started already"):
        recorded.drive.start()


async def test_a_generator_exit_of_the_agents_own_still_ends_the_turn(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Odd(Handmade):
        def __anext__(self) -> "asyncio.Future[AgentEvent]":
            raise GeneratorExit

    recorded = await Recorded(Odd).run()
    assert recorded.outcome == raised("GeneratorExit")
    assert "the pump broke" in caplog.text


@pytest.mark.parametrize("where", ["invoke", "tail", "close"])
async def test_a_generator_exit_elsewhere_ends_the_pump(where: str, caplog: pytest.LogCaptureFixture) -> None:
    class Odd(Handmade):
        def __init__(self) -> None:
            if where == "invoke":
                raise GeneratorExit
            self._left = [COMPLETED] if where == "tail" else [{}]

        def __anext__(self) -> "asyncio.Future[AgentEvent]":
            if not self._left:
                raise GeneratorExit
            return super().__anext__()

        async def aclose(self) -> None:
            raise GeneratorExit

    recorded = await Recorded(Odd).run()
    assert len(recorded.outcomes) == 1
    assert "the pump broke" in caplog.text


# Cancelling


async def deaf_until(release: asyncio.Event) -> None:
    """Swallow every cancel."""
    while not release.is_set():
        try:
            await release.wait()
        except asyncio.CancelledError:
            continue


async def released(release: asyncio.Event) -> None:
    """Let the abandoned agent go, so that the next test finds none."""
    assert abandoned_pumps() == 1
    (pump,) = driver._abandoned
    release.set()
    await asyncio.wait({pump}, timeout=PATIENCE)
    assert abandoned_pumps() == 0


class Parked:
    """An agent that waits for ever after its first event; `at` says where it is."""

    def __init__(self) -> None:
        self.waits = asyncio.Event()
        self.log: list[str] = []

    async def agent(self) -> Events:
        try:
            yield text("a")
            self.waits.set()
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.log.append("cancelled")
            raise
        finally:
            await asyncio.sleep(0)
            self.log.append("cleaned up")


async def test_a_cancel_reaches_the_agent_and_waits_for_its_clean_up() -> None:
    async with nothing_left():
        parked = Parked()
        recorded = Recorded(parked.agent)
        recorded.drive.start()
        await parked.waits.wait()

        await recorded.cancelled()

        assert recorded.outcome == Cancelled()
        assert parked.log == ["cancelled", "cleaned up"]
        assert recorded.drive.violations == []


async def test_a_cancel_while_the_sink_waits_closes_the_agent_where_it_yielded() -> None:
    async with nothing_left():
        parked = Parked()
        never = asyncio.Event()
        reached = asyncio.Event()

        async def wait() -> None:
            reached.set()
            await never.wait()

        recorded = Recorded(parked.agent, sink=lambda _: wait())
        recorded.drive.start()
        await reached.wait()
        await recorded.cancelled()
        assert recorded.outcome == Cancelled()
        assert parked.log == ["cleaned up"]


async def test_a_cancel_in_the_same_tick_as_the_start_runs_nothing_and_still_ends() -> None:
    async with nothing_left():
        for _ in range(1_000):
            parked = Parked()
            recorded = Recorded(parked.agent)
            recorded.drive.start()
            await recorded.cancelled()
            assert recorded.outcome == Cancelled()
            assert parked.log == []


async def test_a_cancel_before_the_start_ends_at_once_and_the_start_does_nothing() -> None:
    recorded = Recorded(good)
    await recorded.cancelled()
    recorded.drive.start()
    await recorded.over()
    assert recorded.outcome == Cancelled()
    assert recorded.events == []


async def test_a_cancel_during_a_lenient_invoke_never_steps_the_stream() -> None:
    reached, stepped = asyncio.Event(), asyncio.Event()

    async def stream() -> Events:
        stepped.set()
        yield COMPLETED

    async def invoke() -> Events:
        reached.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return stream()
        raise AssertionError

    recorded = Recorded(invoke)
    recorded.drive.start()
    await reached.wait()
    await recorded.cancelled()
    assert recorded.outcome == Cancelled()
    assert not stepped.is_set()


@pytest.mark.parametrize("needed", [2, 3])
async def test_many_cancels_share_one_escalation(needed: int) -> None:
    cancels = 0
    parked = Parked()

    async def agent() -> Events:
        nonlocal cancels
        parked.waits.set()
        while cancels < needed:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                cancels += 1
        yield COMPLETED

    async with nothing_left():
        recorded = Recorded(agent)
        recorded.drive.start()
        await parked.waits.wait()
        await asyncio.gather(*(recorded.cancelled() for _ in range(5)))
        assert cancels == needed
        assert recorded.outcome == Cancelled()
        await recorded.cancelled()


async def test_a_cancel_after_the_end_changes_nothing() -> None:
    recorded = await Recorded(good).run()
    await recorded.cancelled()
    assert recorded.outcome == Completed()


async def test_a_canceller_that_is_cancelled_does_not_stop_the_escalation() -> None:
    async with nothing_left():
        parked = Parked()
        recorded = Recorded(parked.agent)
        recorded.drive.start()
        await parked.waits.wait()
        canceller = asyncio.create_task(recorded.drive.cancel())
        waiter = asyncio.create_task(recorded.drive.wait())
        await asyncio.sleep(0)
        canceller.cancel()
        waiter.cancel()
        await asyncio.wait({canceller, waiter})
        await recorded.over()
        assert recorded.outcome == Cancelled()
        assert parked.log == ["cancelled", "cleaned up"]


async def test_a_waiter_that_is_cancelled_does_not_hurt_the_agent() -> None:
    go = asyncio.Event()

    async def agent() -> Events:
        await go.wait()
        yield COMPLETED

    recorded = Recorded(agent)
    recorded.drive.start()
    waiter = asyncio.create_task(recorded.drive.wait())
    await asyncio.sleep(0)
    waiter.cancel()
    await asyncio.wait({waiter})
    go.set()
    await recorded.over()
    assert recorded.outcome == Completed()


async def test_the_first_ending_wins_over_a_later_cancel() -> None:
    cleaning = asyncio.Event()

    async def agent() -> Events:
        yield COMPLETED
        cleaning.set()
        await asyncio.Event().wait()

    recorded = Recorded(agent, bounds=Bounds())
    recorded.drive.start()
    await cleaning.wait()
    await recorded.cancelled()
    assert recorded.outcome == Completed()


@pytest.mark.parametrize("last", [COMPLETED, text("late"), {}])
async def test_what_comes_out_after_the_cancel_is_silenced(last: AgentEvent) -> None:
    waits = asyncio.Event()
    cleaned_up: list[str] = []

    async def agent() -> Events:
        try:
            waits.set()
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            yield last
        finally:
            await asyncio.sleep(0)
            cleaned_up.append("yes")

    async with nothing_left():
        recorded = Recorded(agent)
        recorded.drive.start()
        await waits.wait()
        await recorded.cancelled()
        assert recorded.outcome == Cancelled()
        assert recorded.events == []
        assert cleaned_up == ["yes"]


async def test_a_cancel_seen_once_is_not_seen_again_in_the_clean_up() -> None:
    waits = asyncio.Event()
    left: list[int] = []

    async def agent() -> Events:
        try:
            waits.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                yield COMPLETED
        finally:
            task = asyncio.current_task()
            assert task is not None
            left.append(task.cancelling())

    recorded = Recorded(agent)
    recorded.drive.start()
    await waits.wait()
    await recorded.cancelled()
    assert left == [0]


async def test_an_error_while_being_cancelled_is_recorded_only() -> None:
    waits = asyncio.Event()

    async def agent() -> Events:
        try:
            waits.set()
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise ValueError("clumsy") from None
        yield COMPLETED

    recorded = Recorded(agent)
    recorded.drive.start()
    await waits.wait()
    await recorded.cancelled()
    assert recorded.outcome == Cancelled()
    assert recorded.drive.violations == ["raised while it was cancelled: ValueError: clumsy"]


async def test_an_agent_that_ends_quietly_when_cancelled_is_no_violator() -> None:
    waits = asyncio.Event()

    async def agent() -> Events:
        try:
            waits.set()
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return
        yield COMPLETED

    recorded = Recorded(agent)
    recorded.drive.start()
    await waits.wait()
    await recorded.cancelled()
    assert recorded.outcome == Cancelled()
    assert recorded.drive.violations == []


async def test_a_generator_that_yields_in_its_finally_is_recorded() -> None:
    waits = asyncio.Event()

    async def agent() -> Events:
        try:
            yield text("a")
            waits.set()
            await asyncio.Event().wait()
        finally:
            try:
                yield text("b")
            finally:
                yield text("c")

    async with nothing_left():
        recorded = Recorded(agent)
        recorded.drive.start()
        await waits.wait()
        await recorded.cancelled()
        assert recorded.outcome == Cancelled()
        assert recorded.events == [text("a")]
        assert recorded.drive.violations == [
            "did not close: RuntimeError: async generator ignored GeneratorExit"
        ]


async def test_a_finally_that_hangs_is_bounded() -> None:
    async def agent() -> Events:
        try:
            yield text("a")
            yield None  # type: ignore[misc]
        finally:
            await asyncio.Event().wait()

    async with nothing_left():
        recorded = await Recorded(agent).run()
        assert isinstance(recorded.outcome, Failed)
        assert recorded.drive.violations == ["did not close: TimeoutError"]


async def test_a_finally_that_raises_is_recorded() -> None:
    async def agent() -> Events:
        try:
            yield text("a")
            yield None  # type: ignore[misc]
        finally:
            raise SystemExit("finally")

    recorded = await Recorded(agent).run()
    assert isinstance(recorded.outcome, Failed)
    assert recorded.drive.violations == ["did not close: SystemExit: finally"]


async def test_an_agent_that_swallows_every_cancel_is_abandoned_and_silent() -> None:
    waits, release = asyncio.Event(), asyncio.Event()

    async def agent() -> Events:
        yield text("a")
        waits.set()
        await deaf_until(release)
        yield text("b")
        yield COMPLETED

    async with nothing_left():
        recorded = Recorded(agent)
        recorded.drive.start()
        await waits.wait()
        await recorded.cancelled()
        assert recorded.drive.abandoned
        assert recorded.outcome == Cancelled()
        await released(release)
        assert recorded.events == [text("a")]
        assert recorded.outcomes == [Cancelled()]


async def test_an_agent_in_a_thread_is_cancelled_without_waiting_for_the_thread() -> None:
    import threading

    started, release = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def block() -> None:
        loop.call_soon_threadsafe(started.set)
        release.wait(PATIENCE)

    async def agent() -> Events:
        await asyncio.to_thread(block)
        yield COMPLETED

    recorded = Recorded(agent, bounds=Bounds())
    recorded.drive.start()
    await started.wait()
    await recorded.cancelled()
    assert recorded.outcome == Cancelled()
    release.set()
