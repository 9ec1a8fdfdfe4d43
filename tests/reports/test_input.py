"""Reports of content that broke a log, a page, a filter or a path."""

import asyncio
import json
import math
import re
from collections.abc import AsyncIterator
from decimal import Decimal
from typing import Any

import asyncpg
import httpx
import pytest

from app.agents.contract import AgentEvent, Prompt, Scope
from tests.reports.machine import rss, running
from tests.server import COMPLETED, PATIENCE, Client, Json, Step, places, said, saying, soon, types

MIB = 2**20

# ── large media ──────────────────────────────────────────────────────────────────────────────────────────────────────

IMAGES, IMAGE = 120, 500_000


async def paints(_: Scope, __: Prompt) -> AsyncIterator[AgentEvent]:
    """Says one image after the other, each different."""
    for number in range(IMAGES):
        yield {"type": "image", "number": number, "base64": f"{number:08}" + "A" * (IMAGE - 8)}
    yield COMPLETED


@pytest.fixture(scope="module")
async def gallery(shared: Any) -> str:
    """A session with 60 MB of images in it."""
    client: Client = await shared.client()
    session_id = await client.session(paints)
    async with client.query_stream(session_id) as stream:
        async for _ in stream.response.aiter_raw():
            pass
    return session_id


async def test_d16_pages_of_images_are_bounded_and_lose_none(client: Client, gallery: str) -> None:
    """jmfederico/pi-web#222: one page of history had 33.7 MB. Media stay in their events; pages by cursor end early."""
    seen: list[Json] = []
    after, sizes = "0", []
    while True:
        params = {"sessionId": gallery, "after": after, "limit": 1000}
        response = await client.get("/api/v1/sessions/events", **params)
        page = response.json()
        sizes.append(len(response.content))
        seen += page["events"]
        if not page["hasMore"]:
            break
        after = page["nextAfter"]

    assert max(sizes) <= MIB + IMAGE
    images = [event["data"] for event in seen if event["type"] == "image"]
    assert [image["number"] for image in images] == list(range(IMAGES))
    assert all(len(image["base64"]) == IMAGE for image in images)
    assert places(seen) == sorted(set(places(seen)))
    backwards = await client.page(gallery, order="desc", limit=5)
    assert 1 <= len(backwards["events"]) <= 5
    assert backwards["events"] == seen[::-1][: len(backwards["events"])]


@pytest.mark.parametrize("way", ["events", "events/stream"])
async def test_d16_a_whole_history_of_images_is_sent_in_bounded_memory(
    client: Client, gallery: str, way: str
) -> None:
    """jmfederico/pi-web#222: 60 MB by offset or as a replay, at most 24 MB of it held at any time."""

    async def read() -> tuple[int, int]:
        received, peak = 0, rss()
        params: Json = {"sessionId": gallery} | ({"limit": 1000} if way == "events" else {})
        async with client.http.stream("GET", f"/api/v1/sessions/{way}", params=params) as response:
            tail = b""
            async for chunk in response.aiter_raw():
                received += len(chunk)
                peak = max(peak, rss())
                tail = (tail + chunk)[-2_000:]
                if b'"agent_run_end"' in tail:
                    break
        return received, peak

    before = rss()
    received, peak = await soon(read())
    assert received > IMAGES * IMAGE
    assert peak - before < 24 * MIB


