"""From an address that the operator wrote to an endpoint: where cards are looked for, and what of a card counts. No I/O.

The address is a card's, or an agent's: then its card lies under it, else at its host's root. A card at the root speaks
for the address only if it names it. What a card names at another host is a stranger's word (see `guard`): it gets no
credentials. Loopback names are one host, as is the address no one can be reached at, which cards often name.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import httpx

from app.agents.adapters.a2a.failures import NotA2A, WrongVersion

Version: TypeAlias = Literal["1.0", "0.3"]

_PLACES = ("/.well-known/agent-card.json", "/.well-known/agent.json")
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1", "0.0.0.0", "::"})  # noqa: S104 - no address to listen on
_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where an agent is talked to, and how. `version` is None if nobody said it, and is then found out by asking.

    `is_strange`: another host than the operator's; a card named it.
    """

    url: str
    version: Version | None
    streams: bool
    is_strange: bool = False


def card_urls(address: str) -> list[str]:
    """Where to look for the card, the likeliest first."""
    url = httpx.URL(address)
    if url.path.endswith(".json"):
        return [address]
    under = url.path.rstrip("/")
    paths = [base + place for base in dict.fromkeys((under, "")) for place in _PLACES]
    return [str(url.copy_with(path=path, query=None)) for path in paths]


def without_card(address: str) -> Endpoint:
    """What is assumed of an agent that shows no card: an endpoint that knows the oldest way of asking.

    Raises NotA2A if the address is a card's.
    """
    if httpx.URL(address).path.endswith(".json"):
        raise NotA2A(f"There is no agent card at {address}.")
    return Endpoint(address, version=None, streams=False)


def is_card(found: Any) -> bool:
    """Whether a document can be an agent card, of either version."""
    return isinstance(found, dict) and (
        isinstance(found.get("supportedInterfaces"), list) or isinstance(found.get("name"), str)
    )


def speaks_for(card: Mapping[str, Any], card_url: str, address: str) -> bool:
    """Whether the card is about the agent at the address, and not about a neighbour."""
    asked, lies = httpx.URL(address), httpx.URL(card_url)
    own = asked.path.rstrip("/")
    if asked == lies or lies.path in [own + place for place in _PLACES]:
        return True
    return any(_path(url) == own for url, _ in _interfaces(card) if url is not None)


def endpoint_of(card: Mapping[str, Any], address: str, version: Version | None = None) -> Endpoint:
    """The endpoint to use: JSON-RPC in the newest version that both sides know, or in the one that is asked for.

    A card without an address means the operator's. Raises NotA2A, WrongVersion.
    """
    capabilities = card.get("capabilities")
    capabilities = capabilities if isinstance(capabilities, dict) else {}
    _refuse_required(capabilities)
    found = list(_interfaces(card))
    if not found:
        raise NotA2A("The agent's card lists no JSON-RPC interface.")
    spoken = {known: url for url, told in reversed(found) if (known := _known(told)) is not None}
    for wanted in (version,) if version is not None else ("1.0", "0.3"):
        if wanted in spoken:
            url, is_strange = _resolved(spoken[wanted], address)
            return Endpoint(url, wanted, capabilities.get("streaming") is True, is_strange)
    told = ", ".join(sorted({str(each) for _, each in found}))
    raise WrongVersion(f"The agent speaks A2A {told}, not {version or '1.0 or 0.3'}.")


def _interfaces(card: Mapping[str, Any]) -> Iterator[tuple[str | None, str]]:
    """The address and the version of each JSON-RPC interface. No address is the operator's."""
    listed = card.get("supportedInterfaces")
    for each in listed if isinstance(listed, list) else ():
        if isinstance(each, dict) and each.get("protocolBinding") == "JSONRPC":
            yield _text(each.get("url")), _text(each.get("protocolVersion")) or "1.0"
    old = _text(card.get("protocolVersion")) or "0.3"
    if listed is None or "url" in card:
        if card.get("preferredTransport", "JSONRPC") == "JSONRPC":
            yield _text(card.get("url")), old
        others = card.get("additionalInterfaces")
        for each in others if isinstance(others, list) else ():
            if isinstance(each, dict) and each.get("transport") == "JSONRPC":
                yield _text(each.get("url")), old


def _refuse_required(capabilities: Mapping[str, Any]) -> None:
    extensions = capabilities.get("extensions")
    for each in extensions if isinstance(extensions, list) else ():
        if isinstance(each, dict) and each.get("required") is True:
            raise NotA2A(
                f"The agent requires an extension that is not spoken here: {each.get('uri')}.",
                code="remote_extension_required",
            )


def _known(told: str) -> Version | None:
    if told.partition(".")[0] == "1":
        return "1.0"
    return "0.3" if told.split(".")[:2] in (["0", "3"], ["0", "2"]) else None


def _resolved(named: str | None, address: str) -> tuple[str, bool]:
    """Where the named address is, and whether it is a stranger's."""
    own = httpx.URL(address)
    if named is None:
        if own.path.endswith(".json"):
            raise NotA2A("The agent's card names no address; name the agent's own instead of its card's.")
        return address, False
    try:
        url = httpx.URL(named)
        url = url if url.scheme else own.join(url)
    except httpx.InvalidURL:
        url = httpx.URL()
    if url.scheme not in _PORTS or not url.host or url.userinfo:
        raise NotA2A("The agent's card names an address that can't be one.")
    if _origin(url) == _origin(own):
        # By the operator's name of the host: what the card calls it may mean nothing here.
        return str(own.copy_with(raw_path=url.raw_path)), False
    return str(url), True


def _origin(url: httpx.URL) -> tuple[str, str, int]:
    host = "loopback" if url.host in _LOOPBACK else url.host
    return url.scheme, host, url.port or _PORTS[url.scheme]


def _path(url: str) -> str:
    try:
        return httpx.URL(url).path.rstrip("/")
    except httpx.InvalidURL:
        return "?"


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None
