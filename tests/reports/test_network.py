"""Reports of connections that die without a word, never read, or come and go by the hundred."""

import asyncio
import json
import os
import re
import shutil
import signal
import socket
import sys
import time
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
from websockets.asyncio.client import ClientConnection, connect, unix_connect
from websockets.exceptions import ConnectionClosed

from app import serving as app_serving
from app import terminal
from app.agents.contract import AgentEvent, Prompt, Scope
from app.settings import Settings
from tests.conftest import Server, own_database
from tests.reports.machine import cut, missing, needed, nginx, running
from tests.server import (
    COMPLETED,
    PATIENCE,
    Client,
    Json,
    Serving,
    Stream,
    elapsed,
    places,
    serving,
    soon,
    until,
)

MIB = 2**20
STATED_LIMIT = 60.0
IP = "/usr/sbin/ip"

# ── a client that vanishes ───────────────────────────────────────────────────────────────────────────────────────────

SOONER = """
import sys
from app import terminal
from app.serving import serve
from app.settings import Settings
terminal.VANISHED = {"TCP_KEEPIDLE": 1, "TCP_KEEPINTVL": 1, "TCP_KEEPCNT": 2, "TCP_USER_TIMEOUT": 2_000}
sys.exit(serve(Settings()))
"""

VANISHING = """
import socket, sys, threading
address, idle, busy = (sys.argv[1], int(sys.argv[2])), sys.argv[3], sys.argv[4]
connections = []
for way, session_id in (("sse", idle), ("sse", busy), ("ws", idle), ("ws", busy)):
    path = "/ws" if way == "ws" else f"/api/v1/sessions/events/stream?sessionId={session_id}"
    connection = socket.create_connection(address)
    head = f"GET {path} HTTP/1.1\\r\\nHost: {address[0]}\\r\\n"
    if path == "/ws":
        head += "Upgrade: websocket\\r\\nConnection: Upgrade\\r\\nSec-WebSocket-Version: 13\\r\\n"
        head += "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\\r\\n"
    connection.sendall(head.encode() + b"\\r\\n")
    assert b"HTTP/1.1 " in connection.recv(4096)
    if path == "/ws":
        join = f'{{"type":"join_session","sessionId":"{session_id}"}}'.encode()
        connection.sendall(b"\\x81" + bytes([128 | len(join)]) + bytes(4) + join)
        connection.recv(4096)
    connections.append(connection)
print("connected", flush=True)
threading.Event().wait()
"""


@asynccontextmanager
async def far_away() -> AsyncIterator[tuple[str, str]]:
    """A network namespace on a wire of its own: the namespace, and the address of this end."""
    if os.geteuid() != 0:
        missing("root, whom network namespaces need")
    if shutil.which(IP) is None:
        missing(f"{IP} (apt-get install iproute2)")
    mark = os.getpid() % 60_000
    name, wire = f"tarko{mark}", f"tk{mark}"
    net = f"10.213.{mark // 250}.{mark % 250}"
    here, there = f"{net.rpartition('.')[0]}.1", f"{net.rpartition('.')[0]}.2"
    await ip("netns", "add", name)
    try:
        await ip("link", "add", wire, "type", "veth", "peer", "name", "wire", "netns", name)
        await ip("addr", "add", f"{here}/30", "dev", wire)
        await ip("link", "set", wire, "up")
        await ip("-n", name, "addr", "add", f"{there}/30", "dev", "wire")
        await ip("-n", name, "link", "set", "wire", "up")
        yield name, here
    finally:
        with suppress(AssertionError):
            await ip("link", "del", wire)
        await ip("netns", "del", name)


async def ip(*words: str) -> None:
    process = await asyncio.create_subprocess_exec(IP, *words, stderr=PIPE)
    _, errors = await soon(process.communicate())
    assert process.returncode == 0, errors.decode()


async def readers(http: httpx.AsyncClient) -> int:
    """How many streams and joined sessions the server has."""
    figures = (await http.get("/metrics")).text
    found = re.search(r"^tarko_readers ([0-9.]+)$", figures, re.MULTILINE)
    assert found is not None
    return int(float(found[1]))


