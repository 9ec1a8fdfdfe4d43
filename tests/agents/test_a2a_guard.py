"""The guard of addresses that strangers name."""

from collections.abc import Sequence
from contextlib import suppress
from ipaddress import ip_address
from typing import Any

import httpx
import pytest

from app.agents.adapters.a2a.failures import StrangeAddress
from app.agents.adapters.a2a.guard import PublicOnly, is_public, looked_up


@pytest.mark.parametrize(
    "address", ["93.184.216.34", "2606:4700::1111", "::ffff:93.184.216.34", "64:ff9b::5db8:d822"]
)
def test_a_public_address(address: str) -> None:
    assert is_public(ip_address(address))


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "10.1.2.3",
        "172.16.0.1",
        "192.168.1.1",
        "169.254.169.254",
        "100.64.0.1",
        "0.0.0.0",  # noqa: S104
        "224.0.0.1",
        "255.255.255.255",
        "::1",
        "::",
        "fd00::1",
        "fe80::1",
        "ff02::1",
        "::ffff:127.0.0.1",
        "::ffff:169.254.169.254",
        "64:ff9b::7f00:1",
        "2002:7f00:1::",
        "2001:0:4136:e378:8000:63bf:3fff:fdd2",
    ],
)
def test_an_address_that_is_not_everybodys(address: str) -> None:
    assert not is_public(ip_address(address))


class Recorder(httpx.AsyncBaseTransport):
    """Keeps what it is sent; requests to `dead` hosts fail with `error`."""

    def __init__(self, *dead: str, error: type[httpx.TransportError] = httpx.ConnectError) -> None:
        self.requests: list[httpx.Request] = []
        self.is_closed = False
        self._dead = dead
        self._error = error

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        if request.url.host in self._dead:
            raise self._error("dead")
        return httpx.Response(200, text="hi")

    async def aclose(self) -> None:
        self.is_closed = True


def client(recorder: Recorder, *addresses: str) -> httpx.AsyncClient:
    async def resolve(host: str, port: int) -> Sequence[str]:
        assert (host, port) == ("agent.example", 443)
        if not addresses:
            raise OSError("no such name")
        return addresses

    return httpx.AsyncClient(transport=PublicOnly(recorder, resolve))


async def test_the_connection_goes_to_the_address_that_was_looked_at() -> None:
    recorder = Recorder("2606:4700::1111")
    async with client(recorder, "2606:4700::1111", "93.184.216.34", "93.184.216.34") as http:
        assert (await http.post("https://agent.example/x?y=1", content=b"hello")).text == "hi"
    assert [request.url.host for request in recorder.requests] == ["2606:4700::1111", "93.184.216.34"]
    last = recorder.requests[-1]
    assert str(last.url) == "https://93.184.216.34/x?y=1"
    assert last.headers["host"] == "agent.example"
    assert last.extensions["sni_hostname"] == "agent.example"
    assert recorder.is_closed


async def test_another_address_is_tried_where_none_was_reached_and_only_there() -> None:
    for error, tried in ((httpx.ConnectTimeout, 2), (httpx.ReadError, 1)):
        recorder = Recorder("2606:4700::1111", error=error)
        async with client(recorder, "2606:4700::1111", "93.184.216.34") as http:
            with suppress(httpx.ReadError):
                await http.post("https://agent.example/", content=b"once")
        assert len(recorder.requests) == tried, "what may have been taken is not sent again"


@pytest.mark.parametrize(
    ("url", "port"), [("http://a.example/", 80), ("https://a.example/", 443), ("http://a.example:81/", 81)]
)
async def test_a_name_is_looked_up_for_the_port_that_is_asked(url: str, port: int) -> None:
    asked: list[tuple[str, int]] = []

    async def resolve(*name: Any) -> Sequence[str]:
        asked.append(name)
        return []

    async with httpx.AsyncClient(transport=PublicOnly(Recorder(), resolve)) as http:
        with pytest.raises(StrangeAddress):
            await http.get(url)
    assert asked == [("a.example", port)], "and without any address nobody is asked"


@pytest.mark.parametrize(
    "addresses", [["93.184.216.34", "10.0.0.1"], ["127.0.0.1"], ["fe80::1%eth0"], ["::ffff:10.0.0.1"]]
)
async def test_one_address_that_is_not_public_is_one_too_many(addresses: list[str]) -> None:
    recorder = Recorder()
    async with client(recorder, *addresses) as http:
        with pytest.raises(StrangeAddress, match=r"agent\.example, which is no public address"):
            await http.get("https://agent.example/")
    assert recorder.requests == []


async def test_a_name_without_an_address_is_nobody() -> None:
    async with client(Recorder()) as http:
        with pytest.raises(httpx.ConnectError):
            await http.get("https://agent.example/")


async def test_names_are_looked_up_by_the_system() -> None:
    assert set(await looked_up("localhost", 80)) <= {"127.0.0.1", "::1"}
