"""`GET /api/v1/sessions/events`: the plain list by offset, and pages by cursor."""

import asyncio
import re
from typing import Any

import pytest

from app.dialects.tarko.routes import events as events_routes
from tests.server import Client, Json, places, said, saying, soon, types

HISTORY = "/api/v1/sessions/events"


async def with_notes(client: Client, count: int) -> str:
    """A session of one turn with `count` lasting events in the middle: places 1 to count + 6."""
    session_id = await client.session(saying(*({"type": "note", "n": n} for n in range(count))))
    assert (await client.query(session_id)).status_code == 200
    return session_id


async def walk(client: Client, session_id: str, **params: Any) -> list[Json]:
    """Every event of all pages."""
    found: list[Json] = []
    while True:
        page = await client.page(session_id, **params)
        found += page["events"]
        if not page["hasMore"]:
            return found
        key = "nextBefore" if params.get("order") == "desc" else "nextAfter"
        params["before" if key == "nextBefore" else "after"] = page[key]


# ── by offset ────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_the_list_is_oldest_first_with_fifty_at_a_time_and_without_deltas(client: Client) -> None:
    session_id = await with_notes(client, 100)

    first = await client.page(session_id)
    second = await client.page(session_id, offset=50)
    third = await client.page(session_id, offset=100)

    assert [len(page["events"]) for page in (first, second, third)] == [50, 50, 6]
    assert [page["hasMore"] for page in (first, second, third)] == [True, True, False]
    assert {page["total"] for page in (first, second, third)} == {106}
    joined = first["events"] + second["events"] + third["events"]
    assert places(joined) == list(range(1, 107))


async def test_offsets_beyond_the_end_give_an_empty_page(client: Client) -> None:
    session_id = await client.session()
    for offset in (1, 10, 2**53):
        page = await client.page(session_id, offset=offset)
        assert page == {"events": [], "total": 1, "hasMore": False}


async def test_deltas_count_neither_in_total_nor_in_offsets(client: Client) -> None:
    session_id = await client.session(saying(*(said("x") for _ in range(20))))
    await client.query(session_id)

    page = await client.page(session_id, offset=3)

    assert page["total"] == 6
    assert types(page["events"]) == ["assistant_message_start", "assistant_message", "agent_run_end"]


async def test_limits_and_offsets_out_of_range_are_refused(client: Client) -> None:
    session_id = await client.session()
    for params in (
        {"limit": 0},
        {"limit": -1},
        {"limit": 1001},
        {"limit": "many"},
        {"offset": -1},
        {"offset": 2**53 + 1},
        {"offset": "1e3"},
        {"since": -1},
        {"until": "yesterday"},
        {"deltas": "perhaps"},
        {"order": "random"},
        {"types": "x" * 4001},
        {"after": "evt_1"},
        {"before": "garbage"},
    ):
        response = await client.get(HISTORY, sessionId=session_id, **params)
        assert response.status_code == 400, params
        assert isinstance(response.json()["error"], str)


async def test_an_offset_beside_filters_is_refused(client: Client) -> None:
    session_id = await client.session()
    for params in (
        {"order": "desc"},
        {"after": "1"},
        {"before": "9"},
        {"types": "note"},
        {"since": 0},
        {"until": 9},
        {"deltas": "true"},
        {"turnId": "turn_x"},
    ):
        response = await client.get(HISTORY, sessionId=session_id, offset=1, **params)
        assert (response.status_code, response.json()["code"]) == (400, "offset_not_allowed"), params


async def test_a_large_offset_page_is_streamed_whole(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events_routes, "PIECE_BYTES", 50_000)
    image = "x" * 20_000
    session_id = await client.session(saying(*({"type": "image", "n": n, "url": image} for n in range(60))))
    await client.query(session_id)

    response = await client.get(HISTORY, sessionId=session_id, limit=1000)

    assert "content-length" not in response.headers
    body = response.json()
    assert places(body["events"]) == list(range(1, 67))
    assert [e["data"]["n"] for e in body["events"] if e["type"] == "image"] == list(range(60))
    assert (body["total"], body["hasMore"]) == (66, False)
    assert body["nextAfter"] == body["events"][-1]["id"]


