"""A server in a process of its own: how it starts, and how it stops."""

import asyncio
import os
import re
import signal
import socket
import sys
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from app.events.canonical import decode
from tests.conftest import Server, open_stores, own_database
from tests.server import HEADERS, PATIENCE, Frame, Stream, soon

ROOT = Path(__file__).parents[2]
GRACE = 2.0
IN_TIME = 20.0  # seconds, of a machine that has much else to do
STARTS = 60.0
SERVE = "import sys; from app.serving import serve; from app.settings import Settings; sys.exit(serve(Settings()))"
BLOCKED = b"blocked\n"
ADDRESS = re.compile(rb"http://127\.0\.0\.1:(\d+)")


@pytest.fixture
async def database(embedded_server: Server) -> AsyncIterator[str]:
    async with own_database(embedded_server) as url:
        yield url


async def start(database: str, **settings: Any) -> Process:
    """`serve` in a new process."""
    named = {f"TARKO_{name.upper()}": str(value) for name, value in settings.items()}
    environment = {
        **os.environ, "TARKO_DATABASE_URL": database, "TARKO_PORT": "0", "TARKO_DRAIN_GRACE": str(GRACE), **named,
    }  # fmt: skip
    return await asyncio.create_subprocess_exec(
        sys.executable, "-c", SERVE, cwd=ROOT, env=environment, stdout=PIPE, stderr=PIPE
    )


@asynccontextmanager
async def running(database: str, **settings: Any) -> AsyncIterator[tuple[Process, str]]:
    """The process, once it serves, and its address; killed at the end if it is still there."""
    process = await start(database, **settings)
    assert process.stdout is not None
    try:
        said = b""
        while not (found := ADDRESS.search(said)):
            async with asyncio.timeout(STARTS):
                line = await process.stdout.readline()
            assert line, await soon(process.communicate())
            said += line
        yield process, f"http://127.0.0.1:{int(found[1])}"
    finally:
        await ended(process)


async def refused(database: str, **settings: Any) -> tuple[int | None, str]:
    """The exit code and the last words of a server that does not start."""
    process = await start(database, **settings)
    try:
        async with asyncio.timeout(STARTS):
            _, errors = await process.communicate()
    finally:
        await ended(process)
    return process.returncode, " ".join(errors.decode().split())


async def ended(process: Process) -> None:
    """Kill the process if it is still there, and read its last words."""
    if process.returncode is None:
        process.kill()
        await soon(process.communicate())


async def gone(process: Process, since: float) -> int:
    """The exit code, given in time."""
    code = await soon(process.wait())
    assert time.monotonic() - since < IN_TIME
    return code


async def new_session(client: httpx.AsyncClient) -> str:
    response = await client.post("/api/v1/sessions/create")
    return str(response.json()["sessionId"])


async def read_to_the_end(stream: Stream) -> list[Frame]:
    return await stream.rest()


async def close_code(connection: ClientConnection) -> int | None:
    try:
        while True:
            await soon(connection.recv())
    except ConnectionClosed as error:
        return error.rcvd.code if error.rcvd else None


async def asked_until_not_busy(client: httpx.AsyncClient, body: dict[str, str]) -> httpx.Response:
    """Ask again and again while a turn runs: the answer of a server that has begun to stop, or the turn's own."""
    while (answer := await client.post("/api/v1/sessions/query", json=body)).status_code == 409:
        pass
    return answer


async def test_a_sigterm_under_load_ends_all_in_order(database: str) -> None:
    """F10, D25: 50 streams, 10 sockets, a turn whose agent ignores every cancel."""
    async with (
        running(database, agent="tests.serving.agents:stubborn") as (process, url),
        httpx.AsyncClient(
            base_url=url, trust_env=False, timeout=PATIENCE, limits=httpx.Limits(max_connections=100)
        ) as client,
        AsyncExitStack() as stack,
    ):
        session_id = await new_session(client)
        body = {"sessionId": session_id, "query": "x"}
        query = asyncio.create_task(client.post("/api/v1/sessions/query", json=body))
        streams = [
            Stream(
                await stack.enter_async_context(
                    client.stream("GET", "/api/v1/sessions/events/stream", params={"sessionId": session_id})
                )
            )
            for _ in range(50)
        ]
        for stream in streams:
            await stream.upto("assistant_message_delta")
        sockets = [
            await stack.enter_async_context(
                connect(f"{url.replace('http', 'ws', 1)}/ws", proxy=None, open_timeout=PATIENCE)
            )
            for _ in range(10)
        ]
        for each in sockets:
            await each.send(f'{{"type":"join_session","sessionId":"{session_id}"}}')
            await soon(each.recv())

        asking = asyncio.create_task(asked_until_not_busy(client, body))
        since = time.monotonic()
        process.send_signal(signal.SIGTERM)
        ends = await asyncio.gather(*(read_to_the_end(stream) for stream in streams))
        codes = await asyncio.gather(*(close_code(each) for each in sockets))
        late = await soon(asking)
        answer = await soon(query)
        code = await gone(process, since)

    assert code == 0
    assert {frames[-1].data for frames in ends} == {None}, "the last frame is a bare id"
    assert {frames[-1].id for frames in ends} == {f"evt_{session_id.removeprefix('sess_')}_5"}
    assert set(codes) == {1012}
    assert (late.status_code, late.json()["code"]) == (503, "server_shutdown")
    assert int(late.headers["retry-after"]) > 0
    assert (answer.status_code, answer.json()["status"]) == (200, "aborted")
    async with open_stores(database) as stores:
        events = await stores.all(session_id)
    assert [event.type for event in events[-3:]] == ["assistant_message", "error", "agent_run_end"]
    assert decode(events[-3].data)["content"] == "never mind"
    assert decode(events[-2].data)["code"] == "server_shutdown"
    assert decode(events[-1].data)["status"] == "aborted"


