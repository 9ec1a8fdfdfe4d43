"""Two replicas behind Debian's nginx with the example's configuration: streams stream, sockets work, replicas may die."""

import asyncio
import contextlib
import os
import re
import shutil
import signal
import socket
import tempfile
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.conftest import REQUIRE_ALL, Server, own_database
from tests.replicas.processes import ROOT, Remote, Replica, two_replicas
from tests.server import Client, Json, Socket, places, soon, until

NGINX = Path("/usr/sbin/nginx")
EXAMPLE = ROOT / "examples" / "replicas" / "nginx.conf"
LARGEST = 20 * 2**20


@dataclass(frozen=True)
class Site:
    """The replicas, and a client that knows nginx's address only."""

    replicas: tuple[Replica, Replica]
    client: Client


@pytest.fixture(scope="module")
def nginx_home() -> Iterator[Path]:
    if not NGINX.exists():
        if os.environ.get(REQUIRE_ALL) == "1":
            pytest.fail(f"{REQUIRE_ALL}=1, but nginx is not in {NGINX}")
        pytest.skip(f"NOT TESTED behind nginx: it is not in {NGINX}")
    made = Path(tempfile.mkdtemp(prefix="nginx-"))
    made.chmod(0o711)
    yield made
    shutil.rmtree(made, ignore_errors=True)


