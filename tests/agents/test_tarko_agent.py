"""A remote Tarko server as an agent, against a scripted one: connections that break, refusals, aborts, silence."""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import aclosing
from typing import Any

import pytest

from app.agents.adapters import comeback
from app.agents.adapters.comeback import Patience
from app.agents.adapters.tarko import turn as turns
from app.agents.adapters.tarko.agent import TarkoAgent
from app.agents.contract import AgentEvent, Prompt, Scope
from app.agents.driver import Bounds
from app.agents.outcome import Cancelled
from app.errors import AgentLoadError, StorageUnavailable
from tests.agents.driving import Recorded
from tests.agents.remembering import Remembering
from tests.agents.scripted_http import Json, Reply
from tests.agents.tarko_server import ABORT, FOLLOW, QUERY, TarkoServer
from tests.server import until

PROMPT: Prompt = {"text": "hi"}
LONG = Patience(losses=15.0, abort=10.0)
SHORT = Patience(losses=0.1, abort=10.0)
TOKEN = "a-secret-token-of-the-operator"


def told(number: int, kind: str, **data: Any) -> Json:
    return {"id": f"evt_{number}", "type": kind, "data": data, "metadata": {"source": "agent"}}


def flat(number: int, kind: str, **fields: Any) -> Json:
    return {"id": f"evt_{number}", "type": kind, "timestamp": number, **fields}


NESTED = [
    told(1, "user_message", content="hi", role="user"),
    told(2, "agent_run_start", turnId="turn_behind", agentName="a"),
    told(3, "assistant_message_start", role="assistant", messageId="m1"),
    told(4, "assistant_message_delta", delta="Hel", messageId="m1"),
    told(5, "assistant_message_delta", delta="lo é\u2028", messageId="m1"),
    told(6, "assistant_message", content="Hello é\u2028", finishReason="tool_calls", messageId="m1"),
    told(7, "tool_call", id="c", name="look", arguments={}, type="function", messageId="m1"),
    told(8, "tool_result", toolCallId="c", name="look", content="1", success=True, rawContent=1),
    told(9, "assistant_message_start", role="assistant", messageId="m2"),
    told(10, "assistant_message", content="Done", finishReason="stop", messageId="m2"),
    told(11, "agent_run_end", turnId="turn_behind", status="completed", elapsedMs=1, data={"n": 1}),
]
FLAT = [
    flat(1, "user_message", content="hi"),
    flat(2, "agent_run_start", sessionId="sess_behind"),
    flat(3, "assistant_streaming_message", content="Hel", messageId="m1"),
    flat(4, "assistant_streaming_message", content="lo é\u2028", messageId="m1"),
    flat(5, "assistant_message", content="Hello é\u2028", messageId="m1", toolCalls=[{}]),
    flat(6, "tool_call", toolCallId="c", name="look", arguments={}),
    flat(7, "tool_result", toolCallId="c", name="look", content=1),
    flat(8, "assistant_message", content="Done", messageId="m2", finishReason="stop"),
    flat(9, "agent_run_end", status="idle", data={"n": 1}),
]
STORED = [event for event in FLAT if "streaming" not in event["type"]]
SAID = ("Hello é\u2028Done", ["tool_started", "tool_ended"], {"type": "completed", "data": {"n": 1}})


def heard(events: Sequence[AgentEvent]) -> tuple[str, list[str], AgentEvent]:
    """The text, the types of what is neither text nor terminal, and the last event."""
    text = "".join(event["delta"] for event in events if event["type"] == "text")
    kinds = [event["type"] for event in events[:-1] if event["type"] not in ("text", "remote_session")]
    return text, kinds, events[-1]


Made = Callable[..., TarkoAgent]


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comeback, "FIRST_PAUSE", 0.002)
    monkeypatch.setattr(comeback, "LONGEST_PAUSE", 0.02)
    monkeypatch.setattr(turns, "LOOK_INTERVAL", 0.005)