async def test_d02_a_client_whose_network_is_gone_is_let_go(embedded_database: str) -> None:
    """sysid/sse-starlette#173: a client lost its network without a FIN, and the server streamed on for ever.

    In a network namespace, with shorter times than the real ones: streams and sockets, some idle, some with events to send.
    """
    async with (
        far_away() as (namespace, here),
        running(embedded_database, code=SOONER, host=here, insecure=True) as (process, url),
        httpx.AsyncClient(base_url=url, timeout=PATIENCE) as http,
    ):
        idle, busy = [(await http.post("/api/v1/sessions/create")).json()["sessionId"] for _ in range(2)]
        client = await asyncio.create_subprocess_exec(
            *(IP, "netns", "exec", namespace, sys.executable, "-c", VANISHING),
            *(here, url.rpartition(":")[2], idle, busy),
            stdout=PIPE,
        )
        assert client.stdout is not None
        try:
            assert await soon(client.stdout.readline()) == b"connected\n"
            async with asyncio.timeout(PATIENCE):
                while await readers(http) != 4:
                    pass
            await ip("-n", namespace, "link", "set", "wire", "down")
            event = {"sessionId": busy, "type": "note", "data": "is anybody there?"}
            assert (await http.post("/api/v1/sessions/events", json=event)).status_code == 201
            async with asyncio.timeout(PATIENCE):
                while await readers(http):  # noqa: ASYNC110 - a figure that must be asked for
                    await asyncio.sleep(0.1)
        finally:
            client.kill()
            await soon(client.communicate())
        process.terminate()
        assert await soon(process.wait()) == 0


async def test_d02_the_real_times_keep_the_stated_limit() -> None:
    """sysid/sse-starlette#173: a vanished client is freed within a minute, idle or not, stream or socket."""
    times = terminal.VANISHED
    silence = times["TCP_KEEPIDLE"] + times["TCP_KEEPINTVL"] * times["TCP_KEEPCNT"]
    unanswered = times["TCP_USER_TIMEOUT"] / 1000
    assert max(silence, unanswered) <= STATED_LIMIT
    assert Settings().ping_interval + unanswered <= STATED_LIMIT, "a stream's ping, then no answer to it"
    assert app_serving.PING_EVERY + app_serving.PONG_WITHIN <= STATED_LIMIT, "a socket's ping, then no pong"
    assert Settings().send_timeout <= STATED_LIMIT
    with terminal.listen("127.0.0.1", 0) as listener, socket.create_connection(listener.getsockname()):
        connection, _ = listener.accept()
        with connection:
            assert connection.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
            for name, value in times.items():
                assert connection.getsockopt(socket.IPPROTO_TCP, getattr(socket, name)) == value, name


# ── clients that crash by the hundred ────────────────────────────────────────────────────────────────────────────────


def held(server: Serving) -> tuple[int, int, int]:
    """What connections may leave behind: tasks, file descriptors (the pool opens its own as it needs them), readers."""
    pool = server.parts.pool._pool
    assert pool is not None
    own = pool.get_size()
    return len(asyncio.all_tasks()), psutil.Process().num_fds() - own, len(server.parts.parts.readers)