async def test_an_idle_server_stops_at_once(database: str) -> None:
    async with (
        running(database) as (process, url),
        httpx.AsyncClient(trust_env=False, timeout=PATIENCE) as client,
    ):
        assert (await client.get(f"{url}/readyz")).status_code == 200
        since = time.monotonic()
        process.send_signal(signal.SIGINT)
        assert await gone(process, since) == 0


async def test_a_second_signal_ends_it_at_once(database: str) -> None:
    async with (
        running(database, agent="tests.serving.agents:patient", drain_grace=30) as (process, url),
        httpx.AsyncClient(base_url=url, trust_env=False, timeout=PATIENCE) as client,
    ):
        session_id = await new_session(client)
        async with client.stream(
            "POST",
            "/api/v1/sessions/query/stream",
            json={"sessionId": session_id, "query": "x"},
            headers=HEADERS,
        ) as response:
            stream = Stream(response)
            await stream.upto("assistant_message_delta")
            process.send_signal(signal.SIGTERM)
            while (await client.get("/readyz")).status_code == 200:
                pass
            since = time.monotonic()
            process.send_signal(signal.SIGTERM)
            assert await gone(process, since) == 128 + signal.SIGTERM
            with pytest.raises(httpx.RemoteProtocolError):
                await stream.rest()


async def test_an_agent_that_blocks_the_loop_does_not_keep_the_process(database: str) -> None:
    async with (
        running(database, agent="tests.serving.agents:blocking") as (process, url),
        httpx.AsyncClient(base_url=url, trust_env=False, timeout=PATIENCE) as client,
    ):
        session_id = await new_session(client)
        async with client.stream(
            "POST", "/api/v1/sessions/query/stream", json={"sessionId": session_id, "query": "x"}
        ) as response:
            await Stream(response).upto("assistant_message_delta")
            assert process.stdout is not None
            while (line := await soon(process.stdout.readline())) != BLOCKED:
                assert line, "the server has ended"
            since = time.monotonic()
            process.send_signal(signal.SIGTERM)
            assert await gone(process, since) != 0


async def test_a_port_in_use_is_told_in_a_line(database: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, said = await refused(database, port=port)

    assert code == 1
    assert f"Can't listen on 127.0.0.1:{port}" in said
    assert "TARKO_PORT" in said
    assert "Traceback" not in said


async def test_settings_that_cannot_work_are_told_in_a_line(database: str) -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"agent": "nowhere"}, "'nowhere' is neither `demo` nor `openai`"),
        ({"agent": "tests.serving.agents:stubbron"}, "did you mean 'stubborn'?"),
        ({"host": "0.0.0.0"}, "0.0.0.0"),  # noqa: S104 - refused
        ({"tokens": "alice"}, "Entry 1 of TARKO_TOKENS"),
        ({"database_url": "postgresql://127.0.0.1:1/none"}, "The database is away"),
        ({"database_url": "sqlite:///x.db"}, "TARKO_DATABASE_URL can't be read"),
        (
            {"database_url": re.sub(r"/test_\d+\?", "/nowhere?", database)},
            'database "nowhere" does not exist',
        ),
    ]
    endings = await asyncio.gather(*(refused(database, **settings) for settings, _ in cases))
    for (settings, words), (code, said) in zip(cases, endings, strict=True):
        assert code == 1, settings
        assert "Can't serve:" in said
        assert words in said
        assert "Traceback" not in said


async def test_an_ipv6_address_is_listened_on(database: str) -> None:
    """In this process, for it needs no more than the listener and the announcement."""
    from app.terminal import listen

    with listen("::1", 0) as listener:
        assert listener.family == socket.AF_INET6