@pytest.fixture
async def made() -> AsyncIterator[Made]:
    """Makes agents, whose connections are closed after the test."""
    agents: list[TarkoAgent] = []

    def make(server: TarkoServer | str, **options: Any) -> TarkoAgent:
        url = server if isinstance(server, str) else server.url
        if isinstance(server, TarkoServer) and server.flat:
            options["dialect"] = "runtime"
        agents.append(TarkoAgent(url, **{"patience": LONG} | options))
        return agents[-1]

    yield make
    for agent in agents:
        await agent.aclose()


async def said(agent: TarkoAgent, scope: Scope | None = None, prompt: Prompt = PROMPT) -> list[AgentEvent]:
    return await listening(agent, [], scope, prompt)


async def listening(
    agent: TarkoAgent, events: list[AgentEvent], scope: Scope | None = None, prompt: Prompt = PROMPT
) -> list[AgentEvent]:
    """All events, which are added to the list as they come. The limit leaves room for time that a test lets pass, and for
    as much again: what begins to wait just after that waits in earnest."""
    async with asyncio.timeout(600):
        async for event in agent.invoke(scope or {"session": "s", "turn": "turn_1"}, prompt):
            events.append(event)  # noqa: PERF401 - each counts as soon as it comes
    return events


def server_of(dialect: str, **options: Any) -> TarkoServer:
    is_flat = dialect == "flat"
    return TarkoServer(
        FLAT if is_flat else NESTED, flat=is_flat, history=list(STORED) if is_flat else [], **options
    )


both = pytest.mark.parametrize("dialect", ["nested", "flat"])


@both
async def test_a_turn_behind_is_a_turn_here(dialect: str, made: Made) -> None:
    async with server_of(dialect) as server:
        events = await said(made(server, token=TOKEN))
        assert heard(events) == SAID
        assert [event["delta"] for event in events[1:3]] == ["Hel", "lo é\u2028"]
        [query] = server.asked_for(QUERY)
        assert query.body == {"sessionId": "sess_behind", "query": "hi"}
        assert query.headers["idempotency-key"] == "turn_1"
        assert {r.headers["authorization"] for r in server.requests} == {f"Bearer {TOKEN}"}
        assert not server.asked_for(ABORT)


@both
async def test_the_session_behind_is_remembered(dialect: str, made: Made) -> None:
    async with server_of(dialect) as server:
        agent = made(server)
        first = (await said(agent))[0]
        assert first["type"] == "remote_session"
        assert first["sessionId"] == "sess_behind"
        assert server.url not in str(first)
        server.history.clear()
        elsewhere = {**first, "server": "other", "sessionId": "sess_elsewhere"}
        scope: Scope = {"session": "s", "turn": "turn_2", "transcript": Remembering(elsewhere, first)}
        events = await said(agent, scope)
        assert [event["type"] for event in events].count("remote_session") == 0
        assert heard(events) == SAID
        assert len(server.asked_for("sessions/create")) == 1


async def test_a_session_on_another_server_is_not_remembered_here(made: Made) -> None:
    elsewhere = {"type": "remote_session", "server": "other", "sessionId": "x", "hasCursors": True}
    async with server_of("nested") as server:
        events = await said(made(server), {"session": "s", "transcript": Remembering(elsewhere)})
        assert events[0]["sessionId"] == "sess_behind"
        assert heard(events) == SAID


async def test_images_and_the_trace_are_passed_on(made: Made) -> None:
    async with server_of("nested") as server:
        images: Any = [{"mimeType": "image/png", "data": "aGk="}]
        trace = "ab" * 16
        scope: Scope = {"session": "s", "trace": trace}
        await said(made(server), scope, {"text": "look", "images": images})
        await said(made(server), {"session": "s", "turn": "t2"}, {"text": "", "images": images})
        first, second = server.asked_for(QUERY)
        part = {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}}
        assert first.body["query"] == [{"type": "text", "text": "look"}, part]
        assert second.body["query"] == [part]
        assert first.headers["traceparent"].startswith(f"00-{trace}-")
        assert "traceparent" not in second.headers
        assert "idempotency-key" not in first.headers