async def test_a_list_that_is_purged_while_it_is_streamed_ends_in_order(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    session_id = await with_notes(client, 10)

    async def nothing(*_: Any) -> list[Any]:
        return []

    history = client.server.parts.parts.history
    monkeypatch.setattr(type(history), "lasting", nothing)
    assert await client.page(session_id) == {"events": [], "total": 16, "hasMore": False}


# ── by cursor ────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_walking_by_next_after_gives_everything_once(client: Client) -> None:
    session_id = await with_notes(client, 100)

    events = await walk(client, session_id, limit=7, after="0")

    assert places(events) == list(range(1, 107))


async def test_walking_backwards_gives_everything_once(client: Client) -> None:
    session_id = await with_notes(client, 100)

    events = await walk(client, session_id, limit=7, order="desc")

    assert places(events) == list(range(106, 0, -1))


async def test_pages_skip_and_repeat_nothing_while_events_are_appended(client: Client) -> None:
    """D21: in both directions, by cursor and by offset."""
    session_id = await with_notes(client, 60)
    last = places((await client.page(session_id, order="desc", limit=1))["events"])[0]
    done = asyncio.Event()

    async def append() -> None:
        while not done.is_set():
            assert (await client.append(session_id, "tick")).status_code == 201

    appending = asyncio.create_task(append())
    before = f"evt_{session_id.removeprefix('sess_')}_{last + 1}"
    backwards = await walk(client, session_id, limit=5, order="desc", before=before)
    by_offset: list[Json] = []
    while len(by_offset) < last:
        by_offset += (await client.page(session_id, limit=5, offset=len(by_offset)))["events"]
    forwards = await walk(client, session_id, limit=5, after="0", before=before)
    done.set()
    await soon(appending)

    assert places(backwards) == list(range(last, 0, -1))
    assert places(forwards) == list(range(1, last + 1))
    assert places(by_offset)[:last] == list(range(1, last + 1))
    assert (await client.page(session_id))["total"] > last, "nothing was appended"


async def test_after_and_before_exclude_their_places(client: Client) -> None:
    session_id = await with_notes(client, 10)

    page = await client.page(session_id, after="3", before="7")

    assert places(page["events"]) == [4, 5, 6]
    assert page["hasMore"] is False
    assert page["total"] == 16
    assert (await client.page(session_id, after="99"))["events"] == []


async def test_types_filter_by_exact_name(client: Client) -> None:
    session_id = await with_notes(client, 5)

    both = await client.page(session_id, types="note,user_message,no_such_type", limit=3)
    none = await client.page(session_id, types="not")

    assert types(both["events"]) == ["user_message", "note", "note"]
    assert both["hasMore"] is True
    assert none["events"] == []
    assert "nextAfter" not in none


async def test_types_with_characters_that_no_type_has_find_nothing(client: Client) -> None:
    session_id = await client.session()
    for odd in ("\x00", "a\x00b,note", ",", "\u2028", "x" * 4000):
        assert (await client.page(session_id, types=odd))["events"] == []


async def test_since_is_included_and_until_is_not(client: Client) -> None:
    session_id = await with_notes(client, 3)
    everything = (await client.page(session_id))["events"]
    began, ended = everything[0]["timestamp"], everything[-1]["timestamp"]

    assert (await client.page(session_id, since=began))["events"] == everything
    assert (await client.page(session_id, since=ended + 1))["events"] == []
    assert (await client.page(session_id, until=began))["events"] == []
    assert (await client.page(session_id, until=ended + 1))["events"] == everything


async def test_deltas_are_there_when_asked_for(client: Client) -> None:
    session_id = await client.session(saying(said("a"), said("b")))
    await client.query(session_id)

    page = await client.page(session_id, deltas="true", types="assistant_message_delta")

    assert [event["data"]["delta"] for event in page["events"]] == ["a", "b"]
    assert page["total"] == 6


async def test_a_turns_events_can_be_had_alone(client: Client) -> None:
    session_id = await client.session(saying(said("a")))
    turns = [(await client.query(session_id)).json() for _ in range(3)]

    page = await client.page(session_id, turnId=turns[1]["turnId"])
    part = await client.page(session_id, turnId=turns[1]["turnId"], before=page["events"][2]["id"])

    assert page["events"] == turns[1]["events"]
    assert part["events"] == turns[1]["events"][:2]
    assert page["total"] == 16


async def test_turns_that_the_session_never_had_are_not_found(client: Client) -> None:
    """Another session's turn is as unknown as one that never was."""
    session_id, other = await client.session(), await client.session()
    elsewhere = (await client.query(other)).json()["turnId"]
    for turn_id in (elsewhere, "turn_" + "a" * 26, "nonsense", "\x00"):
        response = await client.get(HISTORY, sessionId=session_id, turnId=turn_id)
        assert (response.status_code, response.json()["code"]) == (404, "turn_not_found"), turn_id


async def test_pages_with_images_end_at_a_mebibyte_and_lose_nothing(client: Client) -> None:
    """D16: media stay in their events; the page is bounded by bytes."""
    images = [{"type": "image", "n": n, "url": "data:image/png;base64," + "AAAA" * 125_000} for n in range(8)]
    session_id = await client.session(saying(*images))
    assert (await client.query(session_id)).status_code == 200

    found: list[Json] = []
    after, sizes = "0", []
    while True:
        response = await client.get(HISTORY, sessionId=session_id, limit=100, after=after)
        sizes.append(len(response.content))
        found += response.json()["events"]
        if not response.json()["hasMore"]:
            break
        after = response.json()["nextAfter"]

    assert max(sizes) < 2**20 + 600_000, "one event more than the budget at most"
    assert len(sizes) == 3
    assert places(found) == list(range(1, 15))
    assert [event["data"] for event in found if event["type"] == "image"] == [
        {key: value for key, value in image.items() if key != "type"} for image in images
    ]


async def test_one_event_bigger_than_a_page_is_a_page(client: Client) -> None:
    session_id = await client.session(saying({"type": "big", "value": "x" * 3_000_000}))
    await client.query(session_id)

    events = await walk(client, session_id, after="0")

    assert places(events) == list(range(1, 8))


async def test_history_is_the_same_bytes_each_time(client: Client) -> None:
    session_id = await client.session(saying({"type": "note", "z": 1, "a": {"y": 1.0, "b": -0.0}}))
    await client.query(session_id)

    by_offset, by_cursor = [
        (await client.get(HISTORY, sessionId=session_id, **params)).text for params in ({}, {"after": "0"})
    ]

    events = re.compile(r'"events":\[.*\]')
    assert events.search(by_offset)[0] == events.search(by_cursor)[0]  # type: ignore[index]
    assert '{"z":1,"a":{"y":1.0,"b":-0.0}}' in by_offset
