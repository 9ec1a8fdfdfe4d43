"""A network of the drill's own, in which a server can be cut off: namespaces joined by a router that forgets to forward.

    readers (this process)  ──  router  ──  server

Neither end sees its link go down, as when a cable is cut far away. Linux and root only. Bad weather is a slow link
(`tc tbf`), with delay and loss where the kernel has `netem`.
"""

import asyncio
import os
import random
import shutil
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from app.drill.stopping import seen_through

WEATHER = {
    "netem": ("netem", "delay", "100ms", "30ms", "loss", "3%"),
    "tbf": ("tbf", "rate", "1mbit", "burst", "16kb", "latency", "400ms"),
}
FORWARD = "/proc/sys/net/ipv4/ip_forward"


class NoNetwork(Exception):
    """No network can be made here; the message says why."""


class Network:
    """Three places, made and removed by `network()`. `prefix` runs a command beside the server's end."""

    def __init__(self, number: int) -> None:
        self._router = f"drill-r{number}"
        self._server = f"drill-s{number}"
        self._link = f"drl{number}"
        self._net = f"10.213.{number}"
        self.address = f"{self._net}.6"
        self.prefix = ("ip", "netns", "exec", self._server)

    async def make(self) -> None:
        """Raises `NoNetwork`."""
        for name in (self._router, self._server):
            await _ip("netns", "add", name)
        link, net = self._link, self._net
        await _ip(
            "link", "add", f"{link}a", "type", "veth", "peer", "name", f"{link}b", "netns", self._router
        )
        await _ip(
            "-n", self._router, "link", "add", f"{link}c", "type", "veth", "peer", f"{link}d", "netns", self._server
        )  # fmt: skip
        await _ip("addr", "add", f"{net}.1/30", "dev", f"{link}a")
        await _ip("link", "set", f"{link}a", "up")
        for where, device, address in (
            (self._router, f"{link}b", f"{net}.2/30"),
            (self._router, f"{link}c", f"{net}.5/30"),
            (self._server, f"{link}d", f"{net}.6/30"),
        ):
            await _ip("-n", where, "addr", "add", address, "dev", device)
            await _ip("-n", where, "link", "set", device, "up")
            await _ip("-n", where, "link", "set", "lo", "up")
        await _ip("route", "add", f"{net}.4/30", "via", f"{net}.2")
        await _ip("-n", self._server, "route", "add", "default", "via", f"{net}.5")
        await self._forward("1")

    async def remove(self) -> None:
        for words in (
            ("link", "del", f"{self._link}a"),
            ("netns", "del", self._server),
            ("netns", "del", self._router),
        ):
            await _run("ip", *words)

    @asynccontextmanager
    async def cut(self) -> AsyncIterator[None]:
        """Nothing passes, either way, in the block; nobody is told."""
        await self._forward("0")
        try:
            yield
        finally:
            await self._forward("1")

    @asynccontextmanager
    async def bad_weather(self) -> AsyncIterator[str]:
        """A bad link in the block; what it is like."""
        device = ("dev", f"{self._link}b", "root")
        inside = ("ip", "netns", "exec", self._router, "tc", "qdisc")
        name = "none"
        for name, words in WEATHER.items():  # noqa: B007 - the last one tried is told
            if await _run(*inside, "add", *device, *words) == 0:
                break
        try:
            yield name
        finally:
            await _run(*inside, "del", *device)

    async def _forward(self, value: str) -> None:
        await _ip("netns", "exec", self._router, "sh", "-c", f"echo {value} > {FORWARD}")


def why_not() -> str | None:
    """Why no network can be made here; None when it can."""
    if sys.platform != "linux":
        return "network namespaces need Linux"
    if os.geteuid() != 0:
        return "network namespaces need root"
    if shutil.which("ip") is None or not Path("/proc/self/ns/net").exists():
        return "there is no `ip` command (on Debian: apt install iproute2)"
    return None


@asynccontextmanager
async def network(chance: random.Random) -> AsyncIterator[Network]:
    """A network for the block. Raises `NoNetwork`."""
    made = Network(chance.randint(1, 250))
    try:
        await made.make()
        yield made
    finally:
        await seen_through(made.remove)


async def _ip(*words: str) -> None:
    if await _run("ip", *words) != 0:
        raise NoNetwork(f"`ip {' '.join(words)}` failed")


async def _run(*words: str) -> int:
    process = await asyncio.create_subprocess_exec(
        *words, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL
    )
    return await process.wait()
