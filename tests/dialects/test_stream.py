"""`GET /api/v1/sessions/events/stream`: where it begins, what it sends, how it ends."""

import asyncio
import json
import math
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from decimal import Decimal
from typing import Any

import pytest

from app.agents.contract import AgentEvent, Prompt, Scope
from app.log import session_log
from tests.conftest import Server, own_database
from tests.server import (
    COMPLETED,
    Client,
    Json,
    Script,
    Step,
    Stream,
    places,
    said,
    saying,
    serving,
    soon,
    types,
    until,
)


def in_two_halves(step: Step) -> Script:
    """Says `one`, waits, says `two`."""

    async def agent(_: Scope, __: Prompt) -> AsyncIterator[AgentEvent]:
        yield said("one")
        await step.wait()
        yield said("two")
        yield COMPLETED

    return agent


async def start(client: Client, session_id: str) -> "asyncio.Task[Any]":
    """A query under way."""
    return asyncio.create_task(client.query(session_id))


# ── how it opens ─────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_headers_and_a_bare_id_come_at_once(client: Client) -> None:
    session_id = await client.session()

    async with client.stream(session_id, from_="now") as stream:
        headers = stream.response.headers
        opening = await stream.next()

    assert headers["content-type"] == "text/event-stream; charset=utf-8"
    assert headers["cache-control"] == "no-cache, no-transform"
    assert headers["x-accel-buffering"] == "no"
    assert "content-length" not in headers
    assert opening is not None
    assert opening.id == f"evt_{session_id.removeprefix('sess_')}_1"
    assert opening.data is None
    assert opening.retry is not None
    assert 1000 <= int(opening.retry) <= 3000


async def test_a_stream_without_a_cursor_opens_at_the_start_and_replays_then_stays_live(
    client: Client,
) -> None:
    session_id = await client.session()
    await client.query(session_id)

    async with client.stream(session_id) as stream:
        opening = await stream.next()
        replayed = await stream.upto("agent_run_end")
        await client.query(session_id)
        live = await stream.upto("agent_run_end")

    assert opening is not None
    assert opening.id is not None
    assert opening.id.endswith("_0")
    assert types(replayed) == [
        "session_start",
        "user_message",
        "agent_run_start",
        "assistant_message_start",
        "assistant_message",
        "agent_run_end",
    ]
    assert types(live).count("assistant_message_delta") == 2


async def test_a_replay_has_the_running_turns_deltas_and_not_those_of_settled_turns(client: Client) -> None:
    step = Step()
    session_id = await client.session(saying(said("settled")))
    await client.query(session_id)
    client.server.agent.in_session[session_id] = in_two_halves(step)
    turn = await start(client, session_id)
    await soon(step.reached.wait())
    async with client.stream(session_id) as first:
        await first.upto("assistant_message_delta")

        async with client.stream(session_id) as stream:
            begun = await stream.upto("assistant_message_delta")
            step.passed.set()
            ended = await stream.upto("agent_run_end")
    await soon(turn)

    deltas = [e["data"]["delta"] for e in begun + ended if e["type"] == "assistant_message_delta"]
    assert deltas == ["one", "two"]
    assert types(begun).count("agent_run_end") == 1


async def test_from_now_skips_the_replay(client: Client) -> None:
    session_id = await client.session()
    await client.query(session_id)

    async with client.stream(session_id, from_="now") as stream:
        await stream.next()
        await client.append(session_id, "user_feedback", {"rating": 5})
        event = (await stream.event()).json

    assert event["type"] == "user_feedback"


async def test_from_start_is_the_default_said_aloud(client: Client) -> None:
    session_id = await client.session()

    async with client.stream(session_id, from_="start") as stream:
        assert (await stream.event()).type == "session_start"


