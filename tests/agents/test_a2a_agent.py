"""A remote A2A agent as an agent, against a scripted one: both versions, connections that break, refusals, questions."""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import aclosing
from typing import Any

import pytest

from app.agents.adapters import comeback
from app.agents.adapters.a2a import remote as remotes
from app.agents.adapters.a2a import taken, watch
from app.agents.adapters.a2a import turn as turns
from app.agents.adapters.a2a.agent import A2AAgent
from app.agents.adapters.a2a.guard import PublicOnly
from app.agents.adapters.a2a.known import Known
from app.agents.adapters.comeback import Patience
from app.agents.contract import AgentEvent, Prompt, Scope
from app.agents.driver import Bounds
from app.agents.outcome import Cancelled
from app.errors import AgentLoadError, StorageUnavailable
from app.settings import A2ARemote
from tests.agents.a2a_peer import A2APeer, Step, busy, piece, status
from tests.agents.driving import Recorded
from tests.agents.remembering import Remembering
from tests.agents.scripted_http import Json, Reply
from tests.server import until

PROMPT: Prompt = {"text": "hi"}
SCOPE: Scope = {"session": "s", "turn": "turn_1"}
PATIENT = Patience(losses=20.0, abort=5.0)
SHORT = Patience(losses=0.2, abort=5.0)
TOKEN = "a-secret-token-of-the-operator"

STEPS = [
    status("working", "Looking around"),
    piece("answer", "Hel"),
    piece("answer", "lo é\u2028", append=True),
    status("working"),
    piece("answer", " and more", append=True),
    piece("table", "", {"data": {"n": 1}}),
    status("completed"),
]
TEXT = "Hello é\u2028 and more"
COMPLETED: AgentEvent = {"type": "completed", "data": {"n": 1}}


def heard(events: Sequence[AgentEvent]) -> tuple[str, AgentEvent]:
    """The text, and the last event."""
    return "".join(event["delta"] for event in events if event["type"] == "text"), events[-1]


def kinds(events: Sequence[AgentEvent]) -> list[str]:
    found = [event["type"] for event in events]
    return [kind for at, kind in enumerate(found) if found[at - 1 : at] != [kind]]


def later(*turns_before: Sequence[AgentEvent], turn: str = "turn_2") -> Scope:
    """The scope of a turn after these."""
    events = [event for turn in turns_before for event in turn if event["type"] == "remote_task"]
    return {"session": "s", "turn": turn, "transcript": Remembering(*events)}


Made = Callable[..., A2AAgent]


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comeback, "FIRST_PAUSE", 0.002)
    monkeypatch.setattr(comeback, "LONGEST_PAUSE", 0.02)
    monkeypatch.setattr(watch, "PACE", 0.002)
    monkeypatch.setattr(watch, "FIRST_LOOK", 0.002)
    monkeypatch.setattr(watch, "LONGEST_LOOK", 0.02)
    monkeypatch.setattr(turns, "RESUBSCRIBE", 0.002)


@pytest.fixture
async def made() -> AsyncIterator[Made]:
    """Makes agents, whose connections are closed after the test."""
    agents: list[A2AAgent] = []

    def make(peer: A2APeer | str, **options: Any) -> A2AAgent:
        url = peer if isinstance(peer, str) else peer.url
        patience = options.pop("patience", PATIENT)
        strangers = options.pop("strangers", None)
        agents.append(A2AAgent(url, options=A2ARemote(**options), patience=patience, strangers=strangers))
        return agents[-1]

    yield make
    for agent in agents:
        await agent.aclose()


async def said(agent: A2AAgent, scope: Scope = SCOPE, prompt: Prompt = PROMPT) -> list[AgentEvent]:
    return await listening(agent, [], scope, prompt)


async def listening(
    agent: A2AAgent, events: list[AgentEvent], scope: Scope = SCOPE, prompt: Prompt = PROMPT
) -> list[AgentEvent]:
    """All events, which are added to the list as they come."""
    async with asyncio.timeout(60):
        async for event in agent.invoke(scope, prompt):
            events.append(event)  # noqa: PERF401 - each counts as soon as it comes
    return events


both = pytest.mark.parametrize("version", ["1.0", "0.3"])


# ── one turn ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@both
@pytest.mark.parametrize("ends_with_task", [False, True])
async def test_a_remote_task_is_a_turn(version: str, ends_with_task: bool, made: Made) -> None:
    async with A2APeer(STEPS, version, ends_with_task=ends_with_task) as peer:
        events = await said(made(peer, token=TOKEN, headers={"x-team": "red"}))
        assert heard(events) == (TEXT, COMPLETED)
        assert kinds(events) == ["remote_task", "thinking", "text", "completed"]
        assert events[1] == {"type": "thinking", "delta": "Looking around"}
        assert [event["delta"] for event in events if event["type"] == "text"][:2] == ["Hel", "lo é\u2028"]
        assert {r.headers["authorization"] for r in peer.requests} == {f"Bearer {TOKEN}"}
        assert {r.headers["x-team"] for r in peer.requests} == {"red"}
        [message] = peer.taken
        assert message["messageId"] == "turn_1"
        assert "contextId" not in message
        assert not peer.asked_for("CancelTask")
        assert not peer.asked_for("GetTask")


@both
async def test_an_agent_that_does_not_stream_is_looked_at_until_its_task_ends(
    version: str, made: Made
) -> None:
    async with A2APeer(STEPS, version, streams=False) as peer:
        events = await said(made(peer))
        assert heard(events) == (TEXT, COMPLETED)
        [sent] = peer.asked_for("SendMessage")
        assert sent.body["params"]["configuration"] == (
            {"blocking": False} if version == "0.3" else {"returnImmediately": True}
        )
        assert "text/event-stream" not in sent.headers["accept"]
        assert not peer.asked_for("SubscribeToTask")