# ── characters and numbers ───────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("text", ["\0start", "mid\0dle", "end\0", "\0", "\0" * 100, "\\u0000 \0"])
async def test_d19_nul_in_a_tools_output_is_kept_and_the_run_goes_on(client: Client, text: str) -> None:
    """coder/coder#22637: NUL in a tool's output failed the insert, and the message was lost."""
    session_id = await client.session(
        saying(
            {"type": "tool_started", "id": f"t{text}", "name": text, "args": {text: text}},
            {"type": "tool_ended", "id": f"t{text}", "isError": False, "content": {text: [text]}},
            {"type": "tool_started", "id": "second", "name": "t", "args": {}},
            {"type": "tool_ended", "id": "second", "isError": True, "content": text},
            said(text),
        )
    )
    async with client.stream(session_id) as stream:
        answer = (await client.query(session_id, text)).json()
        by_stream = await stream.upto("agent_run_end")

    assert (answer["status"], answer["response"]) == ("completed", text)
    assert by_stream == await client.events(session_id)
    calls = [event["data"] for event in by_stream if event["type"] == "tool_call"]
    results = [event["data"] for event in by_stream if event["type"] == "tool_result"]
    assert (calls[0]["name"], calls[0]["arguments"]) == (text, {text: text})
    assert results[0]["rawContent"] == {text: [text]}
    assert results[1]["content"] == text


async def test_d19_nul_in_an_events_type_fails_the_turn_and_not_the_session(client: Client) -> None:
    """coder/coder#22637: what can't be kept has a stated outcome."""
    session_id = await client.session(saying(said("kept"), {"type": "nul\0"}, said("after")))
    failed = (await client.query(session_id)).json()
    client.server.agent.in_session[session_id] = saying(said("again"))

    assert (failed["code"], failed["details"]["response"]) == ("bad_event", "kept")
    assert (await client.query(session_id)).json()["response"] == "again"
    assert (await client.append(session_id, "nul\0")).status_code == 400


NOT_NUMBERS: dict[str, Any] = {
    "NaN": math.nan,
    "Infinity": math.inf,
    "-Infinity": -math.inf,
    "1e999": float("1e999"),
    "Decimal NaN": Decimal("NaN"),
    "Decimal Infinity": Decimal("Infinity"),
    "NaN deep inside": [{"a": (1, {"b": math.nan})}],
}
BARE = re.compile(r"(?<![\"\w])(NaN|-?Infinity|1e999)(?![\"\w])")


@pytest.mark.parametrize("name", NOT_NUMBERS)
async def test_d20_what_is_no_number_never_gets_out_as_one(client: Client, name: str) -> None:
    """modelcontextprotocol/python-sdk#3385: NaN and Infinity went out as bare tokens that no parser takes."""
    value = NOT_NUMBERS[name]
    events = (
        said("before"),
        {"type": "tool_started", "id": "t", "name": "t", "args": {}},
        {"type": "tool_ended", "id": "t", "isError": False, "content": {"value": value}},
    )
    session_id = await client.session(saying(*events))
    async with client.socket() as socket, client.stream(session_id) as stream:
        await socket.ask({"type": "join_session", "sessionId": session_id}, "session_start")
        async with client.query_stream(session_id) as query:
            await query.rest()
        await stream.upto("agent_run_end")
        heard = [await socket.hear_text()]
        while '"agent_run_end"' not in heard[-1]:
            heard.append(await socket.hear_text())
    history = await client.get("/api/v1/sessions/events", sessionId=session_id)

    for text in (query.read, stream.read, *heard, history.text):
        assert BARE.search(text) is None
    error, end = history.json()["events"][-2:]
    assert (error["data"]["code"], end["data"]["status"]) == ("bad_event", "failed")
    assert [json.loads(text) for text in heard][-1] == end


@pytest.mark.parametrize("token", ["NaN", "Infinity", "-Infinity", "1e999"])
async def test_d20_a_client_that_sends_no_number_is_told_so(client: Client, token: str) -> None:
    """modelcontextprotocol/python-sdk#3385: on the way in they are refused, whichever way that is."""
    session_id = await client.session()
    body = f'{{"sessionId": "{session_id}", "type": "note", "data": {{"value": {token}}}}}'
    refused = await client.post("/api/v1/sessions/events", body)
    async with client.socket() as socket:
        error = await socket.ask(body.replace('"note"', '"send_query"'), "error")

    assert (refused.status_code, refused.json()["code"]) == (400, "bad_json")
    assert error["data"]["code"] == "bad_json"
    assert len(await client.events(session_id)) == 1


