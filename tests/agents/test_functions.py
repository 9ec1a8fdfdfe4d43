"""Plain functions of text as agents: every shape of one, and what an abort does to those in a thread."""

import asyncio
import functools
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Iterator
from typing import Any

import pytest

from app.agents.adapters import threads
from app.agents.adapters.functions import FunctionAgent, is_text_function
from app.agents.contract import AgentEvent, Message
from app.agents.driver import Bounds
from app.agents.outcome import Cancelled, Completed, Failed
from tests.agents.driving import PATIENCE, Recorded, nothing_left, text
from tests.server import until


def drive(function: Callable[..., Any], **scope: Any) -> Recorded:
    agent = FunctionAgent(function)
    prompt: Any = {"text": "hi", **scope.pop("prompt", {})}
    given: Any = {"session": "s", **scope}
    return Recorded(lambda: agent.invoke(given, prompt), bounds=Bounds())


async def words(text: str) -> AsyncIterator[str]:
    for word in (text, " ", "there"):
        yield word


async def sentence(text: str) -> str:
    return f"{text} there"


def sync_words(text: str) -> Iterator[str]:
    yield text
    yield " "
    yield "there"


def sync_sentence(text: str) -> str:
    return f"{text} there"


def returns_a_generator(text: str) -> AsyncIterator[str]:
    return words(text)


def returns_a_coroutine(text: str) -> Any:
    return sentence(text)


class Called:
    async def __call__(self, text: str) -> str:
        return f"{text} there"


class Pieces:
    """An async iterable that can't be closed."""

    def __init__(self, text: str) -> None:
        self._words = [text, " there"]

    def __aiter__(self) -> "Pieces":
        return self

    async def __anext__(self) -> str:
        if not self._words:
            raise StopAsyncIteration
        return self._words.pop(0)


def iterable(text: str) -> Pieces:
    return Pieces(text)


SHAPES = [
    words,
    sentence,
    sync_words,
    sync_sentence,
    returns_a_generator,
    returns_a_coroutine,
    Called(),
    functools.partial(sentence),
    iterable,
]


@pytest.mark.parametrize("function", SHAPES, ids=lambda each: getattr(each, "__name__", type(each).__name__))
async def test_every_shape_answers(function: Callable[..., Any]) -> None:
    assert is_text_function(function)
    async with nothing_left():
        run = await drive(function).run()
    assert "".join(event["delta"] for event in run.events) == "hi there"
    assert run.outcome == Completed()


def invoke(scope: Any, prompt: Any) -> None: ...
def factory() -> None: ...
def optional(text: str = "") -> None: ...
def keyword(*, text: str) -> None: ...
def with_option(text: str, temperature: float = 0.5) -> None: ...
def with_messages(text: str, messages: list[Message]) -> None: ...
def messages_first(messages: list[Message], text: str) -> None: ...
def anything(*args: Any, **kwargs: Any) -> None: ...


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (invoke, False),
        (factory, False),
        (optional, False),
        (keyword, False),
        (with_option, True),
        (with_messages, True),
        (messages_first, False),
        (anything, False),
        (max, False),
    ],
)
def test_a_function_of_text_takes_one_thing(function: Callable[..., Any], expected: bool) -> None:
    assert is_text_function(function) is expected


async def test_events_pass_and_a_terminal_one_ends_the_turn() -> None:
    closed = asyncio.Event()

    async def agent(_: str) -> AsyncIterator[str | AgentEvent]:
        try:
            yield {"type": "thinking", "delta": "hm"}
            yield {"type": "progress", "step": 1}
            yield {"type": "failed", "details": "no", "retryable": True}
            yield "never"
        finally:
            closed.set()

    run = await drive(agent).run()
    assert run.events == [{"type": "thinking", "delta": "hm"}, {"type": "progress", "step": 1}]
    assert run.outcome == Failed("no", retryable=True)
    assert closed.is_set()


@pytest.mark.parametrize("result", [{"a": 1}, 7, [None]])
async def test_a_result_that_is_no_text_is_the_data(result: Any) -> None:
    async def asynchronous(_: str) -> Any:
        return result

    def generator(_: str) -> Generator[str, None, Any]:
        yield "text"
        return result

    assert (await drive(asynchronous).run()).outcome == Completed(result, has_data=True)
    run = await drive(generator).run()
    assert run.events == [text("text")]
    assert run.outcome == Completed(result, has_data=True)