@both
async def test_the_conversation_is_remembered(version: str, made: Made) -> None:
    async with A2APeer(STEPS, version) as peer:
        agent = made(peer)
        first = await said(agent)
        assert first[0] == {
            "type": "remote_task",
            "server": first[0]["server"],
            "contextId": "context-1",
            "taskId": "task-1",
        }
        assert peer.url not in str(first)
        peer.told, peer.task_id = 0, "task-2"
        elsewhere = {**first[0], "server": "other", "contextId": "elsewhere"}
        second = await said(made(peer), later(first, [elsewhere]))
        assert heard(second) == (TEXT, COMPLETED)
        assert [message.get("contextId") for message in peer.taken] == [None, "context-1"]
        assert "taskId" not in peer.taken[1]
        assert [each["taskId"] for each in second if each["type"] == "remote_task"] == ["task-2"]


@both
async def test_images_the_trace_and_the_session_header_are_passed_on(version: str, made: Made) -> None:
    async with A2APeer(STEPS, version) as peer:
        image: Any = {"mimeType": "image/png", "data": "aGk="}
        agent = made(peer, session_header="X-Session")
        scope: Scope = {"session": "sess_1", "trace": "ab" * 16}
        await said(agent, scope, {"text": "look", "images": [image]})
        await said(agent, {"session": "sess_2"}, {"text": "", "images": [image]})
        [first, second] = peer.asked_for("SendStreamingMessage")
        [with_text, without] = [message["parts"] for message in peer.taken]
        file = (
            {"kind": "file", "file": {"bytes": "aGk=", "mimeType": "image/png"}}
            if version == "0.3"
            else {"raw": "aGk=", "mediaType": "image/png"}
        )
        assert with_text[1:] == [file]
        assert with_text[0]["text"] == "look"
        assert without == [file]
        assert first.headers["traceparent"].startswith(f"00-{'ab' * 16}-")
        assert "traceparent" not in second.headers
        sessions = [request.headers["x-session"] for request in (first, second)]
        assert sessions[0] != sessions[1]
        assert all(len(session) >= 33 and "sess_" not in session for session in sessions)


@both
async def test_artifacts_that_come_again_are_told_once(version: str, made: Made) -> None:
    steps = [
        piece("a", "One"),
        piece("a", "One two"),
        piece("a", "Other"),
        piece("b", " B", {"data": 1}),
        piece("b", "", {"data": 2}, append=True),
        status("completed", "Done"),
    ]
    async with A2APeer(steps, version, ends_with_task=True) as peer:
        text, ending = heard(await said(made(peer)))
        assert (text, ending) == ("One two\nOther B", {"type": "completed", "data": [1, 2]})


@both
async def test_files_are_events_of_their_own(version: str, made: Made) -> None:
    parts: list[Json]
    if version == "0.3":
        parts = [
            {"file": {"uri": "https://files.example/a.pdf", "name": "a.pdf", "mimeType": "application/pdf"}},
            {"file": {"bytes": "aGk=", "mimeType": "image/png"}},
        ]
    else:
        parts = [
            {"url": "https://files.example/a.pdf", "filename": "a.pdf", "mediaType": "application/pdf"},
            {"raw": "aGk=", "mediaType": "image/png"},
        ]
    async with A2APeer(
        [piece("f", "See", *parts), status("completed")], version, ends_with_task=True
    ) as peer:
        events = [event for event in await said(made(peer)) if event["type"] == "artifact_file"]
        assert events == [
            {
                "type": "artifact_file",
                "artifactId": "f",
                "name": "a.pdf",
                "mediaType": "application/pdf",
                "url": "https://files.example/a.pdf",
            },
            {"type": "artifact_file", "artifactId": "f", "mediaType": "image/png", "bytes": "aGk="},
        ]


@both
async def test_what_only_the_stored_task_has_is_looked_for(version: str, made: Made) -> None:
    async with A2APeer(
        [
            piece(
                "a",
                "stored",
            ),
            status("completed"),
        ],
        version,
    ) as peer:
        # A stream that tells the ending alone.
        whole = peer._results
        peer._results = lambda after: [each for each in whole(after) if "artifact" not in str(each[1])]  # type: ignore[method-assign]
        assert heard(await said(made(peer))) == ("stored", {"type": "completed"})
        assert len(peer.asked_for("GetTask")) == 1


@both
async def test_a_bare_message_is_a_whole_answer(version: str, made: Made) -> None:
    part = {"text": "Just this"}
    message = {"messageId": "m", "role": "agent", "parts": [part], "kind": "message"}
    raw = message if version == "0.3" else {"message": message}

    def only(after: int) -> list[tuple[int | None, Json]]:
        return [(None, raw)]

    for streams in (True, False):
        async with A2APeer([Step(raw=raw)], version, streams=streams) as peer:
            peer._results = only  # type: ignore[method-assign]
            events = await said(made(peer))
            assert events == [{"type": "text", "delta": "Just this"}, {"type": "completed"}]


# ── agentfootprint's wire ────────────────────────────────────────────────────────────────────────────────────────────


class Footprint(A2APeer):
    """Answers `message/send` alone, with artifacts alone; the card is served only by some hosts, and without `url`."""

    async def answer(self, request: Any, writer: asyncio.StreamWriter) -> None:
        if request.method == "GET":
            await self._show_card(request, writer)
            return
        assert request.headers["content-type"] == "application/json"
        assert "text/event-stream" not in request.headers["accept"]
        body, params = request.body, request.body.get("params", {})
        if body["method"] != "message/send":
            await self._refuse(request, writer, 404, "unknown method")
            return
        parts = params["message"]["parts"]
        assert all(part["kind"] == "text" for part in parts)
        if not (text := "".join(part["text"] for part in parts)):
            await self._refuse(request, writer, 400, "empty")
            return
        artifact = {
            "artifactId": str(body["id"]),
            "name": "response",
            "parts": [{"kind": "text", "text": f"You said {text}"}],
        }
        await self.result(writer, request, {"artifacts": [artifact]})

    async def _refuse(self, request: Any, writer: asyncio.StreamWriter, http: int, message: str) -> None:
        from tests.agents.scripted_http import send

        error = {"code": -32603, "message": message}
        await send(writer, Reply(http, {"jsonrpc": "2.0", "id": request.body["id"], "error": error}))