HANDSHAKE = (
    "GET /ws HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)


def masked(message: Json) -> bytes:
    text = json.dumps(message).encode()
    return b"\x81" + bytes([128 | len(text)]) + bytes(4) + text


async def test_d22_connections_that_are_reset_leave_nothing_behind(shared: Serving, client: Client) -> None:
    """anomalyco/opencode#15645: listeners and timers of crashed clients piled up to 60 GB."""
    rounds, at_once = 10, 30
    session_id = await client.session()
    loop = asyncio.get_running_loop()
    port = int(shared.url.rpartition(":")[2])
    get = "GET {} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    post = "POST {} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{}"
    body = json.dumps({"sessionId": session_id, "query": "x", "onBusy": "reject"})
    requests = [
        (get.format(f"/api/v1/sessions/events/stream?sessionId={session_id}").encode(), True),
        (HANDSHAKE.encode() + masked({"type": "join_session", "sessionId": session_id}), True),
        (get.format(f"/api/v1/sessions/events/stream?sessionId={session_id}").encode(), False),
        (post.format("/api/v1/sessions/query/stream", len(body), body).encode(), False),
        (HANDSHAKE[:40].encode(), False),
    ]

    async def connect_and_crash(request: bytes, waits: bool) -> None:
        raw = socket.socket()
        raw.settimeout(0)
        await loop.sock_connect(raw, ("127.0.0.1", port))
        await loop.sock_sendall(raw, request)
        if waits:
            await loop.sock_recv(raw, 1024)
        cut(raw)

    async def crash_all() -> None:
        work = [connect_and_crash(*requests[number % len(requests)]) for number in range(at_once)]
        await soon(asyncio.gather(*work))

    await crash_all()
    await until(lambda: held(shared)[2] == 0 and shared.parts.parts.supervisor.running == 0)
    await soon(client.get("/healthz"))
    before = held(shared)
    for _ in range(rounds):
        await crash_all()

    def is_as_before() -> bool:
        return all(now <= then for now, then in zip(held(shared), before, strict=True))

    with suppress(TimeoutError):
        await until(is_as_before)
    assert is_as_before(), (held(shared), before)
    await until(lambda: list(shared.parts.parts.logs) == [])  # a turn that was begun ends by itself
    assert (await client.query(session_id)).status_code == 200


# ── a client that never reads ────────────────────────────────────────────────────────────────────────────────────────

CHUNK, CHUNKS = 250_000, 200


async def fifty_megabytes(_: Scope, __: Prompt) -> AsyncIterator[AgentEvent]:
    for number in range(CHUNKS):
        yield {"type": "chunk", "number": number, "bytes": "x" * CHUNK}
        await asyncio.sleep(0.002)
    yield COMPLETED


async def test_d23_a_socket_that_never_reads_costs_no_memory_and_is_closed(embedded_server: Server) -> None:
    """aio-libs/aiohttp#1367: for a client that never reads the server queued without bound."""
    async with own_database(embedded_server) as url, serving(url, send_timeout=PATIENCE) as server:
        client = await server.client()
        session_id = await client.session(fifty_megabytes)
        registry = server.parts.parts.readers

        async def turn() -> int:
            """Run the turn, which nobody but the quiet one reads; the memory that is needed afterwards."""
            async with client.query_stream(session_id):
                pass  # it goes on by itself
            await until(lambda: server.parts.parts.supervisor.running == 0)
            return needed()

        without = await turn()
        async with quiet(server, session_id):
            with_one = await turn()
            assert len(registry) == 1
        assert with_one - without < 24 * MIB

        object.__setattr__(server.parts.parts, "send_timeout", 0.5)
        async with quiet(server, session_id) as nobody:
            await turn()
            await until(lambda: len(registry) == 0)
            code, events = await nobody.read_to_the_end()
        assert code == 1013
        assert 0 < len(events) < CHUNKS
        assert places(events[1:]) == list(range(place_of(events[1]), place_of(events[1]) + len(events) - 1))
        async with client.stream(session_id, last=events[-1]["id"]) as stream:
            assert place_of((await stream.event()).json) == place_of(events[-1]) + 1
        del events, stream
        await until(lambda: list(server.parts.parts.logs) == [])
        assert needed() - without < 8 * MIB, "something of it is left"


def place_of(event: Json) -> int:
    return places([event])[0]


class Quiet:
    """A client on `/ws` with a small window that reads nothing until it is told to."""

    def __init__(self, url: str) -> None:
        self.raw = socket.socket()
        self.raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self.raw.connect(("127.0.0.1", int(url.rpartition(":")[2])))
        self.raw.settimeout(0)

    async def shake_hands(self) -> None:
        loop = asyncio.get_running_loop()
        await soon(loop.sock_sendall(self.raw, HANDSHAKE.encode()))
        answer = b""
        while not answer.endswith(b"\r\n\r\n"):
            answer += await soon(loop.sock_recv(self.raw, 1))

    async def say(self, message: Json) -> None:
        await soon(asyncio.get_running_loop().sock_sendall(self.raw, masked(message)))

    async def read_to_the_end(self) -> tuple[int, list[Json]]:
        """The code that the socket was closed with, and the messages before."""
        self.raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, MIB)
        received = bytearray()
        async with asyncio.timeout(PATIENCE):
            while received[-4:-2] != b"\x88\x02":
                received += await asyncio.get_running_loop().sock_recv(self.raw, MIB)
        messages, at = [], 0
        while received[at] == 0x81:
            size, head = received[at + 1], 2
            if size > 125:
                head = 4 if size == 126 else 10
                size = int.from_bytes(received[at + 2 : at + head])
            messages.append(json.loads(received[at + head : at + head + size]))
            at += head + size
        assert received[at : at + 2] == b"\x88\x02"
        return int.from_bytes(received[at + 2 : at + 4]), messages


@asynccontextmanager
async def quiet(server: Serving, session_id: str) -> AsyncIterator[Quiet]:
    """The only reader of a session from now on, and it reads nothing."""
    registry = server.parts.parts.readers
    await until(lambda: len(registry) == 0)
    nobody = Quiet(server.url)
    try:
        await nobody.shake_hands()
        await nobody.say({"type": "join_session", "sessionId": session_id, "from": "now"})
        await until(lambda: len(registry) == 1)
        yield nobody
    finally:
        nobody.raw.close()


# ── a server that stops ──────────────────────────────────────────────────────────────────────────────────────────────


async def close_code(connection: ClientConnection) -> int | None:
    try:
        while True:
            await soon(connection.recv())
    except ConnectionClosed as error:
        return error.rcvd.code if error.rcvd else None


