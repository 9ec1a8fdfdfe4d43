"""Who may come in: the principals of `TARKO_TOKENS`, found by a token or by a login cookie.

Promises: a token is kept only as a hash and as the cookie key made from it, and both are compared in constant time.
A cookie is proven by the token it was given for, so it works on every replica and after a restart with nothing
stored, and dies when that token is taken out of the settings. No I/O, and no clock: the caller says what time it is.

Deliberate: no message repeats what an entry holds, because a misplaced separator makes a token look like a name.
"""

import hashlib
import hmac
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Self

from app.errors import ConfigurationError

LOCAL = "local"
"""Everybody's principal while no tokens are configured. A token may name it, to keep what was made before."""

COOKIE_NAME = "tarko_login"
SHORTEST_TOKEN = 16
RECIPE = 'python3 -c "import secrets; print(secrets.token_urlsafe(32))"'
"""A command that prints a good token."""

_COOKIE_VERSION = "v1"
_COOKIE_KEY_DOMAIN = b"tarko-server login cookie v1"
_NAME = re.compile(r"[A-Za-z0-9_.@-]{1,64}")
_TOKEN = re.compile(r"[!-~]+")
_COOKIE = re.compile(rf"{_COOKIE_VERSION}\.({_NAME.pattern})\.([0-9]{{1,12}})\.[0-9a-f]{{64}}")


@dataclass(frozen=True, slots=True)
class Credential:
    """One token of a principal, without the token itself."""

    principal: str
    token_hash: bytes = field(repr=False)
    cookie_key: bytes = field(repr=False)

    @classmethod
    def of(cls, principal: str, token: str) -> Self:
        return cls(principal, _hash(token), hmac.digest(token.encode(), _COOKIE_KEY_DOMAIN, "sha256"))

    def cookie(self, expires: int) -> str:
        """The login cookie that stands for this token until `expires` (epoch seconds)."""
        claim = f"{_COOKIE_VERSION}.{self.principal}.{expires}"
        return f"{claim}.{hmac.new(self.cookie_key, claim.encode(), 'sha256').hexdigest()}"


class Principals:
    """All who may come in. Empty: no token is asked and everybody is `local`."""

    def __init__(self, credentials: Iterable[Credential] = ()) -> None:
        self._credentials = tuple(credentials)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `alice=token1,bob=token2`. Raises ConfigurationError that names the entry by its position."""
        if not text.strip():
            return cls()
        found: dict[bytes, Credential] = {}
        for position, entry in enumerate(text.split(","), start=1):
            credential = _parse_entry(entry.strip(), f"Entry {position} of TARKO_TOKENS")
            earlier = found.setdefault(credential.token_hash, credential)
            if earlier.principal != credential.principal:
                raise ConfigurationError(
                    f"Entry {position} of TARKO_TOKENS gives {credential.principal!r} a token that already "
                    f"belongs to {earlier.principal!r}: a token names one principal. "
                    f"Make another with: {RECIPE}"
                )
        return cls(found.values())

    def __len__(self) -> int:
        return len(self._credentials)

    def by_token(self, token: str) -> Credential | None:
        """Whose token this is. Looks at every credential, so that the time taken tells nothing."""
        presented = _hash(token)
        found = None
        for credential in self._credentials:
            if hmac.compare_digest(credential.token_hash, presented):
                found = credential
        return found

    def by_cookie(self, value: str, now: float) -> str | None:
        """The principal whom this login cookie proves at `now` (epoch seconds), if it proves one."""
        claim = _COOKIE.fullmatch(value)
        if claim is None:
            return None
        expires = int(claim[2])
        if expires <= now:
            return None
        proven = None
        for credential in self._credentials:
            if hmac.compare_digest(credential.cookie(expires), value):
                proven = credential.principal
        return proven


def _parse_entry(entry: str, where: str) -> Credential:
    name, separator, token = entry.partition("=")
    if not entry:
        raise ConfigurationError(f"{where} is empty: write `name=token`, with one comma between two entries.")
    if not separator:
        raise ConfigurationError(f"{where} has no `=`: write `name=token`.")
    if not _NAME.fullmatch(name):
        raise ConfigurationError(f"{where} needs a name of 1 to 64 letters, digits or `_.@-` before its `=`.")
    if len(token) < SHORTEST_TOKEN:
        raise ConfigurationError(
            f"{where} has a token of {len(token)} characters; at least {SHORTEST_TOKEN} are needed. "
            f"Make one with: {RECIPE}"
        )
    if not _TOKEN.fullmatch(token):
        raise ConfigurationError(
            f"{where} has a token that no header can carry: only printable ASCII without spaces and commas can. "
            f"Make one with: {RECIPE}"
        )
    return Credential.of(name, token)


def _hash(token: str) -> bytes:
    # `surrogatepass`: what a client sends may be any text, and a wrong token must be refused, not raise.
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()