@pytest.mark.parametrize("way", ["header", "after"])
async def test_a_resume_gives_every_event_after_the_cursor_deltas_included(client: Client, way: str) -> None:
    session_id = await client.session()
    await client.query(session_id)
    everything = await client.events(session_id)
    cursor = everything[3]["id"]

    options = {"last": cursor} if way == "header" else {"after": cursor}
    async with client.stream(session_id, **options) as stream:
        opening = await stream.next()
        events = await stream.upto("agent_run_end")

    assert opening is not None
    assert opening.id == cursor
    assert events == everything[4:]


async def test_last_event_id_beats_after_and_after_beats_from(client: Client) -> None:
    session_id = await client.session()
    await client.query(session_id)

    async with client.stream(session_id, last="4", after="2", from_="now") as stream:
        by_header = (await stream.event()).json
    async with client.stream(session_id, after="2", from_="now") as stream:
        by_parameter = (await stream.event()).json
    async with client.stream(session_id, last="", after="2") as stream:
        by_empty_header = (await stream.event()).json

    assert places([by_header, by_parameter, by_empty_header]) == [5, 3, 3]


async def test_a_bare_number_an_event_id_and_a_control_id_are_cursors(client: Client) -> None:
    session_id = await client.session()
    await client.query(session_id)
    part = session_id.removeprefix("sess_")

    for cursor in ("3", f"evt_{part}_3", f"evt_{part}_3~17"):
        async with client.stream(session_id, after=cursor) as stream:
            assert places([(await stream.event()).json]) == [4]


async def test_other_cursors_are_refused_with_a_code(client: Client) -> None:
    session_id, other = await client.session(), await client.session()
    await client.query(other)
    foreign = (await client.events(other))[0]["id"]
    cursors = [
        (foreign, "bad_cursor"),
        ("ctl_1", "bad_cursor"),
        ("-1", "bad_cursor"),
        ("1.0", "bad_cursor"),
        ("١", "bad_cursor"),  # noqa: RUF001 - a digit, but not of ours
        ("\x00", "bad_cursor"),
        ("9" * 19, "bad_cursor"),
        ("2", "cursor_ahead"),
        ("9" * 18, "cursor_ahead"),
        ("x" * 201, "bad_request"),
    ]
    for cursor, code in cursors:
        response = await client.get("/api/v1/sessions/events/stream", sessionId=session_id, after=cursor)
        assert (response.status_code, response.json()["code"]) == (400, code), cursor
        assert set(response.json()) <= {"error", "code", "details"}


async def test_a_stream_from_nowhere_or_of_an_unknown_session_is_refused(client: Client) -> None:
    session_id = await client.session()
    for parameters, status in (
        ({"sessionId": session_id, "from": "yesterday"}, 400),
        ({}, 400),
        ({"sessionId": "sess_" + "a" * 26}, 404),
        ({"sessionId": "../../etc/passwd"}, 404),
        ({"sessionId": "sess_\x00"}, 404),
        ({"sessionId": "x" * 201}, 400),
    ):
        assert (await client.get("/api/v1/sessions/events/stream", **parameters)).status_code == status


# ── what it sends ────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_an_event_type_with_odd_characters_injects_nothing(client: Client) -> None:
    """D18: a printable oddity stays within its line; a line end is refused."""
    odd = 'progress: "50%" \\n {}'
    forged = "x\ndata: {}\n\nid: 1"
    for event_type, outcome in ((odd, "completed"), (forged, "failed")):
        session_id = await client.session(saying({"type": event_type, "step": 1}))
        async with client.query_stream(session_id) as stream:
            frames = [frame for frame in await stream.rest() if frame.data is not None]
        assert [frame.event for frame in frames] == [frame.type for frame in frames]
        assert frames[-1].json["data"]["status"] == outcome
    assert frames[-2].json["data"]["code"] == "bad_event"


async def test_a_clients_event_type_injects_nothing_either(client: Client) -> None:
    session_id = await client.session()
    odd = "x: y\\r\\n"

    response = await client.append(session_id, odd, {"a": "b\r\nc\n\nd"})
    refused = [await client.append(session_id, f"x{end}y") for end in "\n\r\x00\x85\u2028\u2029\ud800"]

    assert response.status_code == 201
    assert {r.status_code for r in refused} == {400}
    async with client.stream(session_id, after="1") as stream:
        event = await stream.event()
    assert event.json["type"] == odd
    assert event.json["data"] == {"a": "b\r\nc\n\nd"}