async def test_d25_a_server_with_open_streams_stops_within_its_grace(embedded_database: str) -> None:
    """polarsource/polar#3100, sysid/sse-starlette#124: with a stream open, SIGTERM or a reload hung for ever."""
    grace, streams, sockets = 2.0, 100, 20
    limits = httpx.Limits(max_connections=streams + 10)
    settings: Json = {"agent": "tests.reports.agents:patient", "drain_grace": grace}
    async with (
        running(embedded_database, **settings) as (process, url),
        httpx.AsyncClient(base_url=url, timeout=PATIENCE, limits=limits) as http,
        AsyncExitStack() as stack,
    ):
        session_id = (await http.post("/api/v1/sessions/create")).json()["sessionId"]
        path, params = "/api/v1/sessions/events/stream", {"sessionId": session_id}
        body = {"sessionId": session_id, "query": "wait"}
        query = asyncio.create_task(http.post("/api/v1/sessions/query", json=body))
        opened = [
            Stream(await stack.enter_async_context(http.stream("GET", path, params=params)))
            for _ in range(streams)
        ]
        joined = []
        for _ in range(sockets):
            each = await stack.enter_async_context(
                connect(f"{url.replace('http', 'ws')}/ws", proxy=None, open_timeout=PATIENCE)
            )
            await each.send(json.dumps({"type": "join_session", "sessionId": session_id}))
            joined.append(each)
        for stream in opened:
            await stream.upto("assistant_message_delta")

        process.send_signal(signal.SIGTERM)
        ends = await asyncio.gather(*(stream.rest() for stream in opened))
        codes = await asyncio.gather(*(close_code(each) for each in joined))
        code = await soon(process.wait())
        answer = (await query).json()

    assert code == 0, "it took longer than its grace, or else went wrong"
    assert {frames[-1].id is not None and frames[-1].data is None for frames in ends} == {True}
    assert set(codes) == {1012}
    assert answer["status"] == "aborted"
    assert answer["response"] == "hello"


# ── a path that holds packets back ───────────────────────────────────────────────────────────────────────────────────

SCALE = 25
# Not to scale: a machine that has much else to do adds seconds to each delay.
PONG_WITHIN = 5.0
NGINX_CUTS_AFTER = 6.0
TIMES = f"""
import sys
from app import serving
from app.settings import Settings
serving.PING_EVERY /= {SCALE}
serving.PONG_WITHIN = {PONG_WITHIN}
sys.exit(serving.serve(Settings()))
"""
DELAY_THERE, DELAY_BACK = 10.0, 15.0


@asynccontextmanager
async def slow_path(upstream: str, home: Path) -> AsyncIterator[tuple[str, "asyncio.Event"]]:
    """A path to a unix socket that holds back each way what it carries; and whether it lets anything come back."""
    swallows = asyncio.Event()
    tasks: set[asyncio.Task[None]] = set()

    async def carry(source: asyncio.StreamReader, sink: asyncio.StreamWriter, delay: float) -> None:
        with suppress(ConnectionError):
            while data := await source.read(2**16):
                await asyncio.sleep(delay / SCALE)
                if delay == DELAY_THERE or not swallows.is_set():
                    sink.write(data)
                    await sink.drain()
        sink.close()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_unix_connection(upstream)
        tasks.add(asyncio.create_task(carry(reader, far_writer, DELAY_BACK)))
        tasks.add(asyncio.create_task(carry(far_reader, writer, DELAY_THERE)))

    path = str(home / "slow")
    async with await asyncio.start_unix_server(accept, path):
        yield path, swallows
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def test_d27_a_socket_survives_a_proxy_that_holds_its_pings_back(
    embedded_database: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """lbedner/aegis-stack#516: behind a proxy that delayed pings the socket died with 1011.

    Much shorter than the real times, in which a ping takes 10 s, its pong 15 s, and nginx cuts what is silent for 60 s.
    """
    settings = ("proxy_http_version 1.1;", "proxy_set_header Upgrade $http_upgrade;")
    more = (*settings, 'proxy_set_header Connection "upgrade";', f"proxy_read_timeout {NGINX_CUTS_AFTER:g}s;")
    home = tmp_path_factory.mktemp("d27")
    async with (
        running(embedded_database, code=TIMES) as (process, url),
        nginx(url, *more) as upstream,
        slow_path(upstream, home) as (path, swallows),
    ):
        client: Any = unix_connect(path, uri="ws://proxied/ws", ping_interval=None, open_timeout=PATIENCE)
        async with client as connection:
            silent_since = time.monotonic()
            with suppress(TimeoutError):
                async with asyncio.timeout(1.2 * NGINX_CUTS_AFTER):
                    raise AssertionError(await connection.recv())
            assert elapsed(silent_since) > NGINX_CUTS_AFTER
            await connection.send('{"type":"ping"}')
            assert json.loads(await soon(connection.recv()))["type"] == "pong"

            swallows.set()
            assert await close_code(connection) == 1011, "one that never answers is not kept"
        process.terminate()
        assert await soon(process.wait()) == 0


def test_d27_the_real_times_bear_fifteen_seconds_each_way() -> None:
    """lbedner/aegis-stack#516: a pong has twice the delay, and a little, before the socket is given up."""
    assert app_serving.PONG_WITHIN > 2 * 15
    assert app_serving.PING_EVERY < 60, "the least that proxies bear in silence"
