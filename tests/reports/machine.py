"""What the tests of the reports need of the machine: servers in processes of their own, nginx, root, memory."""

import asyncio
import ctypes
import gc
import os
import re
import shutil
import socket
import struct
import sys
import tempfile
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, NoReturn

import psutil
import pytest

from tests.conftest import REQUIRE_ALL
from tests.server import PATIENCE, soon

ROOT = Path(__file__).parents[2]
STARTS = 60.0
SERVE = "import sys; from app.serving import serve; from app.settings import Settings; sys.exit(serve(Settings()))"
ADDRESS = re.compile(rb"on (http://[0-9.]+:\d+)")
NGINX = "/usr/sbin/nginx"

# As Debian ships it: nothing is said of buffering, so nginx buffers; compression is on for its default types.
NGINX_CONF = """
daemon off;
user root;
worker_processes 1;
pid {home}/pid;
error_log {home}/error.log;
events {{ worker_connections 768; }}
http {{
  sendfile on;
  tcp_nopush on;
  gzip on;
  access_log off;
  client_body_temp_path {home}/body;
  proxy_temp_path {home}/proxy;
  fastcgi_temp_path {home}/fastcgi;
  uwsgi_temp_path {home}/uwsgi;
  scgi_temp_path {home}/scgi;
  server {{
    listen unix:{home}/socket;
    location / {{
      proxy_pass {upstream};
      {more}
    }}
  }}
}}
"""


def missing(what: str) -> NoReturn:
    """Skip, and say so; where everything is required, fail."""
    if os.environ.get(REQUIRE_ALL) == "1":
        pytest.fail(f"{REQUIRE_ALL}=1, but this machine has no {what}")
    pytest.skip(f"NOT TESTED: this machine has no {what}")


@asynccontextmanager
async def running(
    database: str | None = None,
    *,
    code: str = SERVE,
    environment: dict[str, str] | None = None,
    **settings: Any,
) -> AsyncIterator[tuple[Process, str]]:
    """A server process, once it serves, and its address; killed at the end if it is still there."""
    if database is not None:
        settings["database_url"] = database
    named = {f"TARKO_{name.upper()}": str(value) for name, value in settings.items()}
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        code,
        cwd=ROOT,
        env={**os.environ, "TARKO_PORT": "0", **named, **(environment or {})},
        stdout=PIPE,
        stderr=PIPE,
    )
    assert process.stdout is not None
    try:
        told = b""
        while not (found := ADDRESS.search(told)):
            async with asyncio.timeout(STARTS):
                line = await process.stdout.readline()
            assert line, await soon(process.communicate())
            told += line
        yield process, found[1].decode()
    finally:
        await ended(process)


async def ended(process: Process) -> None:
    """Kill the process if it is still there, and read its last words."""
    if process.returncode is None:
        process.kill()
    await soon(process.communicate())


@asynccontextmanager
async def nginx(upstream: str, *more: str) -> AsyncIterator[str]:
    """Debian's nginx in front of a server, with its defaults and these directives; the path of its socket."""
    if shutil.which(NGINX) is None:
        missing(f"nginx in {NGINX}")
    home = Path(tempfile.mkdtemp(prefix="nginx-", dir="/tmp"))  # a socket's path must be short
    config, listening = home / "nginx.conf", home / "socket"
    config.write_text(NGINX_CONF.format(home=home, upstream=upstream, more="\n      ".join(more)))
    process = await asyncio.create_subprocess_exec(
        NGINX, "-p", str(home), "-c", str(config), stdout=PIPE, stderr=PIPE
    )
    try:
        async with asyncio.timeout(PATIENCE):
            while not listening.exists():  # nginx says nothing when it listens
                assert process.returncode is None, (await process.communicate())[1]
                await asyncio.sleep(0.01)
        yield str(listening)
    finally:
        if process.returncode is None:
            process.terminate()
        await soon(process.communicate())
        shutil.rmtree(home, ignore_errors=True)


def rss() -> int:
    """The bytes of memory that this process holds."""
    return int(psutil.Process().memory_info().rss)


def needed() -> int:
    """The same, without what is only kept for later."""
    gc.collect()
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
    return rss()


def cut(raw: socket.socket) -> None:
    """Close so that the other side gets a reset, as from a client that crashed."""
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    raw.close()