# ── connections that break ───────────────────────────────────────────────────────────────────────────────────────────


@both
async def test_a_connection_that_breaks_anywhere_loses_and_doubles_nothing(dialect: str, made: Made) -> None:
    async with server_of(dialect) as server:
        agent = made(server)
        for count in range(0, len(b"".join(server.frames())), 23):
            server.requests.clear()
            server.turns = 0
            server.cuts.append(count)
            assert heard(await said(agent)) == SAID, f"broken after {count} bytes"
            assert server.turns == 1
            assert not server.asked_for(ABORT)


async def test_connections_that_break_again_and_again_lose_nothing(made: Made) -> None:
    async with server_of("nested", cuts=deque([500, 30, 0, 400, 0, 350, 420])) as server:
        assert heard(await said(made(server))) == SAID
        assert server.turns == 1
        assert len(server.asked_for(FOLLOW)) >= 5


async def test_what_was_cut_before_the_turn_began_is_asked_again_with_the_same_key(made: Made) -> None:
    async with server_of("nested") as server:
        server.refusals[QUERY].append(Reply(drop=True))
        assert heard(await said(made(server))) == SAID
        assert [r.headers["idempotency-key"] for r in server.asked_for(QUERY)] == ["turn_1", "turn_1"]


async def test_a_server_without_cursors_is_not_asked_twice(made: Made) -> None:
    async with server_of("nested", has_cursors=False, cuts=deque([700])) as server:
        ending = (await said(made(server)))[-1]
        assert (ending["code"], ending["retryable"]) == ("connection_lost", True)
        assert len(server.asked_for(QUERY)) == 1
        assert server.aborted.is_set()


@both
async def test_a_server_that_never_comes_back_fails_the_turn_within_patience(
    dialect: str, made: Made
) -> None:
    async with server_of(dialect, cuts=deque([700])) as server:
        agent = made(server, patience=SHORT)
        async with aclosing(agent.invoke({"session": "s"}, PROMPT)) as events:  # type: ignore[type-var]
            await anext(events)
            await anext(events)
            await server.close()
            ending = [event async for event in events][-1]
        assert ending["type"] == "failed"
        assert ending["code"] in ("connection_lost", "remote_unavailable")
        assert ending["retryable"] is True


@both
async def test_where_nobody_answers_the_turn_fails(dialect: str, made: Made) -> None:
    async with server_of(dialect) as server:
        agent = made(server, patience=SHORT)
    [ending] = await said(agent)
    assert ending == {
        "type": "failed",
        "details": f"No server answers at {server.url}.",
        "retryable": True,
        "code": "remote_unavailable",
    }


@both
async def test_a_server_that_goes_away_before_the_query_fails_the_turn(dialect: str, made: Made) -> None:
    async with server_of(dialect) as server:
        agent = made(server, patience=SHORT)
        async with aclosing(agent.invoke({"session": "s"}, PROMPT)) as events:  # type: ignore[type-var]
            await anext(events)
            await server.close()
            [ending] = [event async for event in events]
        assert (ending["code"], ending["retryable"]) == ("remote_unavailable", True)


@pytest.mark.parametrize("reply", [Reply(drop=True), Reply(500, "cut", [("content-length", "100")])])
async def test_a_query_that_may_have_been_heard_is_looked_for_in_the_history(
    reply: Reply, made: Made
) -> None:
    async with server_of("flat") as server:
        server.refusals[QUERY].append(reply)
        assert heard(await said(made(server))) == SAID
        assert len(server.asked_for(QUERY)) == 1