def configuration(home: Path, port: int, replicas: tuple[Replica, Replica], without: str) -> str:
    """The example with this machine's addresses, and with files that need no rights."""
    text = EXAMPLE.read_text()
    assert without in text
    text = text.replace(without, "") if without else text
    for name, each in zip(("replica-one", "replica-two"), replicas, strict=True):
        text, count = re.subn(rf"server {name}:8888;", f"server {each.url.removeprefix('http://')};", text)
        assert count == 1
    text, count = re.subn(r"listen 8080;", f"listen 127.0.0.1:{port};", text)
    assert count == 1
    places_to_write = "\n".join(
        f"  {kind}_temp_path {home}/{kind};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    text, count = re.subn(r"http \{\n", f"http {{\n  access_log off;\n{places_to_write}\n", text)
    assert count == 1
    return f"daemon off;\npid {home}/pid;\nerror_log {home}/log;\n{text}"


@asynccontextmanager
async def behind_nginx(
    parent: Path, replicas: tuple[Replica, Replica], *, without: str = ""
) -> AsyncIterator[Client]:
    """A client of an nginx before these replicas, which runs as an ordinary user.

    It inherits its listening socket, as in an upgrade of nginx: of a port that is looked for, then closed, somebody
    else may be quicker to make use.
    """
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port, fd = int(listener.getsockname()[1]), listener.fileno()
        home = parent / str(port)
        home.mkdir()
        home.chmod(0o777)
        (home / "conf").write_text(configuration(home, port, replicas, without))
        process = await asyncio.create_subprocess_exec(
            NGINX, "-c", home / "conf", "-p", home, "-e", home / "log",
            env={**os.environ, "NGINX": f"{fd};"}, pass_fds=(fd,),
            stderr=PIPE, user="nobody" if os.geteuid() == 0 else None,
        )  # fmt: skip
    try:
        await until(lambda: process.returncode is not None or (home / "pid").exists())
        assert process.returncode is None, (await process.communicate())[1].decode()
        async with AsyncExitStack() as stack:
            yield await Remote(f"http://127.0.0.1:{port}", stack).client()
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGTERM)
        await soon(process.communicate())


@pytest.fixture(scope="module")
async def site(embedded_server: Server, nginx_home: Path) -> AsyncIterator[Site]:
    async with (
        own_database(embedded_server) as url,
        two_replicas(url) as replicas,
        behind_nginx(nginx_home, replicas) as client,
    ):
        yield Site(replicas, client)


def let(directory: Path, number: int) -> None:
    """Let the agent say the next number."""
    (directory / str(number)).touch()


async def join(client: Client, session_id: str, stack: AsyncExitStack) -> Socket:
    connection = await stack.enter_async_context(client.socket())
    await connection.ask({"type": "join_session", "sessionId": session_id, "after": "0"}, "session_joined")
    return connection


async def test_each_event_is_received_before_the_next_is_made(site: Site, tmp_path: Path) -> None:
    """D01: on a query's stream, on a session's stream, and on a socket."""
    await assert_it_streams(site.client, tmp_path)


async def test_streams_are_not_buffered_by_an_nginx_that_buffers(
    site: Site, nginx_home: Path, tmp_path: Path
) -> None:
    """D01: a stock configuration, in which only the server's own header asks for that."""
    async with behind_nginx(nginx_home, site.replicas, without="proxy_buffering off;") as client:
        await assert_it_streams(client, tmp_path)


async def assert_it_streams(client: Client, directory: Path) -> None:
    session = await client.session()
    async with AsyncExitStack() as stack:
        reader = await stack.enter_async_context(client.stream(session))
        connection = await join(client, session, stack)
        query = await stack.enter_async_context(client.query_stream(session, f"steps {directory} 10"))
        for number in range(10):
            received = [
                (await each.upto("assistant_message_delta"))[-1]["data"]["delta"] for each in (query, reader)
            ]
            received.append((await connection.until("assistant_message_delta"))[-1]["data"]["delta"])
            assert received == [f"{number} "] * 3
            let(directory, number)
        ends = [(await each.upto("agent_run_end"))[-1] for each in (query, reader)]
        ends.append((await connection.until("agent_run_end"))[-1])
        assert ends[0]["data"]["status"] == "completed"
        assert ends == [ends[0]] * 3


async def test_a_socket_queries_aborts_and_hears_through_it(site: Site, tmp_path: Path) -> None:
    session = await site.client.session()
    async with AsyncExitStack() as stack:
        one = await join(site.client, session, stack)
        await one.say({"type": "send_query", "sessionId": session, "query": f"wait {tmp_path}"})
        await one.until("assistant_message_delta")
        # A second connection may go to the other replica.
        for _ in range(2):
            other = await join(site.client, session, stack)
        await other.say({"type": "abort_query", "sessionId": session})
        for each in (one, other):
            assert (await each.until("agent_run_end"))[-1]["data"]["status"] == "aborted"


async def test_the_largest_body_passes_and_a_larger_one_is_refused_in_the_servers_words(site: Site) -> None:
    session = await site.client.session()
    body = '{"sessionId": "%s", "type": "note", "data": "%s"}'
    filler = "x" * (LARGEST - len(body % (session, "")))
    answer = await site.client.post("/api/v1/sessions/events", body % (session, filler))
    assert answer.status_code == 201
    answer = await site.client.post("/api/v1/sessions/events", body % (session, filler + "x"))
    assert (answer.status_code, answer.json()["code"]) == (413, "too_large")


async def test_a_stream_and_a_socket_that_were_idle_for_longer_than_a_ping_go_on(
    embedded_database: str, nginx_home: Path, tmp_path: Path
) -> None:
    """The example has no timeout that pings do not outrun; here pings come every 0.2 s, and five are waited for."""
    async with (
        two_replicas(embedded_database, ping_interval=0.2) as replicas,
        behind_nginx(nginx_home, replicas) as client,
        AsyncExitStack() as stack,
    ):
        session = await client.session()
        reader = await stack.enter_async_context(client.stream(session, from_="now"))
        connection = await join(client, session, stack)
        pings = 0
        while pings < 5:
            frame = await reader.next()
            assert frame is not None
            pings += frame.comment is not None
        await connection.ask({"type": "ping"}, "pong")
        assert (await client.query(session, "good day")).json()["response"] == "good day "
        assert (await reader.upto("agent_run_end"))[-1]["data"]["status"] == "completed"
        assert (await connection.until("agent_run_end"))[-1]["data"]["status"] == "completed"

        await resumes_at_the_other(client, replicas, tmp_path)


async def resumes_at_the_other(client: Client, replicas: tuple[Replica, Replica], directory: Path) -> None:
    """A stream whose replica is killed is resumed by its last id at the other one, where the turn goes on."""
    session = await replicas[1].client.session()
    query = asyncio.create_task(replicas[1].client.query(session, f"steps {directory} 3"))
    seen: list[Json] = []
    async with client.stream(session) as stream:
        seen += await stream.upto("assistant_message_delta")
        let(directory, 0)
        seen += await stream.upto("assistant_message_delta")
        await replicas[0].kill()
        let(directory, 1)
        with contextlib.suppress(Exception):
            seen += [frame.json for frame in await stream.rest() if frame.data]
    let(directory, 2)
    async with client.stream(session, last=seen[-1]["id"]) as stream:
        seen += await stream.upto("agent_run_end")
    assert (await soon(query)).json()["response"] == "0 1 2 "
    assert places(seen) == list(range(1, len(seen) + 1))
    assert seen == await client.events(session)