ODD_TEXTS = {
    "line and paragraph separators": "a\u2028b\u2029c\u0085d\x0b\x0c\x1c\x1d\x1e",
    "NUL": "\x00at the start, in the \x00middle, at the end\x00",
    "lone surrogates": "low \udc00, high \ud83d",
    "line ends": "a\rb\nc\r\n\r\nd",
    "beyond the plane": "\U0001f600 \uffff \ufeff",
}


@pytest.mark.parametrize("name", ODD_TEXTS)
async def test_odd_text_is_kept_losslessly_on_every_way_out(client: Client, name: str) -> None:
    """D17, D19: in a text, in a tool's result, in a key."""
    text = ODD_TEXTS[name]
    tool = {"type": "tool_started", "id": "t", "name": text, "args": {text: text}}
    result = {"type": "tool_ended", "id": "t", "isError": False, "content": text}
    session_id = await client.session(saying(said(text), tool, result, {"type": "note", text: [text]}))

    async with client.socket() as socket, client.stream(session_id) as stream:
        await socket.ask({"type": "join_session", "sessionId": session_id}, "session_start")
        answer = (await client.query(session_id)).json()
        by_stream = (await stream.upto("agent_run_end"))[1:]
        by_socket = await socket.until("agent_run_end")
    history = (await client.events(session_id))[1:]

    assert answer["response"] == text
    assert by_stream == by_socket == history
    data = {event["type"]: event["data"] for event in history}
    assert data["assistant_message_delta"]["delta"] == text
    assert data["tool_call"]["arguments"] == {text: text}
    assert data["tool_result"]["content"] == text
    assert data["note"] == {text: [text]}
    assert len(stream.raw.splitlines()) == len(stream.raw.decode().splitlines()), "a line end got out"


BAD_VALUES: dict[str, Any] = {
    "NaN": math.nan,
    "infinity": -math.inf,
    "Decimal": Decimal("NaN"),
    "bytes": b"x",
    "a set": {1},
    "a key that is no string": {1: 2},
    "an object": object(),
}


@pytest.mark.parametrize("name", BAD_VALUES)
async def test_what_is_not_json_fails_the_turn_and_nothing_else(client: Client, name: str) -> None:
    """D20: `bad_event` on every transport, and the session goes on."""
    bad = {"type": "note", "value": BAD_VALUES[name]}
    session_id = await client.session(saying(said("before "), bad, said("after")))

    async with client.socket() as socket:
        await socket.ask({"type": "join_session", "sessionId": session_id}, "session_start")
        response = await client.query(session_id)
        by_socket = await socket.until("agent_run_end")

    assert response.status_code == 502
    assert response.json()["code"] == "bad_event"
    assert response.json()["details"]["response"] == "before "
    assert types(by_socket)[-3:] == ["assistant_message", "error", "agent_run_end"]
    assert by_socket == (await client.events(session_id))[1:]
    client.server.agent.in_session[session_id] = saying(said("again"))
    assert (await client.query(session_id)).json()["response"] == "again"


async def test_integers_of_any_size_are_kept(client: Client) -> None:
    huge = 10**400
    session_id = await client.session(saying({"type": "note", "value": huge, "negative": -(2**64)}))

    body = (await client.query(session_id)).json()

    [note] = [event for event in body["events"] if event["type"] == "note"]
    assert note["data"] == {"value": huge, "negative": -(2**64)}


async def test_ids_rise_by_one_also_within_one_tick(client: Client) -> None:
    """D08: a thousand deltas without an await between them."""
    session_id = await client.session(saying(*(said(f"{n} ") for n in range(1000))))

    async with client.stream(session_id) as stream:
        await client.query(session_id)
        events = await stream.upto("agent_run_end")

    assert places(events) == list(range(1, 1006 + 1))
    assert len({event["id"] for event in events}) == len(events)