@both
@pytest.mark.parametrize("path", [QUERY, "sessions/create"])
async def test_a_server_that_restarts_is_waited_for(dialect: str, path: str, made: Made) -> None:
    async with server_of(dialect) as server:
        away = Reply(503, {"error": "draining", "code": "server_shutdown"}, [("retry-after", "0")])
        server.refusals[path].extend([away, away])
        assert heard(await said(made(server))) == SAID


async def test_the_servers_word_when_to_come_back_is_obeyed(made: Made) -> None:
    async with server_of("nested") as server:
        server.refusals[QUERY].append(Reply(503, {"error": "draining"}, [("retry-after", "60")]))
        ending = (await said(made(server, patience=SHORT)))[-1]
        assert (ending["code"], ending["retryable"]) == ("remote_unavailable", True)
        assert len(server.asked_for(QUERY)) == 1


@both
async def test_silence_is_a_lost_connection(
    dialect: str, made: Made, pass_time: Callable[[float], None]
) -> None:
    # 4: behind a few events. What is held is told by the next stream, or by the history.
    async with server_of(dialect, hold=4) as server:
        events: list[AgentEvent] = []
        invoked = asyncio.create_task(listening(made(server, silence=20), events))
        await until(lambda: len(events) > 1)
        server.hold = None
        pass_time(21)
        assert heard(await invoked) == SAID


async def test_an_ending_that_never_comes_fails_the_turn(
    made: Made, pass_time: Callable[[float], None]
) -> None:
    async with server_of("nested", hold=4) as server:
        events: list[AgentEvent] = []
        invoked = asyncio.create_task(listening(made(server, silence=20), events))
        await until(lambda: len(events) > 1)
        server.hold = 1
        pass_time(21)
        await until(lambda: bool(server.asked_for(FOLLOW)))
        pass_time(21)
        ending = (await invoked)[-1]
        assert (ending["code"], ending["retryable"]) == ("connection_lost", True)
        assert ending["details"] == f"{server.url} said nothing for too long."
        assert server.aborted.is_set()


async def test_after_a_steady_while_a_loss_is_a_new_one(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comeback, "STEADY", -1.0)
    opening = len("retry: 10\n\nid: evt_4\n\n: hello\n\n")
    patience = Patience(losses=0.001, abort=1.0)
    monkeypatch.setattr(comeback, "FIRST_PAUSE", 0.0005)
    async with server_of("nested", cuts=deque([700, *([opening] * 10)])) as server:
        assert heard(await said(made(server, patience=patience))) == SAID


async def test_a_turn_of_which_the_history_knows_no_ending_has_failed(made: Made) -> None:
    async with server_of("flat", cuts=deque([300])) as server:
        server.history[:] = STORED[:3]
        idle = Reply(body={"status": {"isProcessing": False}})
        server.refusals["sessions/status"].extend([idle, Reply(body={}), Reply(503), idle])
        ending = (await said(made(server)))[-1]
        assert (ending["code"], ending["retryable"]) == ("connection_lost", True)
        assert len(server.asked_for("sessions/events")) == turns.IDLE_LOOKS


async def test_the_history_is_looked_at_while_the_turn_runs(made: Made) -> None:
    async with server_of("flat", cuts=deque([300])) as server:
        server.history[:] = STORED[:2]
        server.refusals["sessions/events"].extend([Reply(503), Reply(drop=True)])
        invoked = asyncio.create_task(said(made(server)))
        await until(lambda: len(server.asked_for("sessions/events")) >= 6)
        assert not invoked.done()
        server.history[:] = STORED
        assert heard(await invoked) == SAID


@pytest.mark.parametrize(
    ("path", "reply", "code"),
    [
        ("sessions/status", Reply(404, {"error": "gone"}), "remote_session_lost"),
        ("sessions/events", Reply(body={"events": 3}), "bad_remote_event"),
        ("sessions/events", Reply(body="[]"), "not_tarko"),
    ],
)
async def test_a_history_that_can_not_be_read_fails_the_turn(
    path: str, reply: Reply, code: str, made: Made
) -> None:
    async with server_of("flat", cuts=deque([300])) as server:
        server.refusals[path].append(reply)
        assert (await said(made(server)))[-1]["code"] == code
        assert server.aborted.is_set()