@pytest.mark.parametrize("has_card", [False, True])
async def test_agentfootprints_minimal_result_is_a_whole_answer(has_card: bool, made: Made) -> None:
    card = {
        "name": "triage",
        "description": "…",
        "version": "1.0.0",
        "protocolVersion": "0.3.0",
        "preferredTransport": "JSONRPC",
        "capabilities": {"streaming": False},
        "defaultInputModes": ["text"],
        "skills": [],
    }
    async with Footprint([], "0.3", card=card if has_card else False) as peer:
        agent = made(peer, session_header="X-Session")
        assert await said(agent) == [{"type": "text", "delta": "You said hi"}, {"type": "completed"}]
        [empty] = await said(agent, prompt={"text": ""})
        assert (empty["code"], empty["retryable"]) == ("remote_refused", False)
        assert not [r for r in peer.requests if r.body and r.body["method"] != "message/send"]


@pytest.mark.parametrize(
    ("http", "number", "code", "retryable"),
    [
        (400, -32602, "remote_refused", False),
        (404, -32603, "not_a2a", False),
        (409, -32603, "remote_conflict", False),
        (413, -32603, "too_large", False),
        (415, -32603, "remote_refused", False),
        (421, -32603, "remote_refused", False),
        (429, -32603, "rate_limited", True),
        (500, -32603, "remote_unavailable", True),
        (503, -32053, "remote_unavailable", True),
    ],
)
async def test_agentfootprints_refusals(
    http: int, number: int, code: str, retryable: bool, made: Made
) -> None:
    async with Footprint([], "0.3", card=False) as peer:
        body = {"jsonrpc": "2.0", "id": 1, "error": {"code": number, "message": "it can't"}}
        peer.refusals["SendMessage"].extend([Reply(http, body, [("retry-after", "60")])] * 3)
        [ending] = await said(made(peer))
        assert (ending["code"], ending["retryable"]) == (code, retryable)
        assert ending["details"] == f"{peer.url}: it can't"
        assert len(peer.asked_for("SendMessage")) == 1


# ── connections that break ───────────────────────────────────────────────────────────────────────────────────────────


@both
@pytest.mark.parametrize("then", ["it ends alone", "whole streams", "streams from the middle"])
async def test_a_connection_that_breaks_anywhere_loses_and_doubles_nothing(
    version: str, then: str, made: Made
) -> None:
    async with A2APeer(STEPS, version, snapshot_first=then != "streams from the middle") as peer:
        agent = made(peer)
        await said(agent)
        was_named = False
        for count in range(0, 1800, 37):
            peer.requests.clear()
            peer.taken.clear()
            peer.told, peer.turns, peer.end = 0, 0, None
            # Nobody subscribes in 0.3, and a task must go on.
            peer.finishes = then == "it ends alone" or version == "0.3"
            peer.cuts.append(count)
            events = await said(agent, {"session": "s", "turn": f"turn_{count}"})
            if not was_named and events[-1].get("code") == "outcome_unknown":
                assert kinds(events) == ["failed"]
                continue
            was_named = True
            assert heard(events) == (TEXT, COMPLETED), f"broken after {count} bytes"
            assert peer.turns == 1
            assert not peer.asked_for("CancelTask")
            assert version == "1.0" or not peer.asked_for("SubscribeToTask")
        assert was_named


async def test_connections_that_break_again_and_again_lose_nothing(made: Made) -> None:
    async with A2APeer(STEPS, cuts=deque([600, 500, 0, 560, 20, 700, 0, 0])) as peer:
        assert heard(await said(made(peer))) == (TEXT, COMPLETED)
        assert peer.turns == 1
        assert len(peer.asked_for("SubscribeToTask")) >= 5


@pytest.mark.parametrize("how", ["a cut", "silence", "an empty stream", "half an answer"])
async def test_a_message_of_unknown_outcome_is_not_sent_again(how: str, made: Made) -> None:
    async with A2APeer(STEPS) as peer:
        if how == "a cut":
            peer.cuts.append(0)
        elif how == "silence":
            peer.refusals["SendStreamingMessage"].append(Reply(wait=asyncio.Event()))
        elif how == "an empty stream":
            peer._results = lambda after: [(None, b"id: 1\n\n")]  # type: ignore[method-assign, list-item]
        else:
            half = Reply(200, "{", [("content-length", "100")])
            peer.refusals["SendStreamingMessage"].append(half)
        [ending] = await said(made(peer, silence=0.2))
        assert (ending["code"], ending["retryable"]) == ("outcome_unknown", True)
        assert len(peer.asked_for("SendStreamingMessage")) == 1


async def test_an_idempotent_agent_is_sent_the_same_message_again(made: Made) -> None:
    async with A2APeer(STEPS, cuts=deque([0, 30])) as peer:
        assert heard(await said(made(peer, idempotent=True))) == (TEXT, COMPLETED)
        sent = [r.body["params"]["message"]["messageId"] for r in peer.asked_for("SendStreamingMessage")]
        assert sent == ["turn_1"] * 3
        assert peer.turns == 1


async def test_in_a_known_conversation_the_message_is_looked_for(made: Made) -> None:
    async with A2APeer(STEPS) as peer:
        agent = made(peer)
        scope = later(await said(agent))
        peer.told, peer.task_id = 0, "task-2"
        peer.taken.clear()
        peer.cuts.append(0)
        assert heard(await said(agent, scope)) == (TEXT, COMPLETED)
        assert len(peer.asked_for("SendStreamingMessage")) == 2, "it was listed: not sent again"

        peer.told = 0
        peer.taken.clear()
        peer.refusals["SendStreamingMessage"].append(Reply(drop=True))
        assert heard(await said(agent, scope)) == (TEXT, COMPLETED)
        assert len(peer.asked_for("SendStreamingMessage")) == 4, "it was absent: sent again"