async def test_d20_a_result_that_is_no_number_fails_the_turn(client: Client) -> None:
    """modelcontextprotocol/python-sdk#3385: in a turn's result as well."""
    session_id = await client.session(saying({"type": "completed", "data": {"score": math.nan}}, ends=False))
    answer = await client.query(session_id)
    assert (answer.status_code, answer.json()["code"]) == (502, "bad_event")
    assert BARE.search(answer.text) is None


# ── ids ──────────────────────────────────────────────────────────────────────────────────────────────────────────────

PART = "agpzhxv4lz5czmzoyw3zw2h5ge"
ODD_IDS = [
    "../../x",
    "sess_../../../etc/passwd",
    "%2e%2e%2f%2e%2e%2fx",
    f"sess_{PART}/../x",
    f"sess_{PART}\0",
    f"\0sess_{PART}",
    "sess_\N{RIGHT-TO-LEFT OVERRIDE}" + PART,
    f"sess_{PART}\N{RIGHT-TO-LEFT MARK}",
    f"sess_{PART.upper()}",
    f"sess_{PART}\n",
    f"sess_{PART};DROP TABLE sessions",
    "sess_' OR '1'='1",
    "s" * 10_000,
    "",
    " ",
    "\ud800",
    "C:\\x",
]


def _bytes(text: str) -> str:
    """As it may stand in a query string: a lone surrogate has no bytes there."""
    return text.encode("utf-8", "surrogateescape" if "\udc80" in text else "replace").decode()


@pytest.mark.parametrize("odd", ODD_IDS, ids=lambda odd: ascii(odd)[:40])
async def test_d30_an_id_that_is_none_is_not_found_on_every_route(client: Client, odd: str) -> None:
    """NousResearch/hermes-agent#5958: a session called `../../x` was written outside of its directory."""
    before = (await client.get("/api/v1/sessions")).json()
    for path in ("details", "status", "events", "events/stream", "queue"):
        response = await client.get(f"/api/v1/sessions/{path}", sessionId=_bytes(odd))
        assert response.status_code in (400, 404), path
        assert response.json()["code"] in ("session_not_found", "bad_request"), path
    bodies: dict[str, Json] = {
        "query": {"query": "x"},
        "query/stream": {"query": "x"},
        "abort": {},
        "delete": {},
        "update": {"name": "x"},
        "events": {"type": "note"},
    }
    for path, body in bodies.items():
        response = await client.post(f"/api/v1/sessions/{path}", {"sessionId": odd, **body})
        assert response.status_code in (400, 404), path
        assert response.json()["code"] in ("session_not_found", "bad_request", "bad_json"), path
    async with client.socket() as socket:
        for command in ("join_session", "send_query", "abort_query"):
            error = await socket.ask({"type": command, "sessionId": odd, "query": "x"}, "error")
            assert error["data"]["code"] in ("session_not_found", "bad_message", "bad_json"), command
            assert error["id"].startswith("ctl_")
        assert (await socket.ask({"type": "ping"}, "pong"))["type"] == "pong"
    assert (await client.get("/api/v1/sessions")).json() == before


@pytest.mark.parametrize("odd", ODD_IDS, ids=lambda odd: ascii(odd)[:40])
async def test_d30_no_other_id_of_a_clients_choice_is_trusted(client: Client, odd: str) -> None:
    """NousResearch/hermes-agent#5958: turns, cursors, keys and agents are named by clients, too."""
    step = Step()

    async def waits(_: Scope, __: Prompt) -> AsyncIterator[AgentEvent]:
        await step.wait()
        yield COMPLETED

    session_id = await client.session(waits)
    query = asyncio.create_task(client.query(session_id))
    await soon(step.reached.wait())
    aborted = await client.post("/api/v1/sessions/abort", {"sessionId": session_id, "turnId": odd})
    of_turn = await client.get("/api/v1/sessions/events", sessionId=session_id, turnId=_bytes(odd))
    by_agent = await client.post("/api/v1/sessions/create", {"agent": odd})
    refused = [aborted, of_turn, by_agent]
    for cursor in ("after", "before"):
        params = {"sessionId": session_id, cursor: _bytes(odd)}
        refused.append(await client.get("/api/v1/sessions/events", **params))
    step.passed.set()

    assert [r.status_code for r in refused if r.status_code not in (400, 404)] == []
    assert (await query).json()["status"] == "completed", "an odd turn's name stopped the running turn"