async def test_only_what_came_after_the_turns_begin_is_its_own(made: Made) -> None:
    earlier = [flat(100, "assistant_message", content="earlier", messageId="m0")]
    async with server_of("flat", cuts=deque([10])) as server:
        agent = made(server)
        server.cuts.clear()
        first = (await said(agent))[0]
        scope: Scope = {"session": "s", "turn": "turn_2", "transcript": Remembering(first)}
        server.cuts.append(10)
        server.history[:] = earlier
        invoked = asyncio.create_task(said(agent, scope))
        await until(lambda: len(server.asked_for(QUERY)) == 2)
        server.history[:] = [*earlier, *STORED]
        assert heard(await invoked) == SAID
        histories: list[Any] = [[{}], [3]]
        for history in histories:
            server.cuts.append(10)
            server.history[:] = history
            assert heard(await said(agent, scope))[2]["code"] == "bad_remote_event"
        server.cuts.append(10)
        server.history[:] = earlier
        invoked = asyncio.create_task(said(agent, scope))
        await until(lambda: not (server.cuts))
        server.history[:] = STORED
        assert (await invoked)[-1]["code"] == "connection_lost"


# ── refusals ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@both
@pytest.mark.parametrize(
    ("status", "body", "code", "retryable"),
    [
        (400, {"error": "bad"}, "remote_refused", False),
        (401, {"error": "who?"}, "authentication_failed", False),
        (401, "a proxy's page", "authentication_failed", False),
        (403, {"error": "no"}, "authentication_failed", False),
        (404, {"error": "no session"}, "remote_session_lost", False),
        (404, "not found", "not_tarko", False),
        (418, "teapot", "not_tarko", False),
        (413, {"error": "big"}, "too_large", False),
        (429, {"error": "slow down"}, "rate_limited", True),
        (500, {"error": 3}, "remote_unavailable", True),
        (501, ["x"], "remote_unavailable", True),
    ],
)
async def test_a_refusal_fails_the_turn(
    dialect: str, status: int, body: Any, code: str, retryable: bool, made: Made
) -> None:
    async with server_of(dialect) as server:
        server.refusals[QUERY].append(Reply(status, body))
        ending = (await said(made(server, token=TOKEN)))[-1]
        assert (ending["type"], ending["code"], ending["retryable"]) == ("failed", code, retryable)
        assert TOKEN not in str(ending)
        assert not server.asked_for(ABORT)


async def test_a_refusal_that_breaks_off_is_a_lost_connection(made: Made) -> None:
    async with server_of("nested") as server:
        server.refusals[QUERY].append(Reply(500, "x" * 10, [("content-length", "100")]))
        server.has_cursors = False
        ending = (await said(made(server)))[-1]
        assert ending["code"] == "connection_lost"


@pytest.mark.parametrize(
    ("reply", "code"),
    [
        (Reply(404, "nothing here"), "not_tarko"),
        (Reply(404, {"error": "nothing here"}), "not_tarko"),
        (Reply(401, {"error": "who?"}), "authentication_failed"),
        (Reply(body={"id": 3}), "not_tarko"),
        (Reply(body="<html>"), "not_tarko"),
    ],
)
async def test_a_server_without_sessions_is_told_so(reply: Reply, code: str, made: Made) -> None:
    async with server_of("nested") as server:
        server.refusals["sessions/create"].append(reply)
        [ending] = await said(made(server))
        assert (ending["code"], ending["retryable"]) == (code, False)