@pytest.mark.parametrize(
    "listed",
    [
        {"tasks": [{"id": "t", "status": {"state": "TASK_STATE_COMPLETED"}}]},
        {"tasks": [], "nextPageToken": "more"},
    ],
)
async def test_a_list_that_does_not_tell_leaves_the_outcome_unknown(listed: Json, made: Made) -> None:
    async with A2APeer(STEPS) as peer:
        agent = made(peer)
        scope = later(await said(agent))
        peer.refusals["SendStreamingMessage"].append(Reply(drop=True))
        peer.refusals["ListTasks"].extend([Reply(body={"jsonrpc": "2.0", "result": listed})] * taken.PAGES)
        assert (await said(agent, scope))[-1]["code"] == "outcome_unknown"
        peer.refusals["SendStreamingMessage"].append(Reply(502))
        peer.refusals["ListTasks"].clear()
        peer.refusals["ListTasks"].append(busy())
        assert (await said(agent, scope))[-1]["code"] == "outcome_unknown"


@both
async def test_an_agent_that_comes_back_is_waited_for(version: str, made: Made) -> None:
    async with A2APeer(STEPS, version, cuts=deque([700]), finishes=True) as peer:
        away = Reply(503, "draining", [("retry-after", "0")])
        for name in ("/.well-known/agent-card.json", "SendStreamingMessage", "GetTask"):
            peer.refusals[name].extend([away, Reply(429, "slower")])
        peer.refusals["GetTask"].extend([Reply(502, "nobody there"), Reply(504, "too slow")])
        assert heard(await said(made(peer))) == (TEXT, COMPLETED)
        assert peer.turns == 1


async def test_the_agents_word_when_to_come_back_is_obeyed(made: Made) -> None:
    async with A2APeer(STEPS) as peer:
        peer.refusals["SendStreamingMessage"].append(Reply(503, "draining", [("retry-after", "60")]))
        ending = (await said(made(peer)))[-1]
        assert (ending["code"], ending["retryable"]) == ("remote_unavailable", True)
        assert len(peer.asked_for("SendStreamingMessage")) == 1


@both
async def test_an_agent_that_never_comes_back_fails_the_turn(version: str, made: Made) -> None:
    async with A2APeer(STEPS, version, hold=2) as peer:
        agent = made(peer, patience=SHORT)
        async with asyncio.timeout(60), aclosing(agent.invoke(SCOPE, PROMPT)) as events:  # type: ignore[type-var]
            await anext(events)
            await peer.held.wait()
            await peer.close()
            ending = [event async for event in events][-1]
        assert (ending["code"], ending["retryable"]) == ("remote_unavailable", True)


async def test_where_nobody_answers_the_turn_fails(made: Made) -> None:
    async with A2APeer(STEPS) as peer:
        agent = made(peer, patience=SHORT)
    [ending] = await said(agent)
    assert ending == {
        "type": "failed",
        "details": f"No server answers at {peer.url}.",
        "retryable": True,
        "code": "remote_unavailable",
    }


@both
async def test_silence_is_a_lost_connection(
    version: str, made: Made, pass_time: Callable[[float], None]
) -> None:
    async with A2APeer(STEPS, version, hold=3) as peer:
        events: list[AgentEvent] = []
        invoked = asyncio.create_task(listening(made(peer, silence=20), events))
        await until(lambda: len(events) > 1)
        peer.hold = None
        peer.finishes = True
        pass_time(21)
        assert heard(await invoked) == (TEXT, COMPLETED)


@both
async def test_an_ending_that_never_comes_fails_the_turn_and_cancels_the_task(
    version: str, made: Made, pass_time: Callable[[float], None]
) -> None:
    async with A2APeer(STEPS, version, hold=3) as peer:
        events: list[AgentEvent] = []
        invoked = asyncio.create_task(listening(made(peer, silence=20, deadline=0.15), events))
        await until(lambda: len(events) > 1)
        pass_time(21)
        ending = (await invoked)[-1]
        assert (ending["code"], ending["retryable"]) == ("remote_silent", True)
        assert peer.canceled.is_set()


async def test_a_stream_that_only_stays_alive_is_silent(
    made: Made, pass_time: Callable[[float], None]
) -> None:
    async with A2APeer([*STEPS[:3], Step(is_endless=True), *STEPS[3:]], finishes=True) as peer:
        events: list[AgentEvent] = []
        invoked = asyncio.create_task(listening(made(peer, silence=20), events))
        await until(lambda: len(events) > 1)
        pass_time(21)
        assert heard(await invoked) == (TEXT, COMPLETED)


async def test_an_agent_that_tells_nothing_of_its_tasks_leaves_the_outcome_unknown(made: Made) -> None:
    async with A2APeer(STEPS, cuts=deque([700])) as peer:
        peer.names -= {"GetTask"}
        ending = (await said(made(peer)))[-1]
        assert (ending["code"], ending["retryable"]) == ("outcome_unknown", True)
        assert peer.canceled.is_set()


async def test_a_task_without_a_name_can_not_be_followed(made: Made) -> None:
    async with A2APeer(STEPS, cuts=deque([1000])) as peer:
        peer.task_id = ""
        ending = (await said(made(peer)))[-1]
        assert ending["code"] == "outcome_unknown"
        assert not peer.asked_for("CancelTask")


async def test_a_task_that_is_gone_is_forgotten(made: Made) -> None:
    async with A2APeer(STEPS, cuts=deque([700])) as peer:
        agent = made(peer)
        peer.refusals["GetTask"].append(busy(-32001))
        first = await said(agent)
        assert (first[-1]["code"], first[-1]["retryable"]) == ("task_not_found", False)
        peer.told = 0
        await said(agent, later(first))
        assert "contextId" not in peer.taken[-1]


@pytest.mark.parametrize("reply", [busy(-32601), busy(-32004), Reply(401)])
async def test_an_agent_without_subscriptions_is_looked_at(reply: Reply, made: Made) -> None:
    async with A2APeer(STEPS, cuts=deque([700])) as peer:
        peer.refusals["SubscribeToTask"].append(reply)
        invoked = asyncio.create_task(said(made(peer)))
        await until(lambda: len(peer.asked_for("GetTask")) > 2)
        peer.told = len(STEPS)
        assert heard(await invoked) == (TEXT, COMPLETED)
        assert len(peer.asked_for("SubscribeToTask")) == 1