# ── time ─────────────────────────────────────────────────────────────────────────────────────────────────────────────

# 2026-11-01: at St. John's clocks go back from 2:00 to 1:00 (04:30 UTC), so 1:30 comes twice.
FIRST_HALF_PAST_ONE, SECOND_HALF_PAST_ONE = 1_793_505_600_000, 1_793_509_200_000


@pytest.mark.parametrize("zone", ["Asia/Kathmandu", "America/St_Johns"])
async def test_d31_times_are_utc_milliseconds_whatever_the_servers_zone(
    embedded_database: str, zone: str
) -> None:
    """OpenHands/software-agent-sdk#1880: local times without a zone were compared as text."""
    environment = {"TZ": zone, "PGTZ": zone}
    async with (
        running(embedded_database, environment=environment) as (process, url),
        httpx.AsyncClient(base_url=url, timeout=PATIENCE) as http,
    ):
        created = (await http.post("/api/v1/sessions/create")).json()
        session_id = created["sessionId"]
        for number in range(4):
            body = {"sessionId": session_id, "type": "note", "data": number}
            assert (await http.post("/api/v1/sessions/events", json=body)).status_code == 201
        connection = await asyncpg.connect(embedded_database)
        now = await connection.fetchval("SELECT (extract(epoch FROM now()) * 1000)::bigint")
        for place, at in enumerate((FIRST_HALF_PAST_ONE, SECOND_HALF_PAST_ONE - 1, SECOND_HALF_PAST_ONE), 2):
            query = "UPDATE events SET ts = $1 WHERE session_id = $2 AND seq = $3"
            await connection.execute(query, at, session_id, place)
        await connection.close()

        async def between(since: int, until: int) -> list[int]:
            params = {"sessionId": session_id, "types": "note", "since": since, "until": until}
            page = (await http.get("/api/v1/sessions/events", params=params)).json()
            return [event["data"] for event in page["events"]]

        everything = (await http.get("/api/v1/sessions/events", params={"sessionId": session_id})).json()
        stamps = [event["timestamp"] for event in everything["events"]]
        assert all(type(stamp) is int for stamp in (*stamps, created["createdAt"]))
        assert abs(stamps[-1] - now) < 60_000
        assert abs(created["createdAt"] - now) < 60_000
        assert stamps[1:4] == [FIRST_HALF_PAST_ONE, SECOND_HALF_PAST_ONE - 1, SECOND_HALF_PAST_ONE]
        assert await between(FIRST_HALF_PAST_ONE, SECOND_HALF_PAST_ONE) == [0, 1]
        assert await between(SECOND_HALF_PAST_ONE, SECOND_HALF_PAST_ONE + 1) == [2]
        assert await between(FIRST_HALF_PAST_ONE + 1, SECOND_HALF_PAST_ONE + 1) == [1, 2]
        for naive in ("2026-11-01T01:30:00", "2026-11-01", "now"):
            params = {"sessionId": session_id, "since": naive}
            refused = await http.get("/api/v1/sessions/events", params=params)
            assert (refused.status_code, refused.json()["code"]) == (400, "bad_request")
        process.terminate()
        await soon(process.wait())
    assert types(everything["events"]) == ["session_start", "note", "note", "note", "note"]