async def test_a_silent_stream_is_pinged(embedded_server: Server) -> None:
    async with own_database(embedded_server) as url, serving(url, ping_interval=0.1) as server:
        client = await server.client()
        step = Step()
        session_id = await client.session(in_two_halves(step))
        async with client.stream(session_id, from_="now") as stream, client.query_stream(session_id) as query:
            for each in (stream, query):
                await each.upto("assistant_message_delta")
                for _ in range(2):
                    frame = await each.next()
                    assert frame is not None
                    assert (frame.comment, frame.id, frame.data) == ("ping", None, None)
            step.passed.set()
            assert types(await stream.upto("agent_run_end"))[-1] == "agent_run_end"


# ── how it ends ──────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_it_ends_with_session_end_and_is_gone_afterwards(client: Client) -> None:
    session_id = await client.session()

    async with client.stream(session_id) as stream:
        await stream.event()
        assert (await client.delete(session_id)).json() == {"success": True}
        rest = await stream.rest()

    assert [frame.type for frame in rest] == ["session_end"]
    assert rest[0].json["data"]["sessionId"] == session_id
    assert rest[0].json["data"]["messageCount"] == 0
    response = await client.get("/api/v1/sessions/events/stream", sessionId=session_id)
    assert (response.status_code, response.json()["code"]) == (404, "session_deleted")


async def test_a_drain_ends_it_with_a_cursor_frame(embedded_server: Server) -> None:
    async with own_database(embedded_server) as url, serving(url) as server:
        client = await server.client()
        session_id = await client.session()
        await client.query(session_id)
        async with client.stream(session_id) as stream:
            events = await stream.upto("agent_run_end")
            await server.parts.drain()
            [last] = await stream.rest()
        refused = await client.query(session_id)
        async with client.stream(session_id, last=events[0]["id"]) as late:
            frames = await late.rest()

    assert (last.id, last.data) == (events[-1]["id"], None)
    assert (refused.status_code, refused.json()["code"]) == (503, "server_shutdown")
    assert refused.headers["retry-after"] == "2"
    assert {frame.id for frame in frames} == {events[0]["id"]}, "a late stream is told where to resume, too"


async def test_a_drain_lets_a_query_stream_see_its_turn_end(embedded_server: Server) -> None:
    async with own_database(embedded_server) as url, serving(url, drain_grace=2) as server:
        client = await server.client()
        step = Step()
        session_id = await client.session(in_two_halves(step))
        async with client.query_stream(session_id) as stream:
            await stream.upto("assistant_message_delta")
            await server.parts.drain()
            events = [frame.json for frame in await stream.rest() if frame.data is not None]

    assert types(events)[-3:] == ["assistant_message", "error", "agent_run_end"]
    assert events[-2]["data"]["code"] == "server_shutdown"
    assert events[-1]["data"]["status"] == "aborted"
    assert step.left.is_set()


# ── many at once ─────────────────────────────────────────────────────────────────────────────────────────────────────


async def raw_frames(stream: Stream, last: str) -> list[str]:
    """The data of the frames up to the first event of this type."""
    found: list[str] = []
    while not found or json.loads(found[-1])["type"] != last:
        data = (await stream.event()).data
        assert data is not None
        found.append(data)
    return found