async def test_a_subscription_is_tried_again(made: Made) -> None:
    broken = Reply(body={"result": 3})
    async with A2APeer(STEPS, cuts=deque([700, 100])) as peer:
        peer.refusals["SubscribeToTask"].extend([Reply(503), Reply(drop=True), broken])
        assert heard(await said(made(peer))) == (TEXT, COMPLETED)
        assert len(peer.asked_for("SubscribeToTask")) >= 5


async def test_news_from_a_subscription_are_looked_at_at_once(
    made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "FIRST_LOOK", 3600.0)
    monkeypatch.setattr(watch, "LONGEST_LOOK", 3600.0)
    monkeypatch.setattr(turns, "RESUBSCRIBE", 3600.0)
    async with A2APeer(STEPS, cuts=deque([700]), hold=4) as peer:
        invoked = asyncio.create_task(said(made(peer)))
        await until(peer.held.is_set)
        peer.told = len(STEPS)
        peer.canceled.set()  # the stream ends
        assert heard(await invoked) == (TEXT, COMPLETED)


async def test_whatever_a_subscription_tells_is_a_sign_of_life_but_for_its_first_snapshot(made: Made) -> None:
    async with A2APeer([status("working"), status("working"), piece("a", "x")]) as peer:
        agent = made(peer)
        known = Known("context-1", "task-1", "a question")
        asked = turns.Asked("server", PROMPT, "m", known, {}, is_idempotent=False, silence=5, deadline=5)
        turn = turns.Turn(agent._remote, asked, PATIENT)
        news = asyncio.Event()
        peer.told = 1
        await turn._subscribe(await agent._remote.endpoint(), news)
        assert news.is_set()
        assert turn._fold.signs == 2


# ── refusals and failures ────────────────────────────────────────────────────────────────────────────────────────────


@both
@pytest.mark.parametrize(
    ("reply", "code", "retryable"),
    [
        (Reply(401, "who?"), "authentication_failed", False),
        (Reply(403, {"error": "no"}), "authentication_failed", False),
        (Reply(404, "nothing"), "not_a2a", False),
        (Reply(307, "elsewhere", [("location", "http://169.254.169.254/")]), "remote_refused", False),
        (Reply(408, "late"), "remote_unavailable", True),
        (Reply(500, ["x"]), "remote_unavailable", True),
        (Reply(body="<html>"), "not_a2a", False),
        (Reply(body=[1]), "bad_remote_event", False),
        (Reply(body={"jsonrpc": "2.0"}), "bad_remote_event", False),
        (Reply(body={"result": 3}), "bad_remote_event", False),
        (Reply(body={"error": "broken"}), "remote_refused", False),
        (Reply(body={"error": {}}), "remote_refused", False),
        (busy(-32009), "remote_version_unsupported", False),
        (busy(-31403), "authentication_failed", False),
        (busy(-32603), "remote_failed", False),
        (busy(-32005), "content_type_unsupported", False),
    ],
)
async def test_a_refusal_fails_the_turn(
    version: str, reply: Reply, code: str, retryable: bool, made: Made
) -> None:
    async with A2APeer(STEPS, version) as peer:
        peer.refusals["SendStreamingMessage"].append(reply)
        ending = (await said(made(peer, token=TOKEN)))[-1]
        assert (ending["type"], ending["code"], ending["retryable"]) == ("failed", code, retryable)
        assert TOKEN not in str(ending)
        assert not peer.asked_for("CancelTask")
        assert len(peer.asked_for("SendStreamingMessage")) == 1


@both
@pytest.mark.parametrize(
    ("state", "metadata", "code", "retryable"),
    [
        ("failed", {}, "agent_failed", False),
        ("failed", {"code": "context_limit"}, "context_limit", False),
        ("failed", {"kagent_error_code": "rate_limit", "retryable": True}, "rate_limit", True),
        ("rejected", {}, "rejected", False),
        ("canceled", {}, "canceled", False),
        ("auth-required", {"code": "x"}, "auth_required", False),
    ],
)
async def test_a_task_that_does_not_complete_fails_the_turn(
    version: str, state: str, metadata: Json, code: str, retryable: bool, made: Made
) -> None:
    for text in ("because", ""):
        async with A2APeer([piece("a", "partial"), status(state, text, metadata)], version) as peer:
            said_text, ending = heard(await said(made(peer)))
            assert said_text == "partial"
            assert (ending["code"], ending["retryable"]) == (code, retryable)
            assert text in ending["details"]
            assert ending["details"]
            assert peer.canceled.is_set() is (state == "auth-required")


@both
@pytest.mark.parametrize(
    "frame", [b"data: {nonsense}\n\n", b"data: 3\n\n", b'data: {"result": {"x": 1}}\n\n']
)
async def test_a_malformed_frame_fails_the_turn_and_cancels_the_task(
    version: str, frame: bytes, made: Made
) -> None:
    async with A2APeer([*STEPS[:3], Step(raw=frame), *STEPS[3:]], version) as peer:
        text, ending = heard(await said(made(peer)))
        assert text == "Hello é\u2028"
        assert (ending["code"], ending["retryable"]) == ("bad_remote_event", False)
        assert peer.canceled.is_set()


