"""Health, readiness, metrics, traces."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from app import __version__
from app.access.caller import trace_id_of
from app.agents.contract import AgentEvent
from app.errors import StorageUnavailable
from tests.conftest import Server, own_database
from tests.server import COMPLETED, HEADERS, Client, Step, serving, soon, until

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = f"00-{TRACE}-00f067aa0ba902b7-01"


async def readings(client: Client) -> dict[str, float]:
    """Every sample of the metrics, by name and label."""
    response = await client.get("/metrics")
    assert response.headers["content-type"].startswith("text/plain; version=")
    return {
        sample.name + "".join(f"[{value}]" for value in sample.labels.values()): sample.value
        for family in text_string_to_metric_families(response.text)
        for sample in family.samples
    }


async def test_metrics_tell_what_happens(client: Client) -> None:
    before = await readings(client)
    step = Step()

    async def agent(*_: Any) -> AsyncIterator[AgentEvent]:
        await step.wait()
        yield COMPLETED

    session_id = await client.session(agent)
    turn = asyncio.create_task(client.query(session_id))
    await soon(step.reached.wait())
    async with client.stream(session_id) as stream:
        await stream.next()
        during = await readings(client)
        step.passed.set()
        await soon(turn)
    await until(lambda: client.server.parts.parts.supervisor.running == before["tarko_turns_running"])
    after = await readings(client)

    assert during["tarko_turns_running"] == before["tarko_turns_running"] + 1
    assert during["tarko_readers"] >= 1
    assert during["tarko_live_sessions"] >= 1
    assert after["tarko_turns_running"] == before["tarko_turns_running"]
    assert (
        after["tarko_turns_ended_total[completed]"] == before.get("tarko_turns_ended_total[completed]", 0) + 1
    )
    assert after["tarko_events_stored_total"] > before["tarko_events_stored_total"]
    assert after["tarko_commits_total"] > before["tarko_commits_total"]
    assert after["tarko_events_waiting"] == 0
    for name in (
        "commit_seconds_total",
        "commit_failures_total",
        "abandoned_agents",
        "database_connections_busy",
    ):
        assert f"tarko_{name}" in after


async def test_health_tells_what_tarko_clients_read(client: Client) -> None:
    body = (await client.get("/api/v1/health")).json()

    assert set(body) == {"status", "timestamp", "uptime", "memory"}
    assert body["status"] == "ok"
    assert body["uptime"] >= 0
    assert body["timestamp"] > 1_700_000_000_000
    assert 0 < body["memory"]["used"] < body["memory"]["total"]


async def test_version_and_liveness(client: Client) -> None:
    assert (await client.get("/api/v1/version")).json() == {"version": __version__, "protocol": "1.0"}
    assert (await client.get("/healthz")).json() == {"status": "ok", "server": "tarko"}
    assert (await client.get("/readyz")).json() == {"status": "ready"}


async def test_it_is_not_ready_while_it_drains_but_alive(embedded_server: Server) -> None:
    async with own_database(embedded_server) as url, serving(url) as server:
        client = await server.client()
        await server.parts.drain()
        response = await client.get("/readyz")

        assert response.status_code == 503
        assert response.json() == {"status": "not ready", "problems": {"server": "draining"}}
        assert response.headers["retry-after"] == "2"
        assert (await client.get("/healthz")).status_code == 200


async def test_a_database_that_is_away_is_a_503_that_tells_nothing_of_it(client: Client) -> None:
    pool = client.server.parts.pool

    def away(*_: Any) -> Any:
        raise StorageUnavailable("The database is away (secret-host:5432).")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(pool), "connection", away)
        ready = await client.get("/readyz")
        created = await client.post("/api/v1/sessions/create")

    assert ready.status_code == 503
    assert ready.json()["problems"]["database"] == "away"
    assert created.status_code == 503
    assert created.json()["code"] == "storage_unavailable"
    assert created.headers["retry-after"] == "2"
    assert "secret-host" not in created.text


async def test_what_nobody_foresaw_is_a_500_without_a_stack(client: Client) -> None:
    directory = client.server.parts.parts.directory

    async def broken(*_: Any, **__: Any) -> Any:
        raise ZeroDivisionError("secret")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(directory), "create", broken)
        patch.setattr(type(directory), "find", broken)
        response = await client.post("/api/v1/sessions/create")
        async with client.socket() as socket:
            answer = await socket.ask({"type": "join_session", "sessionId": "x"}, "error")

    assert response.status_code == 500
    assert response.json() == {"error": "The server failed to answer this.", "code": "internal_error"}
    assert answer["data"]["code"] == "internal_error"
    assert "secret" not in str(answer)


async def test_a_traceparent_marks_every_event_of_its_turn(client: Client) -> None:
    session_id = await client.session()
    await client.post("/api/v1/sessions/query", {"sessionId": session_id, "query": "x"}, traceparent=PARENT)
    await client.query(session_id)
    events = await client.events(session_id)

    traces = [event["metadata"].get("traceId") for event in events]
    assert traces == [None] + [TRACE] * 7 + [None] * 7
    assert {event["metadata"]["version"] for event in events} == {"1.0"}


async def test_a_streamed_query_is_traced_as_well(client: Client) -> None:
    async with client.http.stream(
        "POST",
        "/api/v1/oneshot/query/stream",
        content='{"query": "x"}',
        headers=HEADERS | {"traceparent": PARENT},
    ) as response:
        text = (await response.aread()).decode()

    assert text.count(f'"traceId":"{TRACE}"') == 7


@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        "garbage",
        f"ff-{TRACE}-00f067aa0ba902b7-01",
        f"00-{'0' * 32}-00f067aa0ba902b7-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE.upper()}-00f067aa0ba902b7-01",
        f"00-{TRACE}-00f067aa0ba902b7",
        f"00-{TRACE}-00f067aa0ba902b7-01x",
    ],
)
def test_a_malformed_traceparent_is_none(header: str | None) -> None:
    assert trace_id_of(header) is None


def test_a_later_versions_traceparent_is_read(  # its further fields are left alone
) -> None:
    assert trace_id_of(f"01-{TRACE}-00f067aa0ba902b7-01-more") == TRACE


async def test_the_overview_tells_the_setup_and_no_secret(embedded_server: Server) -> None:
    tokens = "alice=a-token-of-some-length"
    async with (
        own_database(embedded_server) as url,
        serving(
            url,
            tokens=tokens,
            queue_limit=7,
            openai_api_key="sk-secret",
            remote_token="remote-secret",
            openai_system_prompt="hush",
        ) as server,
    ):
        client = await server.client("a-token-of-some-length")
        overview = (await client.get("/api/v1/overview")).json()
    told = {setting["name"]: setting for setting in overview["settings"]}
    [replica] = overview["replicas"]
    assert overview["principal"] == "alice"
    assert overview["version"] == __version__
    assert replica["isThis"]
    assert 0 <= replica["beatAgeMs"] < 6000
    assert told["TARKO_QUEUE_LIMIT"]["value"] == "7"
    assert not told["TARKO_QUEUE_LIMIT"]["isDefault"]
    assert told["TARKO_MAX_EVENT"]["isDefault"]
    assert told["TARKO_TOKENS"]["value"] == told["TARKO_DATABASE_URL"]["value"] == "set"
    assert told["TARKO_PUBLIC_URL"]["value"] == "not set"
    for secret in ("a-token", "secret", "hush", url):
        assert secret not in str(overview)


async def test_where_no_token_is_asked_for_nobody_is_named(client: Client) -> None:
    assert (await client.get("/api/v1/overview")).json()["principal"] is None