@pytest.mark.parametrize("piece", [7, None, {"no": "type"}])
async def test_what_is_neither_text_nor_an_event_fails_the_turn(piece: Any) -> None:
    async def agent(_: str) -> AsyncIterator[Any]:
        yield piece

    outcome = (await drive(agent).run()).outcome
    assert isinstance(outcome, Failed)
    assert outcome.code == "agent_protocol_error"
    assert "yields strings or events" in outcome.details


class Earlier:
    async def messages(self) -> list[Message]:
        return [{"role": "user", "content": "before"}]

    async def own_events(self, event_type: str) -> AsyncGenerator[Any, None]:
        raise AssertionError(event_type)
        yield


async def test_messages_and_images_are_given_to_those_who_ask() -> None:
    def agent(text: str, messages: list[Message], *, images: list[Any]) -> str:
        return f"{text} {[each['content'] for each in messages]} {len(images)}"

    image = {"mimeType": "image/png", "data": ""}
    run = await drive(agent, transcript=Earlier(), prompt={"images": [image]}).run()
    assert run.events == [text("hi ['before'] 1")]
    assert (await drive(agent).run()).events == [text("hi [] 0")]


@pytest.mark.parametrize("error", [ValueError("no"), SystemExit("no"), StopIteration("no")], ids=repr)
async def test_what_a_synchronous_function_raises_fails_the_turn(error: BaseException) -> None:
    def function(_: str) -> str:
        raise error

    def generator(_: str) -> Iterator[str]:
        yield "a"
        raise error

    async with nothing_left():
        first, second = await drive(function).run(), await drive(generator).run()
    for run in (first, second):
        assert isinstance(run.outcome, Failed)
        assert run.outcome.code == "agent_exception"
    assert isinstance(first.outcome, Failed)
    assert first.outcome.details.endswith("no")
    assert second.events == [text("a")]


async def test_an_aborted_generator_is_closed_in_its_own_thread_and_the_thread_ends() -> None:
    told: list[int | None] = []

    def endless(_: str) -> Iterator[str]:
        try:
            while True:
                yield "tick"
        finally:
            told.append(threading.current_thread().ident)

    begun = asyncio.Event()
    before = threading.active_count()
    async with nothing_left():
        run = drive(endless)
        run._also = lambda _: begun.set()
        run.drive.start()
        await begun.wait()
        await run.cancelled()
    assert run.outcome == Cancelled()
    assert told
    assert told != [threading.current_thread().ident]
    assert threading.active_count() == before


async def test_a_slow_reader_holds_the_thread_back() -> None:
    made: list[int] = []

    def many(_: str) -> Iterator[str]:
        for number in range(1_000):
            made.append(number)
            yield "x"

    ahead = threads.in_a_thread(lambda: many(""), "many")
    assert isinstance(await anext(ahead), threads.Piece)
    await until(lambda: len(made) > threads._AHEAD)
    assert len(made) <= threads._AHEAD + 2
    await ahead.aclose()
    assert len(made) <= threads._AHEAD + 4


async def test_a_function_that_can_not_be_stopped_is_abandoned_and_counted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    reached, go_on = threading.Event(), threading.Event()

    def stuck(_: str) -> str:
        reached.set()
        go_on.wait(PATIENCE)
        return "too late"

    run = drive(stuck)
    async with nothing_left():
        run.drive.start()
        await until(reached.is_set)
        await run.cancelled()
    assert run.outcome == Cancelled()
    assert "runs on in its thread" in caplog.text
    assert threads.abandoned_threads() == 1
    go_on.set()
    await until(lambda: threads.abandoned_threads() == 0)
    assert run.events == []


async def test_an_iterator_that_is_no_generator_needs_no_closing() -> None:
    assert (await drive(lambda _: iter(["a", "b"])).run()).events == [text("a"), text("b")]


def test_a_thread_survives_its_loop_in_silence() -> None:
    reached, go_on = threading.Event(), threading.Event()

    def stuck() -> str:
        reached.set()
        go_on.wait(PATIENCE)
        return "too late"

    async def turn() -> None:
        given = threads.in_a_thread(stuck, "stuck")
        task = asyncio.ensure_future(anext(given))
        await until(reached.is_set)
        task.cancel()
        await asyncio.wait({task})

    asyncio.run(turn())
    go_on.set()
    for thread in threads._abandoned.copy():
        thread.join(PATIENCE)
    assert threads.abandoned_threads() == 0
