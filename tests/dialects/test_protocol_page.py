"""Every request and response of the protocol page's chapter "Server Protocol", as the page has it."""

import re

from tests.server import Client, said, saying, types

EVENT_ID = re.compile(r"evt_[a-z2-7]{26}_\d+")
CREATE = b"""{
  "name": "My Session",
  "tags": ["tag1", "tag2"]
}"""


async def test_create_answers_with_the_session_and_its_time(client: Client) -> None:
    response = await client.post("/api/v1/sessions/create", CREATE)

    assert response.status_code == 201
    assert response.headers["content-type"] == "application/json"
    assert set(response.json()) == {"sessionId", "createdAt"}
    assert re.fullmatch(r"sess_[a-z2-7]{26}", response.json()["sessionId"])
    assert isinstance(response.json()["createdAt"], int)
    assert response.json()["createdAt"] > 1_700_000_000_000


async def test_query_answers_with_the_text_and_the_turns_events(client: Client) -> None:
    session_id = await client.session(saying(said("Hello! "), said("I'm here to help...")))

    response = await client.post(
        "/api/v1/sessions/query",
        f"""{{
  "sessionId": "{session_id}",
  "query": "Hello, how can you help?"
}}""",
    )

    assert response.status_code == 200
    body = response.json()
    assert body["response"] == "Hello! I'm here to help..."
    pairs = [(event["type"], event["data"].get("content")) for event in body["events"]]
    assert ("user_message", "Hello, how can you help?") in pairs
    assert ("assistant_message", "Hello! I'm here to help...") in pairs
    assert pairs.index(("user_message", "Hello, how can you help?")) == 0


async def test_history_answers_with_envelopes_a_total_and_whether_there_are_more(client: Client) -> None:
    session_id = await client.session()
    await client.query(session_id, "Hello")

    response = await client.http.get(f"/api/v1/sessions/events?sessionId={session_id}&limit=2&offset=1")

    assert response.status_code == 200
    body = response.json()
    assert body["total"] == 6
    assert body["hasMore"] is True
    [event, _] = body["events"]
    assert EVENT_ID.fullmatch(event["id"])
    assert event["type"] == "user_message"
    assert event["sessionId"] == session_id
    assert event["data"]["content"] == "Hello"
    assert event["data"]["role"] == "user"
    assert isinstance(event["timestamp"], int)


async def test_query_stream_sends_named_frames_in_the_pages_order(client: Client) -> None:
    session_id = await client.session(saying(said("Once upon"), said(" a time")))

    async with client.query_stream(session_id, "Tell me a story") as stream:
        assert stream.response.headers["content-type"].startswith("text/event-stream")
        frames = [frame for frame in await stream.rest() if frame.data is not None]

    assert [frame.event for frame in frames] == [frame.type for frame in frames]
    assert [frame.id for frame in frames] == [frame.json["id"] for frame in frames]
    on_the_page = [frame for frame in frames if not frame.type.startswith("agent_run_")]
    assert [frame.type for frame in on_the_page] == [
        "user_message",
        "assistant_message_start",
        "assistant_message_delta",
        "assistant_message_delta",
        "assistant_message",
    ]
    user, start, first, second, message = (frame.json["data"] for frame in on_the_page)
    assert user["content"] == "Tell me a story"
    assert start["role"] == "assistant"
    assert [first["delta"], second["delta"]] == ["Once upon", " a time"]
    assert message["content"] == "Once upon a time"
    assert message["role"] == "assistant"
    assert message["finishReason"] == "stop"


async def test_a_socket_joins_queries_and_receives_bare_envelopes(client: Client) -> None:
    session_id = await client.session()

    async with client.socket() as socket:
        await socket.say(f"""{{"type":"join_session","sessionId":"{session_id}"}}""")
        await socket.say(f"""{{"type":"send_query","sessionId":"{session_id}","query":"Hello!"}}""")
        heard = await socket.until("agent_run_end")

    assert types(heard) == [
        "session_joined",
        "session_start",
        "user_message",
        "agent_run_start",
        "assistant_message_start",
        "assistant_message_delta",
        "assistant_message_delta",
        "assistant_message",
        "agent_run_end",
    ]
    assert {event["sessionId"] for event in heard} == {session_id}
    assert heard[2]["data"]["content"] == "Hello!"


async def test_a_socket_aborts_a_query(client: Client) -> None:
    session_id = await client.session()

    async with client.socket() as socket:
        answer = await socket.ask({"type": "abort_query", "sessionId": session_id}, "abort_result")

    assert answer["data"] == {"success": False}


async def test_the_react_example_needs_nothing_but_the_streams_address(client: Client) -> None:
    session_id = await client.session()

    async with client.stream(session_id) as stream:
        assert (await stream.event()).type == "session_start"
        await client.query(session_id, "Hello")
        events = await stream.upto("agent_run_end")

    assert types(events).count("assistant_message") == 1
    assert b"event:" not in stream.raw, "EventSource gives named frames to nobody"
