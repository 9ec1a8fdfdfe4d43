"""Keeps requests whose address comes from a stranger (a card) away from everything that is not public.

A name is looked up here, all of its addresses must be public, and the connection goes to one of those that were looked
at: a name that means something else a moment later gains nothing. No proxy is used, as it would look up names itself.
Redirects are followed nowhere, so a request leads only where it says.
"""

import asyncio
import socket
from collections.abc import Awaitable, Callable, Sequence
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from typing import TypeAlias

import httpx

from app.agents.adapters.a2a.failures import StrangeAddress

Address: TypeAlias = IPv4Address | IPv6Address
Resolve: TypeAlias = Callable[[str, int], Awaitable[Sequence[str]]]

_NAT64 = IPv6Network("64:ff9b::/96")
_PORTS = {"http": 80, "https": 443}


def is_public(address: Address) -> bool:
    """Whether an address, and the IPv4 address that it may carry, is everybody's."""
    if isinstance(address, IPv6Address):
        inner = address.ipv4_mapped or address.sixtofour
        if address in _NAT64:
            inner = IPv4Address(int(address) & 0xFFFFFFFF)
        if inner is not None:
            return is_public(inner)
    return address.is_global and not address.is_multicast


async def looked_up(host: str, port: int) -> Sequence[str]:
    """The addresses that a name has, by the system's resolver. Raises OSError."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [str(entry[4][0]) for entry in found]


class PublicOnly(httpx.AsyncBaseTransport):
    """Sends to public addresses only, and raises StrangeAddress for any other."""

    def __init__(
        self,
        inner: httpx.AsyncBaseTransport,
        resolve: Resolve = looked_up,
        allows: Callable[[Address], bool] = is_public,
    ) -> None:
        self._inner = inner
        self._resolve = resolve
        self._allows = allows

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        url = request.url
        addresses = await self._checked(url)
        for address in addresses[:-1]:
            try:
                return await self._inner.handle_async_request(_sent_to(address, request))
            except (httpx.ConnectError, httpx.ConnectTimeout):
                continue
        return await self._inner.handle_async_request(_sent_to(addresses[-1], request))

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def _checked(self, url: httpx.URL) -> list[str]:
        try:
            found = await self._resolve(url.host, url.port or _PORTS[url.scheme])
        except OSError as error:
            raise httpx.ConnectError(f"{url.host} has no address.") from error
        addresses = list(dict.fromkeys(found))
        if not addresses or not all(self._allows(ip_address(each)) for each in addresses):
            raise StrangeAddress(
                f"The agent's card names {url.host}, which is no public address. "
                "If the agent may be reached there, give its own address instead of its card's."
            )
        return addresses


def _sent_to(address: str, request: httpx.Request) -> httpx.Request:
    """The request, to that address; its name stays in the `Host` header and in TLS."""
    return httpx.Request(
        request.method,
        request.url.copy_with(host=address),
        headers=request.headers,
        stream=request.stream,
        extensions={**request.extensions, "sni_hostname": request.url.host},
    )