async def test_sockets_and_streams_that_come_at_any_time_see_the_same_bytes(client: Client) -> None:
    step = Step()
    session_id = await client.session(in_two_halves(step))
    join: Json = {"type": "join_session", "sessionId": session_id}
    async with (
        client.socket() as early_socket,
        client.stream(session_id) as early,
        client.socket() as late_socket,
    ):
        await early_socket.ask(join, "session_joined")
        turn = await start(client, session_id)
        await soon(step.reached.wait())
        begun = await raw_frames(early, "assistant_message_delta")
        middle = json.loads(begun[2])["id"]
        async with (
            client.stream(session_id) as late,
            client.stream(session_id, last=middle) as resumed,
        ):
            await late_socket.ask(join, "session_joined")
            late_begun = await raw_frames(late, "assistant_message_delta")
            step.passed.set()
            by_early = begun + await raw_frames(early, "agent_run_end")
            by_late = late_begun + await raw_frames(late, "agent_run_end")
            by_resumed = await raw_frames(resumed, "agent_run_end")
        heard = [await texts_to_the_end(socket) for socket in (early_socket, late_socket)]
    assert (await soon(turn)).status_code == 200
    response = await client.get("/api/v1/sessions/events", sessionId=session_id, deltas="true")

    assert by_early == by_late == heard[0] == heard[1]
    assert by_resumed == by_early[3:]
    assert response.text.startswith('{"events":[' + ",".join(by_early) + "]")


async def texts_to_the_end(socket: Any) -> list[str]:
    texts: list[str] = []
    while not texts or json.loads(texts[-1])["type"] != "agent_run_end":
        texts.append(await socket.hear_text())
    return texts


async def test_a_reader_behind_the_window_reads_from_the_store_and_misses_nothing(
    embedded_server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The windows and the sockets' buffers are small against what is said while nobody reads."""
    monkeypatch.setattr(session_log, "WINDOW_EVENTS", 10)
    monkeypatch.setattr(session_log, "WINDOW_BYTES", 100_000)
    async with own_database(embedded_server) as url, serving(url) as server:
        client = await server.client()
        session_id = await client.session(saying(*(said("x" * 20_000) for _ in range(400))))
        async with (
            client.stream(session_id) as slow,
            client.socket(max_queue=1) as slow_socket,
            client.query_stream(session_id) as slow_query,
        ):
            await slow_socket.say({"type": "join_session", "sessionId": session_id})
            async with client.stream(session_id) as quick:
                by_quick = await quick.upto("agent_run_end")
            by_slow = await slow.upto("agent_run_end")
            by_socket = (await slow_socket.until("agent_run_end"))[1:]
            by_query = [f.json for f in await slow_query.rest() if f.data is not None]

    assert places(by_quick) == list(range(1, len(by_quick) + 1))
    assert by_slow == by_quick
    assert by_socket == by_quick
    assert by_query == by_quick[1:]


async def test_idle_streams_hold_no_database_connections(embedded_server: Server) -> None:
    """D24: more of them than there are connections, and the server answers."""
    async with own_database(embedded_server) as url, serving(url, pool_size=2) as server:
        client = await server.client()
        session_id = await client.session()
        async with AsyncExitStack() as stack:
            for _ in range(30):
                stream = await stack.enter_async_context(client.stream(session_id))
                await stream.event()
            await until(lambda: server.parts.pool.in_use == 0)
            answers = await asyncio.gather(*(client.status(session_id) for _ in range(20)))
        assert len(answers) == 20
        await until(lambda: len(server.parts.parts.readers) == 0)


async def test_a_drain_names_the_place_that_a_slow_reader_was_really_sent(embedded_server: Server) -> None:
    """What was taken for a reader that would not take it must not be skipped when it resumes."""
    async with own_database(embedded_server) as url, serving(url) as server:
        client = await server.client()
        session_id = await client.session(saying(*(said("x" * 1_000_000) for _ in range(30))))
        async with client.stream(session_id, from_="now") as slow:
            await slow.next()
            await client.query(session_id)
            draining = asyncio.create_task(server.parts.drain())
            frames = await slow.rest()
            await soon(draining)
        everything = await client.events(session_id)

    seen = [frame.json for frame in frames if frame.data is not None]
    assert frames[-1].data is None
    assert frames[-1].id is not None
    resumed = int(frames[-1].id.rpartition("_")[2])
    assert places(seen) == list(range(2, resumed + 1)), "a gap between the last frame and the cursor"
    assert len(seen) < len(everything) - 1, "the reader was not slow"