async def test_an_answer_without_end_fails_the_turn(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    """But frames may be as many as they like."""
    monkeypatch.setattr(remotes, "MAX_ANSWER", 200_000)
    pieces = [piece(f"a{n}", "x" * 30_000) for n in range(20)]
    async with A2APeer([*pieces, status("completed")]) as peer:
        text, ending = heard(await said(made(peer)))
        assert (len(text), ending["type"]) == (600_000, "completed")
        peer.streams = False
        assert (await said(made(peer)))[-1]["code"] == "bad_remote_event"
    async with A2APeer([*STEPS[:3], Step(raw=b":" * 300_000), *STEPS[3:]]) as peer:
        assert (await said(made(peer)))[-1]["code"] == "bad_remote_event"
        assert peer.canceled.is_set()


ERROR = {"error": {"code": -32603, "message": "the executor raised"}}


async def test_a_stream_that_ends_with_an_error_fails_the_turn(made: Made) -> None:
    steps = [*STEPS[:3], Step(raw=ERROR)]
    async with A2APeer(steps) as peer:
        ending = (await said(made(peer)))[-1]
        assert (ending["code"], ending["details"]) == ("remote_failed", f"{peer.url}: the executor raised")
        assert peer.canceled.is_set()
    async with A2APeer(steps) as peer:
        peer.refusals["GetTask"].append(Reply(drop=True))
        assert (await said(made(peer)))[-1]["code"] == "remote_failed"
    async with A2APeer([*STEPS[:3], Step(raw=ERROR), status("failed")]) as peer:
        # The error comes in the place of the status.
        ending = (await said(made(peer)))[-1]
        assert (ending["code"], ending["details"]) == ("agent_failed", f"{peer.url}: the executor raised")
        assert not peer.canceled.is_set()


async def test_a_stream_that_begins_with_an_error_is_a_refusal(made: Made) -> None:
    async with A2APeer(STEPS, "0.3") as peer:
        peer._results = lambda after: [(None, ERROR)]  # type: ignore[method-assign]
        [ending] = await said(made(peer))
        assert ending["code"] == "remote_failed"


# ── busy ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


@both
async def test_what_is_left_over_of_an_earlier_turn_is_canceled(version: str, made: Made) -> None:
    async with A2APeer(STEPS, version) as peer:
        agent = made(peer)
        scope = later(await said(agent))
        peer.told = 0
        peer.refusals["SendStreamingMessage"].append(busy())
        peer.refusals["CancelTask"].append(busy(-32002))
        assert heard(await said(agent, scope)) == (TEXT, COMPLETED)
        assert [r.body["params"] for r in peer.asked_for("CancelTask")] == [{"id": "task-1"}]
        peer.refusals["SendStreamingMessage"].extend([busy()] * 10)
        ending = (await said(agent, scope))[-1]
        assert (ending["code"], ending["retryable"]) == ("session_busy", True)
        assert len(peer.asked_for("SendStreamingMessage")) == 3 + turns.BUSY_TRIES


async def test_an_agent_that_refuses_streams_is_asked_without(made: Made) -> None:
    for number in (-32004, -32601):
        async with A2APeer(STEPS, streams=False) as peer:
            peer.refusals["SendStreamingMessage"].append(busy(number))
            assert heard(await said(made(peer, streaming=True))) == (TEXT, COMPLETED)


async def test_without_streams_unsupported_means_unsupported(made: Made) -> None:
    async with A2APeer(STEPS, streams=False) as peer:
        peer.refusals["SendMessage"].append(busy())
        [ending] = await said(made(peer))
        assert (ending["code"], ending["retryable"]) == ("remote_unsupported", False)


# ── questions ────────────────────────────────────────────────────────────────────────────────────────────────────────

ASKING = [piece("answer", "Let me see."), status("input-required", "Which city?")]


@both
@pytest.mark.parametrize("streams", [True, False])
async def test_a_question_ends_the_turn_and_the_next_prompt_answers_it(
    version: str, streams: bool, made: Made
) -> None:
    async with A2APeer(ASKING, version, streams=streams) as peer:
        agent = made(peer)
        first = await said(agent)
        assert heard(first) == ("Let me see.\n\nWhich city?", {"type": "completed"})
        assert first[-2] == {"type": "input_required", "text": "Which city?"}
        assert not peer.asked_for("CancelTask")
        peer.steps = [
            *ASKING,
            status("working"),
            piece("answer", " Paris it is.", append=True),
            piece("second", "Done"),
            status("completed"),
        ]
        second = await said(agent, later(first), {"text": "Paris"})
        assert (peer.taken[-1]["taskId"], peer.taken[-1]["contextId"]) == ("task-1", "context-1")
        # What the task had told before is not told again; a stream of the peer tells all of it, though.
        assert heard(second)[1] == {"type": "completed"}
        if not streams:
            assert heard(second)[0] == " Paris it is.Done"
        [marker] = [event for event in second if event["type"] == "remote_task"]
        assert "question" not in marker
        peer.told = 0
        await said(agent, later(first, second, turn="turn_3"))
        assert "taskId" not in peer.taken[-1]


async def test_a_question_that_the_answer_said_already_is_not_said_twice(made: Made) -> None:
    async with A2APeer([piece("a", "Well. Which city?"), ASKING[1]]) as peer:
        assert heard(await said(made(peer)))[0] == "Well. Which city?"


async def test_a_question_without_words_is_one_all_the_same(made: Made) -> None:
    async with A2APeer([status("input-required")]) as peer:
        events = await said(made(peer))
        assert events[-2:] == [
            {"type": "input_required", "text": "The agent asks for input."},
            {"type": "completed"},
        ]


@both
@pytest.mark.parametrize("number", [-32001, -32004, -32602])
async def test_an_answer_to_a_task_that_has_ended_begins_a_new_one(
    version: str, number: int, made: Made
) -> None:
    async with A2APeer(ASKING, version) as peer:
        agent = made(peer)
        first = await said(agent)
        peer.steps, peer.told, peer.end = STEPS, 0, status("canceled")
        peer.refusals["SendStreamingMessage"].append(busy(number))
        if number == -32001:
            peer.refusals["GetTask"].append(busy(-32001))
        take = peer._take

        def take_anew(request: Any) -> None:
            take(request)
            peer.end = None

        peer._take = take_anew  # type: ignore[method-assign]
        assert heard(await said(agent, later(first))) == (TEXT, COMPLETED)
        assert (peer.taken[-1].get("taskId"), peer.taken[-1]["contextId"]) == (None, "context-1")


async def test_an_answer_that_is_refused_fails_the_turn(made: Made) -> None:
    async with A2APeer(ASKING) as peer:
        agent = made(peer)
        first = await said(agent)
        for number, code in (
            (-32602, "remote_refused"),
            (-32603, "remote_failed"),
            (-32004, "session_busy"),
        ):
            peer.refusals["SendStreamingMessage"].clear()
            peer.refusals["SendStreamingMessage"].extend([busy(number)] * turns.BUSY_TRIES)
            assert (await said(agent, later(first)))[-1]["code"] == code
        assert not peer.asked_for("CancelTask")


async def test_an_answer_of_unknown_outcome_is_looked_for(made: Made) -> None:
    async with A2APeer(ASKING, streams=False) as peer:
        agent = made(peer)
        first = await said(agent)
        peer.steps = [*ASKING, piece("answer", " Paris.", append=True), status("completed")]
        peer.refusals["SendMessage"].append(Reply(drop=True))
        assert heard(await said(agent, later(first)))[0] == " Paris."
        assert len(peer.asked_for("SendMessage")) == 3, "it was not taken: sent again"

    async with A2APeer(ASKING, streams=False) as peer:
        agent = made(peer)
        first = await said(agent)
        peer.steps = [*ASKING, piece("answer", " Paris.", append=True), status("completed")]
        send = peer.result
        dropped: list[Any] = []

        async def lose_the_first(writer: Any, request: Any, result: Any) -> None:
            if request.body["method"] == "SendMessage" and not dropped:
                dropped.append(request)
                return
            await send(writer, request, result)

        peer.result = lose_the_first  # type: ignore[method-assign]
        assert heard(await said(agent, later(first)))[0] == " Paris."
        assert len(peer.asked_for("SendMessage")) == 2, "it was taken: not sent again"

    async with A2APeer(ASKING, streams=False) as peer:
        agent = made(peer)
        first = await said(agent)
        peer.refusals["SendMessage"].append(Reply(drop=True))
        peer.refusals["GetTask"].append(
            Reply(body={"result": {"messageId": "m", "role": "agent", "parts": []}})
        )
        assert (await said(agent, later(first)))[-1]["code"] == "outcome_unknown"


# ── cards and addresses ──────────────────────────────────────────────────────────────────────────────────────────────


async def test_the_address_may_be_the_cards_or_the_endpoints(made: Made) -> None:
    async with A2APeer(STEPS) as peer:
        for address in (f"{peer.url}/.well-known/agent-card.json", f"{peer.url}/"):
            peer.told = 0
            assert heard(await said(made(address))) == (TEXT, COMPLETED)
        assert {r.path for r in peer.asked_for("SendStreamingMessage")} == {"/"}


@both
async def test_a_card_is_not_needed(version: str, made: Made) -> None:
    async with A2APeer(STEPS, version, streams=False, card=False) as peer:
        agent = made(peer)
        assert heard(await said(agent)) == (TEXT, COMPLETED)
        cards = len([r for r in peer.requests if r.method == "GET"])
        peer.told = 0
        await said(agent)
        assert len([r for r in peer.requests if r.method == "GET"]) == cards, "what was found out is kept"
    async with A2APeer(STEPS, version, card=False) as peer:
        agent = made(peer, card=False, version=version, streaming=True)
        assert heard(await said(agent)) == (TEXT, COMPLETED)
        assert not [r for r in peer.requests if r.method == "GET"]


async def test_no_message_tells_the_addresss_query(made: Made) -> None:
    async with A2APeer(STEPS, card=False) as peer:
        peer.refusals["SendMessage"].append(Reply(500))
        ending = (await said(made(f"{peer.url}/?key={TOKEN}")))[-1]
        assert TOKEN not in str(ending)
        assert peer.asked_for("SendMessage")[0].query == {"key": TOKEN}


async def test_a_look_that_is_not_answered_is_a_lost_connection(
    made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turns, "QUICK", 0.05)
    async with A2APeer(STEPS, cuts=deque([700]), finishes=True) as peer:
        peer.refusals["GetTask"].append(Reply(wait=asyncio.Event()))
        assert heard(await said(made(peer))) == (TEXT, COMPLETED)


async def test_a_card_of_another_version_fails_the_turn(made: Made) -> None:
    async with A2APeer(STEPS) as peer:
        ending = (await said(made(peer, version="0.3")))[-1]
        assert (ending["code"], ending["retryable"]) == ("remote_version_unsupported", False)


@pytest.mark.parametrize(("http", "code"), [(401, "authentication_failed"), (500, "remote_unavailable")])
async def test_a_card_that_is_refused_fails_the_turn(http: int, code: str, made: Made) -> None:
    async with A2APeer(STEPS) as peer:
        peer.refusals["/.well-known/agent-card.json"].extend([Reply(http, "no")] * 10)
        peer.card = False
        assert (await said(made(peer)))[-1]["code"] == code


async def test_a_card_that_is_outdated_is_read_again(made: Made) -> None:
    async with A2APeer(STEPS) as peer:
        agent = made(peer)
        await said(agent)
        peer.version = "0.3"
        peer.refusals["SendStreamingMessage"].append(busy(-32009))
        assert (await said(agent))[-1]["code"] == "remote_version_unsupported"
        peer.told = 0
        assert heard(await said(agent)) == (TEXT, COMPLETED)


async def test_a_card_without_a_url_at_a_cards_address_is_not_enough(made: Made) -> None:
    async with A2APeer(STEPS, "0.3") as peer:
        peer.card = {"name": "nowhere"}
        assert (await said(made(f"{peer.url}/.well-known/agent-card.json")))[-1]["code"] == "not_a2a"
        peer.card = False
        assert (await said(made(f"{peer.url}/.well-known/agent-card.json")))[-1]["code"] == "not_a2a"


async def test_what_a_card_names_elsewhere_gets_no_credentials_and_no_way_inside(made: Made) -> None:
    async with A2APeer(STEPS) as elsewhere, A2APeer(STEPS) as peer:
        named = elsewhere.own_card()["supportedInterfaces"][0]
        port = elsewhere.url.rpartition(":")[2]
        for host in ("inside.example", "127.0.0.1", "[::ffff:127.0.0.1]", "localhost"):
            peer.card = peer.own_card(supportedInterfaces=[{**named, "url": f"http://{host}:{port}/"}])
            ending = (await said(made(peer, token=TOKEN, strangers=_pretending())))[-1]
            assert (ending["code"], ending["retryable"]) == ("remote_address_refused", False)
            assert not elsewhere.requests
        peer.card = peer.own_card(supportedInterfaces=[{**named, "url": f"http://outside.example:{port}/"}])
        agent = made(peer, token=TOKEN, strangers=_pretending(allows=True))
        assert heard(await said(agent)) == (TEXT, COMPLETED)
        [sent] = elsewhere.requests
        assert sent.headers["host"] == f"outside.example:{port}"
        assert "authorization" not in sent.headers


async def test_nothing_but_what_is_public_is_asked_where_nobody_says_otherwise(made: Made) -> None:
    async with A2APeer(STEPS) as elsewhere, A2APeer(STEPS) as peer:
        [named] = elsewhere.own_card()["supportedInterfaces"]
        peer.card = peer.own_card(supportedInterfaces=[named])
        assert (await said(made(peer)))[-1]["code"] == "remote_address_refused"
        assert not elsewhere.requests


async def test_no_redirect_is_followed(made: Made) -> None:
    async with A2APeer(STEPS) as inside, A2APeer(STEPS) as outside, A2APeer(STEPS) as peer:
        away = Reply(307, "elsewhere", [("location", f"{inside.url}/")])
        for strangers in (None, _pretending(allows=True)):
            peer.refusals["SendStreamingMessage"].append(away)
            outside.refusals["SendStreamingMessage"].append(away)
            [named] = (peer if strangers is None else outside).own_card()["supportedInterfaces"]
            peer.card = peer.own_card(supportedInterfaces=[named])
            assert (await said(made(peer, strangers=strangers)))[-1]["type"] == "failed"
        assert not inside.requests


async def test_an_agent_on_this_machine_is_asked_without_the_proxy(
    made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with A2APeer(STEPS) as peer, A2APeer(STEPS) as proxy:
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, proxy.url)
        monkeypatch.delenv("no_proxy", raising=False)
        monkeypatch.delenv("NO_PROXY", raising=False)
        assert heard(await said(made(peer))) == (TEXT, COMPLETED)
        assert not proxy.requests


def _pretending(*, allows: bool = False) -> PublicOnly:
    import httpx

    async def resolve(host: str, port: int) -> list[str]:
        return ["127.0.0.1"]

    if allows:
        return PublicOnly(httpx.AsyncHTTPTransport(), resolve, lambda _: True)
    return PublicOnly(httpx.AsyncHTTPTransport(), resolve)


@pytest.mark.parametrize(
    ("url", "options"),
    [
        ("ftp://host", {}),
        ("http://", {}),
        ("http://user:secret@host", {}),
        ("http://host:port", {}),
        ("http://host", {"token": "two words"}),
        ("http://host", {"headers": {"x y": "secret"}}),
        ("http://host", {"headers": {"x": "secret\r\nhost: evil"}}),
        ("http://host", {"session_header": "a:b"}),
    ],
)
def test_what_can_not_be_sent_is_refused(url: str, options: Json) -> None:
    with pytest.raises(AgentLoadError) as refused:
        A2AAgent(url, options=A2ARemote(**options))
    assert "secret" not in str(refused.value)


async def test_a_transcript_that_can_not_be_read_fails_the_turn(made: Made) -> None:
    class Broken(Remembering):
        async def own_events(self, event_type: str) -> AsyncGenerator[Any, None]:
            raise StorageUnavailable("no database")
            yield event_type

    [ending] = await said(made("http://127.0.0.1:1"), {"session": "s", "transcript": Broken()})
    assert (ending["code"], ending["retryable"]) == ("storage_unavailable", True)


# ── aborts ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@both
async def test_an_abort_cancels_the_remote_task_and_waits_for_it(version: str, made: Made) -> None:
    async with A2APeer(STEPS, version, hold=3) as peer:
        agent = made(peer)
        drive = Recorded(lambda: agent.invoke(SCOPE, PROMPT), bounds=Bounds())
        drive.drive.start()
        await until(peer.held.is_set)
        gate = asyncio.Event()
        peer.refusals["CancelTask"].append(Reply(wait=gate))
        cancelling = asyncio.create_task(drive.cancelled())
        await until(lambda: bool(peer.asked_for("CancelTask")))
        assert not cancelling.done()
        gate.set()
        await cancelling
        assert drive.outcome == Cancelled()
        assert [r.body["params"] for r in peer.asked_for("CancelTask")] == [{"id": "task-1"}]


@pytest.mark.parametrize("streams", [True, False])
async def test_an_abort_never_overtakes_the_message(streams: bool, made: Made) -> None:
    async with A2APeer(STEPS, streams=streams, hold=0) as peer:
        name = "SendStreamingMessage" if streams else "SendMessage"
        gate = asyncio.Event()
        peer.refusals[name].append(Reply(wait=gate))
        agent = made(peer)
        drive = Recorded(lambda: agent.invoke(SCOPE, PROMPT), bounds=Bounds())
        drive.drive.start()
        await until(lambda: bool(peer.asked_for(name)))
        cancelling = asyncio.create_task(drive.cancelled())
        await asyncio.sleep(0)
        assert not peer.asked_for("CancelTask")
        gate.set()
        await cancelling
        assert peer.asked_for("CancelTask")


@pytest.mark.parametrize("name", ["CancelTask", "SendStreamingMessage"])
async def test_an_abort_that_is_not_answered_is_waited_for_within_patience(name: str, made: Made) -> None:
    async with A2APeer(STEPS, hold=3) as peer:
        agent = made(peer, patience=Patience(losses=0.2, abort=0.05))
        peer.refusals[name].append(Reply(wait=asyncio.Event()))
        drive = Recorded(lambda: agent.invoke(SCOPE, PROMPT), bounds=Bounds())
        drive.drive.start()
        await until(lambda: peer.held.is_set() or bool(peer.asked_for("SendStreamingMessage")))
        await drive.cancelled()
        assert drive.outcome == Cancelled()


async def test_an_abort_leaves_a_question_open(made: Made) -> None:
    async with A2APeer(ASKING) as peer:
        agent = made(peer)
        first = await said(agent)
        peer.refusals["SendStreamingMessage"].append(Reply(503, "away", [("retry-after", "0")]))
        drive = Recorded(lambda: agent.invoke(later(first), PROMPT), bounds=Bounds())
        peer.refusals["SendStreamingMessage"].extend([Reply(503)] * 1000)
        drive.drive.start()
        await until(lambda: len(peer.asked_for("SendStreamingMessage")) > 2)
        await drive.cancelled()
        assert not peer.asked_for("CancelTask")
