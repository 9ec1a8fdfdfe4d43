"""`POST /invoke`: the agent's own events come out again, and hanging up cancels the turn."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.agents.contract import AgentEvent, Prompt, Scope
from app.agents.translate import Translation
from app.dialects.invoke.wire import spell
from app.errors import StorageUnavailable
from app.events.ending import Ending
from app.events.envelope import Placed, place
from app.events.vocabulary import RESERVED
from tests.conftest import Server, own_database
from tests.server import (
    HEADERS,
    Client,
    Json,
    Script,
    Step,
    Stream,
    said,
    saying,
    serving,
    soon,
    types,
    until,
)

EVENTS: list[AgentEvent] = [
    {"type": "thinking", "delta": "Hm. "},
    {"type": "retrying", "attempt": 1, "maxAttempts": 2, "delayMs": 5, "reason": "overloaded"},
    {"type": "text", "delta": "One "},
    {"type": "tool_started", "id": "t1", "name": "look", "args": {"at": [1, None]}},
    {"type": "tool_started", "id": "t2", "name": "listen", "args": {}},
    {"type": "tool_ended", "id": "t2", "isError": True, "content": "deaf"},
    {"type": "tool_ended", "id": "t1", "isError": False, "content": {"seen": [True, None, 1.5]}},
    {"type": "tool_progress", "id": "t1", "text": "unheard of"},
    {"type": "user_message", "content": "a reserved name"},
    {"type": "text", "delta": "zwei \u2028 \U0001f600"},
]


def agreed(client: Client, script: Script) -> str:
    """A prompt at which the agent follows the script."""
    prompt = f"prompt {len(client.server.agent.for_prompt)}"
    client.server.agent.for_prompt[prompt] = script
    return prompt


@asynccontextmanager
async def invoking(client: Client, text: str, session: str = "s", **fields: Any) -> AsyncIterator[Stream]:
    body = {"session": session, "text": text, **fields}
    async with client.http.stream("POST", "/invoke", content=json.dumps(body), headers=HEADERS) as response:
        assert response.status_code == 200, await response.aread()
        assert response.headers["content-type"].startswith("text/event-stream")
        yield Stream(response)


async def invoked(client: Client, text: str, session: str = "s", **fields: Any) -> list[Json]:
    """All events of one turn; its frames have nothing but data."""
    async with invoking(client, text, session, **fields) as stream:
        frames = await stream.rest()
    assert all(frame.id is None and frame.event is None and frame.retry is None for frame in frames)
    return [frame.json for frame in frames if frame.data is not None]


async def session_named(client: Client, name: str) -> Json:
    sessions = (await client.get("/api/v1/sessions")).json()["sessions"]
    (found,) = [session for session in sessions if session["name"] == name]
    return dict(found)


@pytest.mark.parametrize(
    "ending",
    [
        {"type": "completed"},
        {"type": "completed", "data": None},
        {"type": "completed", "data": {"answer": [42]}},
        {"type": "failed", "details": "no luck", "retryable": True},
        {"type": "failed", "details": "", "retryable": False, "code": "out_of_luck"},
    ],
)
async def test_what_the_agent_says_comes_out_unchanged(client: Client, ending: AgentEvent) -> None:
    prompt = agreed(client, saying(*EVENTS, ending, ends=False))
    for _ in range(2):  # the second time the log gives the tools other ids than the agent
        assert await invoked(client, prompt, "unchanged") == [*EVENTS, ending]


@pytest.mark.parametrize("script", [saying(said("a"), ends=False), saying({"type": "text"})])
async def test_an_agent_that_breaks_the_contract_is_a_failed_turn(client: Client, script: Script) -> None:
    (*_, last) = await invoked(client, agreed(client, script))
    assert (last["type"], last["retryable"]) == ("failed", False)


async def test_one_name_is_one_conversation_which_is_in_the_log(client: Client) -> None:
    heard: list[Any] = []

    async def agent(scope: Scope, prompt: Prompt) -> AsyncIterator[AgentEvent]:
        heard.append((scope["session"], len(await scope["transcript"].messages())))
        yield said("x")
        yield {"type": "completed"}

    prompt = agreed(client, agent)
    for name in ("a/b:c", "-1001234567890", "a/b:c"):
        await invoked(client, prompt, name, parentSession="mother", branchHints=["x"], images=[], more=1)

    (first, none), (other, also_none), (again, two) = heard
    assert first == again != other
    assert (none, also_none, two) == (0, 0, 2)
    session = await session_named(client, "a/b:c")
    assert session["id"] == first
    assert session["metadata"]["invoke"] == {"session": "a/b:c", "parentSession": "mother"}
    assert types(await client.events(first)).count("agent_run_end") == 2


async def test_a_trace_goes_with_the_turn_and_its_log_is_let_go(client: Client) -> None:
    trace = "ab" * 16
    headers = {**HEADERS, "traceparent": f"00-{trace}-{'cd' * 8}-01"}
    body = json.dumps({"session": "traced", "text": "Hello"})
    assert (await client.http.post("/invoke", content=body, headers=headers)).status_code == 200
    session_id = (await session_named(client, "traced"))["id"]
    page = (await client.get("/api/v1/sessions/events", sessionId=session_id)).json()
    turn = [event for event in page["events"] if event["type"] != "session_start"]
    assert {event["metadata"]["traceId"] for event in turn} == {trace}
    await until(lambda: list(client.server.parts.parts.logs) == [])


async def test_another_principals_conversation_of_that_name_is_another(embedded_server: Server) -> None:
    tokens = {"alice": "alice-token-alice-token", "bob": "bob-token-bob-token-bob"}
    heard: list[tuple[Any, str, int]] = []

    async def agent(scope: Scope, prompt: Prompt) -> AsyncIterator[AgentEvent]:
        heard.append((scope.get("principal"), scope["session"], len(await scope["transcript"].messages())))
        yield {"type": "completed"}

    async with (
        own_database(embedded_server) as url,
        serving(url, tokens=",".join(f"{name}={token}" for name, token in tokens.items())) as server,
    ):
        server.agent.for_prompt["x"] = agent
        for token in (*tokens.values(), tokens["alice"]):
            await invoked(await server.client(token), "x", "the same")
    (alice, her_session, _), (bob, his_session, his_messages), (_, again, her_messages) = heard
    assert (alice, bob) == ("alice", "bob")
    assert her_session == again != his_session
    assert (his_messages, her_messages) == (0, 1)


async def test_a_busy_session_is_the_first_and_only_event(client: Client) -> None:
    step = Step()

    async def agent(_: Scope, __: Prompt) -> AsyncIterator[AgentEvent]:
        yield said("x")
        await step.wait()
        yield {"type": "completed"}

    async with invoking(client, agreed(client, agent), "busy") as stream:
        await soon(step.reached.wait())
        (event,) = await invoked(client, "Hello", "busy")
        assert (event["type"], event["retryable"], event["code"]) == ("failed", True, "session_busy")
        step.passed.set()
        assert (await stream.rest())[-1].json == {"type": "completed"}


async def test_what_others_add_to_the_session_is_not_the_agents(client: Client) -> None:
    step = Step()

    async def agent(_: Scope, __: Prompt) -> AsyncIterator[AgentEvent]:
        await step.wait()
        yield {"type": "completed"}

    async with invoking(client, agreed(client, agent), "shared") as stream:
        await soon(step.reached.wait())
        await client.append((await session_named(client, "shared"))["id"], "user_feedback", {"good": True})
        step.passed.set()
        assert [frame.json for frame in await stream.rest() if frame.data] == [{"type": "completed"}]


@pytest.mark.parametrize("is_quiet", [True, False])
async def test_hanging_up_cancels_the_turn(client: Client, is_quiet: bool) -> None:
    step = Step()

    async def agent(_: Scope, __: Prompt) -> AsyncIterator[AgentEvent]:
        if not is_quiet:
            yield said("partial")
        await step.wait()

    name = f"hung up {is_quiet}"
    async with invoking(client, agreed(client, agent), name) as stream:
        await soon(step.reached.wait())
        if not is_quiet:
            assert (await stream.event()).json == said("partial")

    await soon(step.left.wait())
    session_id = (await session_named(client, name))["id"]
    async with client.stream(session_id) as stream:
        events = await stream.upto("agent_run_end")
    assert events[-1]["data"]["status"] == "aborted"
    assert [event["data"]["content"] for event in events if event["type"] == "assistant_message"] == [
        "" if is_quiet else "partial"
    ]


async def test_a_turn_that_others_abort_is_failed_and_not_retryable(client: Client) -> None:
    step = Step()

    async def agent(_: Scope, __: Prompt) -> AsyncIterator[AgentEvent]:
        yield {"type": "tool_started", "id": "t", "name": "wait", "args": {}}
        await step.wait()

    async with invoking(client, agreed(client, agent), "aborted") as stream:
        await soon(step.reached.wait())
        await client.abort((await session_named(client, "aborted"))["id"])
        events = [frame.json for frame in await stream.rest() if frame.data is not None]
    assert events[1] == {"type": "tool_ended", "id": "t", "isError": True, "content": "aborted"}
    assert (events[2]["type"], events[2]["code"], events[2]["retryable"]) == ("failed", "aborted", False)


async def test_a_quiet_stream_gets_comments_and_a_drain_ends_it_with_a_terminal(
    embedded_server: Server,
) -> None:
    step = Step()

    async def agent(_: Scope, __: Prompt) -> AsyncIterator[AgentEvent]:
        await step.wait()
        yield {"type": "completed"}

    async with (
        own_database(embedded_server) as url,
        serving(url, ping_interval=0.05, drain_grace=0.5) as server,
    ):
        client = await server.client()
        async with invoking(client, agreed(client, agent)) as stream:
            for _ in range(3):
                frame = await stream.next()
                assert frame is not None
                assert frame.comment == "ping"
            await server.parts.drain()
            frames = [frame for frame in await stream.rest() if frame.comment is None]
        (failed,) = [frame.json for frame in frames]
        assert (failed["code"], failed["retryable"]) == ("server_shutdown", True)


async def test_silence_is_never_longer_than_clients_bear() -> None:
    from pydantic import ValidationError

    from app.settings import Settings
    from app.transport.readers import TICK

    assert Settings(ping_interval=29).ping_interval + TICK <= 30
    with pytest.raises(ValidationError):
        Settings(ping_interval=30)


@pytest.mark.parametrize(
    ("body", "headers", "status", "code"),
    [
        ("{}", {}, 400, "bad_request"),
        ('{"session": "", "text": "x"}', {}, 400, "bad_request"),
        (json.dumps({"session": "s" * 201, "text": "x"}), {}, 400, "bad_request"),
        (json.dumps({"session": "s", "text": "x", "branchHints": ["b"] * 101}), {}, 400, "bad_request"),
        ('{"session": "a\\u0000", "text": "x"}', {}, 400, "bad_request"),
        ('{"session": "a\\ud800", "text": "x"}', {}, 400, "bad_request"),
        ('{"session": "s", "text": 7}', {}, 400, "bad_request"),
        ('{"session": "s", "text": NaN}', {}, 400, "bad_json"),
        ("nonsense", {}, 400, "bad_json"),
        ('{"session": "s", "text": "x"}', {"content_type": "text/plain"}, 400, "bad_request"),
    ],
)
async def test_what_is_no_invocation_is_refused(
    client: Client, body: str, headers: dict[str, str], status: int, code: str
) -> None:
    response = await client.post("/invoke", body, **headers)
    assert (response.status_code, response.json()["code"]) == (status, code)


async def test_only_post_is_answered_and_a_deleted_conversation_is_gone(client: Client) -> None:
    assert (await client.get("/invoke")).status_code == 405
    await invoked(client, "Hello", "gone")
    await client.delete((await session_named(client, "gone"))["id"])
    response = await client.post("/invoke", {"session": "gone", "text": "x"})
    assert (response.status_code, response.json()["code"]) == (404, "session_deleted")


async def test_a_turn_that_nobody_will_see_is_cancelled(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    step = Step()

    async def agent(_: Scope, __: Prompt) -> AsyncIterator[AgentEvent]:
        await step.wait()
        yield {"type": "completed"}

    async def unavailable(_: str) -> Any:
        await soon(step.reached.wait())
        raise StorageUnavailable("away")

    prompt = agreed(client, agent)
    monkeypatch.setattr(client.server.parts.parts.logs, "take", unavailable)
    response = await client.post("/invoke", {"session": "unseen", "text": prompt})
    assert response.status_code == 503
    await soon(step.left.wait())


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
UNKNOWN = st.builds(
    lambda kind, fields: {**fields, "type": kind},
    st.text(st.characters(codec="ascii", min_codepoint=33, max_codepoint=126), min_size=1, max_size=20)
    | st.sampled_from(sorted(RESERVED)),
    st.dictionaries(st.text(), JSON, max_size=4),
).filter(lambda event: event["type"] not in (*(event["type"] for event in EVENTS[:7]), "completed", "failed"))


@given(st.lists(UNKNOWN, max_size=4))
def test_any_unknown_event_survives_the_log(events: list[Json]) -> None:
    translation = Translation("turn_" + "a" * 26, "agent")
    drafts = [draft for event in events for draft in translation.take(event)]
    drafts += translation.end(Ending.completed())
    session_id = "sess_" + "a" * 26
    envelopes = place(session_id, translation.turn_id, drafts, Placed(0, 0, 0, len(drafts)))
    spoken = [event for envelope in envelopes if (event := spell(envelope)) is not None]
    assert spoken == [*events, {"type": "completed"}]
    assert [list(event) for event in spoken[:-1]] == [
        ["type", *(key for key in event if key != "type")] for event in events
    ]