@pytest.mark.parametrize(
    "reply", [Reply(404, "none"), Reply(404, {"error": "none"}), Reply(body={"session": 3})]
)
async def test_a_server_that_tells_no_cursors_serves_all_the_same(reply: Reply, made: Made) -> None:
    async with server_of("nested") as server:
        server.refusals["sessions/details"].append(reply)
        events = await said(made(server))
        assert events[0]["hasCursors"] is False
        assert heard(events) == SAID


async def test_a_page_only_server_ends_a_turn_by_closing_the_stream(made: Made) -> None:
    async with TarkoServer(
        [*NESTED[3:6], told(9, "assistant_message", content="Done")], has_cursors=False
    ) as server:
        assert heard(await said(made(server)))[2] == {"type": "completed"}
    async with TarkoServer(NESTED[:5], has_cursors=False) as server:
        assert heard(await said(made(server)))[2]["code"] == "connection_lost"


@both
async def test_what_is_left_over_in_the_session_behind_is_aborted_first(dialect: str, made: Made) -> None:
    async with server_of(dialect) as server:
        server.is_processing = True
        server.refusals[QUERY].append(Reply(409, {"error": "busy", "code": "session_busy"}))
        assert heard(await said(made(server))) == SAID
        assert [r.body for r in server.asked_for(ABORT)] == [{"sessionId": "sess_behind"}]


@both
async def test_a_session_behind_that_stays_busy_fails_the_turn(dialect: str, made: Made) -> None:
    async with server_of(dialect) as server:
        server.refusals[QUERY].extend([Reply(409, {"error": "busy"})] * 10)
        ending = (await said(made(server)))[-1]
        assert (ending["code"], ending["retryable"]) == ("session_busy", True)
        assert len(server.asked_for(QUERY)) == turns.BUSY_TRIES


BUSY = [
    flat(
        20, "system", level="error", message="busy", details={"errorCode": "session_busy", "retryable": True}
    ),
    flat(21, "agent_run_end", status="error"),
]


async def test_a_busy_word_in_a_flat_stream_is_a_busy_session(made: Made) -> None:
    async with TarkoServer(BUSY, flat=True) as server:
        agent = made(server)
        frames = [TarkoServer(script, flat=True).frames() for script in (BUSY, BUSY, FLAT)]
        server.frames = lambda: frames.pop(0)  # type: ignore[method-assign]
        server.refusals[ABORT].extend([Reply(body={"success": True})] * 2)
        assert heard(await said(agent)) == SAID


async def test_a_flat_turn_that_can_not_begin_fails(made: Made) -> None:
    async with TarkoServer(BUSY, flat=True) as server:
        ending = (await said(made(server)))[-1]
        assert (ending["details"], ending["code"], ending["retryable"]) == ("busy", "session_busy", True)
        server.refusals[ABORT].extend([Reply(body={"success": True})] * 10)
        assert (await said(made(server)))[-1]["code"] == "session_busy"
        assert len(server.asked_for(QUERY)) == 1 + turns.BUSY_TRIES


async def test_a_flat_stream_that_stops_at_an_error_fails_the_turn(made: Made) -> None:
    async with TarkoServer([*FLAT[:3], BUSY[0]], flat=True) as server:
        assert heard(await said(made(server)))[2]["details"] == "busy"


@pytest.mark.parametrize("data", [b"data: {nonsense}\n\n", b"data: 3\n\n", b'data: {"type":"tool_call"}\n\n'])
@both
async def test_a_malformed_frame_fails_the_turn_and_aborts_the_one_behind(
    dialect: str, data: bytes, made: Made
) -> None:
    async with server_of(dialect) as server:
        frames = [*server.frames()[:3], data, *server.frames()[3:]]
        server.frames = lambda: frames  # type: ignore[method-assign]
        ending = (await said(made(server)))[-1]
        assert (ending["code"], ending["retryable"]) == ("bad_remote_event", False)
        assert server.aborted.is_set()


