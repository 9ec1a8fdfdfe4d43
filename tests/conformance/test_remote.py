"""The kit over the wire: a served agent is checked over both dialects, and what is wrong there is found here."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from app.agents.contract import AgentEvent, Prompt, Scope
from app.conformance import AGENT, Conversation, Limits, Subject, Verdict, examine_agent, served_at
from app.conformance.gallery.sound import converses
from app.conformance.remote import Over, agent_event
from tests.conftest import Server, own_database
from tests.server import Json, Scripted, Serving, serving, until

OVER_THE_WIRE = ("A1", "A1b", "A2", "A3", "A3b", "A3d", "A4", "A6", "A8", "A9")
LIMITS = Limits(patience=60, stop=15, settle=1, quiet=0.1)
TOKEN = "alice-token-alice-token"


async def waits(_: Scope, __: Prompt) -> AsyncIterator[AgentEvent]:
    yield {"type": "text", "delta": "a"}
    await asyncio.Event().wait()


async def fails(_: Scope, __: Prompt) -> AsyncIterator[AgentEvent]:
    yield {"type": "failed", "details": "no luck", "retryable": True, "code": "luck"}


async def crashes(_: Scope, __: Prompt) -> AsyncIterator[AgentEvent]:
    raise ValueError("crash")
    yield


class Conversing(Scripted):
    """What a sound agent does, unless a prompt asks for another."""

    def __init__(self) -> None:
        super().__init__()
        self.for_prompt = {"wait": waits, "fail": fails, "crash": crashes}

    def invoke(self, scope: Scope, prompt: Prompt, /) -> AsyncIterator[AgentEvent]:
        return self.for_prompt.get(prompt["text"], converses)(scope, prompt)


@pytest.fixture(scope="module")
async def served(embedded_server: Server) -> AsyncIterator[Serving]:
    async with (
        own_database(embedded_server) as url,
        serving(url, Conversing(), tokens=f"alice={TOKEN}") as server,
    ):
        yield server


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.mark.parametrize("over", ["tarko", "invoke"])
async def test_a_served_agent_passes(served: Serving, over: Over) -> None:
    subject = Subject(
        served_at(served.url, token=TOKEN, over=over),
        failing={"text": "fail"},
        waiting={"text": "wait"},
        conversation=Conversation("I am Ada", "Who am I?", "I am Ada"),
        limits=LIMITS,
    )
    report = await examine_agent(subject, [statement for statement in AGENT if statement.id in OVER_THE_WIRE])
    odd = {each: verdict for each, verdict in report.verdicts().items() if verdict is not Verdict.PASS}
    assert odd == ({} if over == "tarko" else {"A6": Verdict.WARN}), report  # no pictures on that wire
    await until(lambda: served.parts.parts.supervisor.running == 0)


@pytest.mark.parametrize("over", ["tarko", "invoke"])
async def test_an_agent_that_crashes_over_there_is_a_failed_turn_here(served: Serving, over: Over) -> None:
    make = served_at(served.url, token=TOKEN, over=over)
    events = [event async for event in make().invoke({"session": "crash"}, {"text": "crash"})]
    assert [(event["type"], event["code"]) for event in events] == [("failed", "agent_exception")]


@pytest.mark.parametrize(
    ("over", "code"), [("tarko", "unauthenticated"), ("invoke", "authentication_failed")]
)
async def test_who_may_not_come_in_is_told_so(served: Serving, over: Over, code: str) -> None:
    make = served_at(served.url, over=over)
    (event,) = [event async for event in make().invoke({"session": "s"}, {"text": "x"})]
    assert (event["code"], event["retryable"]) == (code, False)


Answer = Callable[[asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def answering(*answers: Answer) -> AsyncIterator[str]:
    """A server that answers each request in turn so, and hangs up."""
    left = list(answers)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(
            next(line[15:] for line in head.lower().split(b"\r\n") if line.startswith(b"content-length"))
        )
        await reader.readexactly(length)
        await left.pop(0)(writer)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


def answer(status: str, body: bytes, *headers: str, cut: bool = False) -> Answer:
    async def write(writer: asyncio.StreamWriter) -> None:
        length = len(body) + (100 if cut else 0)
        lines = [f"HTTP/1.1 {status}", f"content-length: {length}", *headers, "connection: close", "", ""]
        writer.write("\r\n".join(lines).encode() + body)
        await writer.drain()

    return write


TOOL = {"id": "log_1", "name": "look", "arguments": {"at": 1}}
RESULT = {"toolCallId": "log_1", "content": "deaf", "rawContent": ["deaf"]}


@pytest.mark.parametrize(
    ("kind", "data", "said"),
    [
        ("tool_call", TOOL, {"type": "tool_started", "id": "t", "name": "look", "args": {"at": 1}}),
        *(
            (
                "tool_result",
                {**RESULT, "success": success},
                {"type": "tool_ended", "id": "t", "isError": not success, "content": ["deaf"]},
            )
            for success in (True, False)
        ),
        ("assistant_thinking_delta", {"delta": "hm"}, {"type": "thinking", "delta": "hm"}),
        (
            "error",
            {"error": "no", "recoverable": True, "code": "luck"},
            {"type": "failed", "details": "no", "retryable": True, "code": "luck"},
        ),
        ("agent_run_end", {"status": "completed", "data": None}, {"type": "completed", "data": None}),
        ("agent_run_end", {"status": "completed"}, {"type": "completed"}),
        ("agent_run_end", {"status": "failed"}, None),
        ("assistant_message", {"content": "a"}, None),
        ("unheard_of", {"x": 1}, {"type": "unheard_of", "x": 1}),
    ],
)
def test_an_event_of_the_log_is_the_agents_again(kind: str, data: Json, said: Json | None) -> None:
    envelope = {"type": kind, "data": data, "metadata": {"toolCallId": "t"}}
    assert agent_event(envelope) == said


STREAM = "content-type: text/event-stream"


CREATED = answer("201 Created", b'{"sessionId": "sess_a"}')


@pytest.mark.parametrize(
    ("answers", "code", "retryable"),
    [
        ([CREATED, answer("200 OK", b": ping\n\n", STREAM)], "stream_cut", True),
        ([CREATED, answer("200 OK", b": ping\n\n", STREAM, cut=True)], "provider_unavailable", True),
        ([CREATED, answer("200 OK", b"data: nonsense\n\n", STREAM)], "not_tarko", False),
        ([CREATED, answer("200 OK", b"data: {}\n\n", STREAM)], "not_tarko", False),
        ([CREATED, answer("200 OK", b"hi", "content-type: text/html")], "not_tarko", False),
        ([answer("200 OK", b"hi")], "not_tarko", False),
        ([answer("401 Unauthorized", b"who?")], "refused", False),
        ([CREATED, answer("409 Conflict", b'{"error": "x", "code": "session_busy"}')], "session_busy", True),
        ([answer("429 Too Many Requests", b'{"error": "full", "code": "queue_full"}')], "queue_full", True),
        ([CREATED, answer("503 Unavailable", b"{}")], "refused", True),
        ([answer("500 Oops", b"x" * 10_000)], "refused", True),
    ],
)
async def test_whatever_a_server_answers_there_is_one_terminal_event(
    answers: list[Answer], code: str, retryable: bool
) -> None:
    async with answering(*answers) as url:
        (event,) = [event async for event in served_at(url)().invoke({"session": "s"}, {"text": "x"})]
    assert (event["type"], event["code"], event["retryable"]) == ("failed", code, retryable)
    assert len(event["details"]) < 1_000


async def test_a_turn_that_has_ended_is_not_aborted() -> None:
    """An abort would find nobody there any more, and fail."""
    end = {"type": "agent_run_end", "data": {"status": "completed"}}
    stream = answer("200 OK", b"data: %b\n\n" % json.dumps(end).encode(), STREAM, cut=True)
    async with answering(CREATED, stream) as url:
        events = [event async for event in served_at(f"{url}/")().invoke({"session": "s"}, {"text": "x"})]
    assert events == [{"type": "completed"}]


@pytest.mark.parametrize("over", ["tarko", "invoke"])
async def test_nobody_there_is_a_retryable_failure(over: Over) -> None:
    make = served_at("http://127.0.0.1:1", over=over)
    (event,) = [event async for event in make().invoke({"session": "s"}, {"text": "x"})]
    assert (event["type"], event["retryable"]) == ("failed", True)


async def test_a_server_that_does_not_stop_a_turn_is_found() -> None:
    delta = {"type": "assistant_message_delta", "data": {"delta": "a"}}
    stream = answer("200 OK", b"data: %b\n\n" % json.dumps(delta).encode(), STREAM, cut=True)
    refused = answer("500 Oops", b"{}")
    async with answering(CREATED, stream, refused) as url:
        make = served_at(url)
        (statement,) = [statement for statement in AGENT if statement.id == "A3b"]
        from app.conformance.playing import Stop, play

        turn = await play(make(), {"session": "s"}, {"text": "x"}, LIMITS, Stop(after_events=1))
        assert turn.events == [{"type": "text", "delta": "a"}]
        assert str(turn.close_error) == "the server answered an abort with 500"
        assert statement.text.endswith("closes without an error")
