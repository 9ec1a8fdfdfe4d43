"""The one gate that every HTTP request and every WebSocket passes: Host, Origin, CORS, who is calling.

Promises: nothing behind the gate sees a request from a host or an origin that was not allowed, and what is not public
sees only requests with `scope["state"]["principal"]`. A token is taken from the Authorization header or the login
cookie, never from a query string, which ends up in logs. Responses are not buffered; only their start is touched.

Deliberate: a wrong bearer token is refused though a good cookie came with it, or a mistyped token would act as
somebody else. Headers that may come once only are refused when they come twice: two readers could choose differently.
"""

import time
from collections.abc import Awaitable, Callable, Iterable

from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.access.policy import Policy
from app.access.principals import COOKIE_NAME, LOCAL, Principals
from app.access.refusal import refuse
from app.errors import Forbidden, Unauthenticated

Headers = list[tuple[bytes, bytes]]

PUBLIC_PATHS = frozenset({"/healthz", "/readyz", "/api/v1/health", "/api/v1/version", "/login", "/logout"})
"""What answers without a token, besides what the wiring calls public."""

_SAFE_DEFAULTS: Headers = [(b"x-content-type-options", b"nosniff"), (b"referrer-policy", b"no-referrer")]
_NO_STORE = (b"cache-control", b"no-store")
_VARY = (b"vary", b"Origin")
_CORS: Headers = [
    (b"access-control-allow-credentials", b"true"),
    (b"access-control-expose-headers", b"Retry-After, WWW-Authenticate"),
]
_PREFLIGHT: Headers = [
    (b"access-control-allow-methods", b"GET, POST, OPTIONS"),
    (
        b"access-control-allow-headers",
        b"Content-Type, Authorization, Last-Event-ID, Idempotency-Key, traceparent",
    ),
    (b"access-control-max-age", b"7200"),
]


def principal_of(connection: HTTPConnection) -> str:
    """Who asks. The gate lets nobody pass who has no name, but on public paths."""
    principal = connection.scope.get("state", {}).get("principal")
    if not isinstance(principal, str):
        raise Unauthenticated("Who are you?")
    return principal


class Gate:
    """ASGI middleware; the outermost one, so that what the others answer carries its headers too."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        policy: Policy,
        principals: Principals,
        is_public: Callable[[str], bool],
        now: Callable[[], float] = time.time,
    ) -> None:
        self._app = app
        self._policy = policy
        self._principals = principals
        self._is_public = is_public
        self._now = now

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        public = scope["path"] in PUBLIC_PATHS or self._is_public(scope["path"])
        dress = _Dress(send, self._usual_headers(scope, public), [_VARY] if self._policy.origins else [])
        try:
            allowed_origin = self._check_way_here(scope)
            if allowed_origin is not None:
                dress.additions += [(b"access-control-allow-origin", allowed_origin), *_CORS]
                if _is_preflight(scope):
                    await _answer_preflight(dress.send)
                    return
            self._identify(scope, public)
        except (Forbidden, Unauthenticated) as error:
            await refuse(error, scope, dress.send)
        else:
            await self._app(scope, receive, dress.send)

    def _check_way_here(self, scope: Scope) -> bytes | None:
        """The Origin header of an allowed foreign origin, else None. Raises Forbidden."""
        host = _only(scope, b"host", "host_not_allowed") or b""
        if not self._policy.admits_host(host.decode("latin-1")):
            raise Forbidden(
                f"This server does not answer to the host {_quoted(host)}. If it should, add the name to "
                "TARKO_ALLOWED_HOSTS.",
                code="host_not_allowed",
            )
        origin = _only(scope, b"origin", "origin_not_allowed")
        if origin is None:
            return None
        scheme = scope.get("scheme", "http")
        standing = self._policy.standing(origin.decode("latin-1"), host.decode("latin-1"), scheme)
        if standing == "foreign":
            raise Forbidden(
                f"Pages of the origin {_quoted(origin)} may not call this server. If they should, add it to "
                "TARKO_ALLOWED_ORIGINS.",
                code="origin_not_allowed",
            )
        return origin if standing == "allowed" else None

    def _identify(self, scope: Scope, public: bool) -> None:
        """Write the principal into the scope. Raises Unauthenticated unless the path is public."""
        try:
            principal = self._principal(scope)
        except Unauthenticated:
            if not public:
                raise
            return
        # A new dictionary: a server may hand every request the same one.
        scope["state"] = {**scope.get("state", {}), "principal": principal}

    def _principal(self, scope: Scope) -> str:
        if not self._principals:
            return LOCAL
        authorization = _values(scope, b"authorization")
        if authorization:
            return self._by_bearer(authorization)
        for cookie in _login_cookies(scope):
            principal = self._principals.by_cookie(cookie, self._now())
            if principal is not None:
                return principal
        raise Unauthenticated("A token is needed: send `Authorization: Bearer <token>`, or log in at /login.")

    def _by_bearer(self, authorization: list[bytes]) -> str:
        scheme, _, token = authorization[0].decode("latin-1").partition(" ")
        if len(authorization) > 1 or scheme.lower() != "bearer":
            raise Unauthenticated("Expected one Authorization header of the form `Bearer <token>`.")
        credential = self._principals.by_token(token.strip(" "))
        if credential is None:
            raise Unauthenticated("The bearer token is not known here.")
        return credential.principal

    def _usual_headers(self, scope: Scope, public: bool) -> Headers:
        # What a token opens must not stay in a cache that others read.
        private = not public or scope["path"].startswith("/api/")
        return [*_SAFE_DEFAULTS, _NO_STORE] if private else _SAFE_DEFAULTS


class _Dress:
    """Gives a response the headers it did not set itself (`defaults`) and those it gets anyway (`additions`)."""

    __slots__ = ("_defaults", "_send", "additions")

    def __init__(self, send: Send, defaults: Headers, additions: Headers) -> None:
        self._send = send
        self._defaults = defaults
        self.additions = additions

    def send(self, message: Message) -> Awaitable[None]:
        # No coroutine of its own: a stream sends thousands of chunks through here.
        if message["type"] == "http.response.start":
            message = {**message, "headers": self._dressed(message.get("headers", ()))}
        return self._send(message)

    def _dressed(self, headers: Iterable[tuple[bytes, bytes]]) -> Headers:
        own = list(headers)
        present = {name.lower() for name, _ in own}
        return [*own, *(header for header in self._defaults if header[0] not in present), *self.additions]


async def _answer_preflight(send: Send) -> None:
    await send({"type": "http.response.start", "status": 204, "headers": _PREFLIGHT})
    await send({"type": "http.response.body"})


def _is_preflight(scope: Scope) -> bool:
    return scope.get("method") == "OPTIONS" and bool(_values(scope, b"access-control-request-method"))


def _login_cookies(scope: Scope) -> list[str]:
    pairs = (
        pair.strip().partition("=")
        for header in _values(scope, b"cookie")
        for pair in header.decode("latin-1").split(";")
    )
    return [value for name, _, value in pairs if name == COOKIE_NAME]


def _only(scope: Scope, name: bytes, code: str) -> bytes | None:
    values = _values(scope, name)
    if len(values) > 1:
        raise Forbidden(f"Expected one {name.decode()} header, got {len(values)}.", code=code)
    return values[0] if values else None


def _values(scope: Scope, name: bytes) -> list[bytes]:
    return [value for key, value in scope["headers"] if key == name]


def _quoted(value: bytes) -> str:
    return repr(value[:200].decode("latin-1"))