async def test_what_is_no_stream_fails_the_turn(made: Made) -> None:
    async with server_of("nested") as server:
        server.refusals[QUERY].append(Reply(body={"hello": 1}))
        assert (await said(made(server)))[-1]["code"] == "not_tarko"


async def test_a_transcript_that_can_not_be_read_fails_the_turn(made: Made) -> None:
    class Broken(Remembering):
        async def own_events(self, event_type: str) -> AsyncGenerator[Any, None]:
            raise StorageUnavailable("no database")
            yield event_type

    [ending] = await said(made("http://127.0.0.1:1"), {"session": "s", "transcript": Broken()})
    assert (ending["code"], ending["retryable"]) == ("storage_unavailable", True)


@pytest.mark.parametrize(
    ("url", "token"),
    [
        ("ftp://host", None),
        ("http://", None),
        ("host:80", None),
        ("http://user:secret@host", None),
        ("http://host:port", None),
        ("http://host", "two words"),
    ],
)
def test_an_address_or_a_token_that_can_be_none_is_refused(url: str, token: str | None) -> None:
    with pytest.raises(AgentLoadError) as refused:
        TarkoAgent(url, token=token)
    assert "secret" not in str(refused.value)


# ── aborts ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@both
async def test_an_abort_here_aborts_the_turn_behind_and_waits_for_it(dialect: str, made: Made) -> None:
    async with server_of(dialect, hold=5) as server:
        agent = made(server)
        drive = Recorded(lambda: agent.invoke({"session": "s", "turn": "turn_1"}, PROMPT), bounds=Bounds())
        drive.drive.start()
        await until(lambda: len(drive.events) > 1)
        gate = asyncio.Event()
        server.refusals[ABORT].append(Reply(wait=gate))
        cancelling = asyncio.create_task(drive.cancelled())
        await until(lambda: bool(server.asked_for(ABORT)))
        assert not cancelling.done()
        gate.set()
        await cancelling
        assert drive.outcome == Cancelled()
        [abort] = server.asked_for(ABORT)
        named = {} if dialect == "flat" else {"turnId": "turn_behind"}
        assert abort.body == {"sessionId": "sess_behind"} | named


@both
async def test_an_abort_never_overtakes_the_query(dialect: str, made: Made) -> None:
    async with server_of(dialect, hold=0) as server:
        gate = asyncio.Event()
        server.refusals[QUERY].append(Reply(wait=gate))
        agent = made(server)
        drive = Recorded(lambda: agent.invoke({"session": "s"}, PROMPT), bounds=Bounds())
        drive.drive.start()
        await until(lambda: bool(server.asked_for(QUERY)))
        cancelling = asyncio.create_task(drive.cancelled())
        await asyncio.sleep(0)
        assert not server.asked_for(ABORT)
        gate.set()
        await cancelling
        assert server.asked_for(ABORT)


@both
async def test_an_abort_that_is_not_answered_is_waited_for_within_patience(
    dialect: str, made: Made, pass_time: Callable[[float], None]
) -> None:
    async with server_of(dialect, hold=5) as server:
        agent = made(server, patience=Patience(losses=0.2, abort=20))
        server.refusals[ABORT].append(Reply(wait=asyncio.Event()))

        async def leave() -> None:
            async with asyncio.timeout(60), aclosing(agent.invoke({"session": "s"}, PROMPT)) as events:  # type: ignore[type-var]
                await anext(events)
                await anext(events)

        leaving = asyncio.create_task(leave())
        await until(lambda: bool(server.asked_for(ABORT)))
        assert not leaving.done()
        pass_time(21)
        await leaving


async def test_before_anything_was_asked_there_is_nothing_to_abort(made: Made) -> None:
    async with server_of("nested") as server:
        async with aclosing(made(server).invoke({"session": "s"}, PROMPT)) as events:  # type: ignore[type-var]
            await anext(events)
        assert not server.asked_for(ABORT)
