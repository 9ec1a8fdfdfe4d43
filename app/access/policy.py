"""Which hosts this server answers to, which web origins may call it, and where it may listen. Decides only.

Promise: a page that the operator did not name can neither drive this server from a browser (the Origin check) nor
pretend to be it by pointing a name of its own at our address (the Host check).
"""

import ipaddress
import re
from dataclasses import dataclass
from typing import Literal, NamedTuple, Self

from app.access.principals import Principals
from app.errors import ConfigurationError
from app.settings import Settings

Standing = Literal["same", "allowed", "foreign"]

_LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})
_DEFAULT_PORTS = {"http": 80, "https": 443}
_AUTHORITY = r"(?:\[([0-9a-f:.]+)\]|([a-z0-9._-]+))(?::([0-9]{0,5}))?"
_HOST = re.compile(_AUTHORITY)
_ORIGIN = re.compile(rf"([a-z][a-z0-9+.-]*)://{_AUTHORITY}")


class Authority(NamedTuple):
    """A host without brackets, and its port if one was written."""

    host: str
    port: int | None


class Origin(NamedTuple):
    """A web origin; `port` is the scheme's own where none was written."""

    scheme: str
    host: str
    port: int | None


@dataclass(frozen=True, slots=True)
class Policy:
    """The hosts and origins of one server. `hosts` is None when any host will do."""

    hosts: frozenset[str] | None
    origins: frozenset[Origin]

    @classmethod
    def of(cls, settings: Settings) -> Self:
        """The policy these settings ask for. Raises ConfigurationError for an entry that can never match."""
        return cls(
            hosts=_parse_hosts(settings.allowed_hosts, bound=settings.host),
            origins=frozenset(map(_parse_allowed_origin, _entries(settings.allowed_origins))),
        )

    def admits_host(self, header: str) -> bool:
        """Whether a request with this Host header may be answered, on whatever port."""
        authority = parse_authority(header)
        return self.hosts is None or (authority is not None and authority.host in self.hosts)

    def standing(self, origin_header: str, host_header: str, scheme: str) -> Standing:
        """What an Origin is to the server that was reached as `host_header` over the ASGI `scheme`."""
        origin = parse_origin(origin_header)
        if origin is None:
            return "foreign"
        if _is_same(origin, parse_authority(host_header), scheme):
            return "same"
        return "allowed" if origin in self.origins else "foreign"


def check_exposure(settings: Settings) -> None:
    """Refuse to listen where strangers may call and nothing asks who they are."""
    if is_loopback(settings.host) or settings.insecure or Principals.parse(settings.tokens):
        return
    raise ConfigurationError(
        f"Listening on {settings.host!r} would let anyone who reaches it in. Either listen on 127.0.0.1 "
        "(TARKO_HOST=127.0.0.1), or name who may come in (TARKO_TOKENS=alice=<token>), or accept it in words "
        "(--insecure or TARKO_INSECURE=true)."
    )


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach `host`. A name other than localhost counts as reachable."""
    name = host.lower().removeprefix("[").removesuffix("]")
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return name == "localhost"


def parse_authority(text: str) -> Authority | None:
    """`host[:port]` as a Host header has it, or None when it is anything else."""
    found = _HOST.fullmatch(text.lower())
    return Authority(found[1] or found[2], _port(found[3])) if found else None


def parse_origin(text: str) -> Origin | None:
    """`scheme://host[:port]` as an Origin header has it, or None, as for `null`."""
    found = _ORIGIN.fullmatch(text.lower())
    if found is None:
        return None
    return Origin(found[1], found[2] or found[3], _port(found[4]) or _DEFAULT_PORTS.get(found[1]))


def _is_same(origin: Origin, target: Authority | None, scheme: str) -> bool:
    # Behind a proxy that ends TLS a page of https reaches us over http, so the schemes may differ that way;
    # the other way round the page was open to whoever sits on its network.
    if target is None or origin.scheme not in _DEFAULT_PORTS:
        return False
    if origin.scheme == "http" and scheme in ("https", "wss"):
        return False
    return (origin.host, origin.port) == (target.host, target.port or _DEFAULT_PORTS[origin.scheme])


def _parse_hosts(text: str, bound: str) -> frozenset[str] | None:
    entries = _entries(text)
    if "*" in entries:
        return None
    bound_name = bound.lower().removeprefix("[").removesuffix("]")
    return _LOOPBACK_NAMES | {bound_name} | {_parse_allowed_host(entry) for entry in entries}


def _parse_allowed_host(entry: str) -> str:
    authority = parse_authority(f"[{entry}]" if entry.count(":") > 1 and "[" not in entry else entry)
    if authority is None or authority.port is not None:
        raise ConfigurationError(
            f"TARKO_ALLOWED_HOSTS has {entry!r}: give a name or an address alone, such as `chat.example`, without "
            "scheme and port, or `*` for any."
        )
    return authority.host


def _parse_allowed_origin(entry: str) -> Origin:
    origin = parse_origin(entry.removesuffix("/"))
    if origin is None:
        raise ConfigurationError(
            f"TARKO_ALLOWED_ORIGINS has {entry!r}: name each origin as `scheme://host[:port]`, such as "
            "`https://chat.example`. `*` and `null` would let any web page act for its visitor."
        )
    return origin


def _entries(text: str) -> list[str]:
    return [entry for entry in map(str.strip, text.split(",")) if entry]


def _port(digits: str | None) -> int | None:
    return int(digits) if digits else None
