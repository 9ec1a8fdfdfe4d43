"""Every request class at the gate: who passes, who is refused, and what the answers carry."""

from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from starlette.types import Message, Receive, Scope, Send

from app.access.gate import PUBLIC_PATHS, Gate
from app.access.policy import Policy
from app.access.principals import COOKIE_NAME, Principals
from app.settings import Settings

ALICE = "alice-token-0123456789"
BOB = "bob-token-0123456789"
TOKENS = f"alice={ALICE},bob={BOB}"
APP_ORIGIN = "https://app.example"
NOW = 1_800_000_000


class Inside:
    """An application that answers 200 and keeps the scopes that reached it."""

    def __init__(self, headers: dict[str, str] | None = None) -> None:
        self.scopes: list[Scope] = []
        self._headers = [(name.encode(), value.encode()) for name, value in (headers or {}).items()]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.scopes.append(scope)
        if scope["type"] == "websocket":
            await send({"type": "websocket.accept"})
            return
        await send({"type": "http.response.start", "status": 200, "headers": self._headers})
        await send({"type": "http.response.body", "body": b"one ", "more_body": True})
        await send({"type": "http.response.body", "body": b"two"})

    @property
    def principal(self) -> str | None:
        state: dict[str, Any] = self.scopes[-1].get("state", {})
        return state.get("principal")


def make_gate(inside: Inside, **settings: Any) -> Gate:
    chosen = Settings(**settings)
    return Gate(
        inside,
        policy=Policy.of(chosen),
        principals=Principals.parse(chosen.tokens),
        is_public=lambda path: path.startswith("/assets/"),
        now=lambda: NOW,
    )


def client(inside: Inside, **settings: Any) -> httpx.AsyncClient:
    transport = httpx.ASGITransport(make_gate(inside, **settings))
    return httpx.AsyncClient(transport=transport, base_url="http://localhost:8888")


def cookie_for(token: str, tokens: str = TOKENS, expires: int = NOW + 60) -> dict[str, str]:
    credential = Principals.parse(tokens).by_token(token)
    assert credential is not None
    return {"cookie": f"theme=dark; {COOKIE_NAME}={credential.cookie(expires)}; lang=en"}


def bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


@pytest.fixture
def inside() -> Inside:
    return Inside()


@pytest.fixture
async def open_server(inside: Inside) -> AsyncIterator[httpx.AsyncClient]:
    async with client(inside) as http:
        yield http


@pytest.fixture
async def closed_server(inside: Inside) -> AsyncIterator[httpx.AsyncClient]:
    async with client(inside, tokens=TOKENS, allowed_origins=APP_ORIGIN) as http:
        yield http


def assert_refused(response: httpx.Response, status: int, code: str) -> None:
    body = response.json()
    assert (response.status_code, body["code"]) == (status, code)
    assert set(body) == {"error", "code"}
    assert isinstance(body["error"], str)
    assert response.headers["content-type"] == "application/json"
    assert response.headers["x-content-type-options"] == "nosniff"


# Hosts


@pytest.mark.parametrize("host", ["localhost:8888", "127.0.0.1:9", "[::1]:8888"])
async def test_loopback_hosts_pass(open_server: httpx.AsyncClient, host: str) -> None:
    response = await open_server.get("/", headers={"host": host})
    assert (response.status_code, response.text) == (200, "one two")


@pytest.mark.parametrize("path", ["/", "/healthz", "/assets/app.js", "/api/v1/sessions"])
async def test_a_rebound_name_is_refused_everywhere(
    open_server: httpx.AsyncClient, inside: Inside, path: str
) -> None:
    response = await open_server.get(path, headers={"host": "evil.example:8888"})
    assert_refused(response, 403, "host_not_allowed")
    assert "'evil.example:8888'" in response.json()["error"]
    assert not inside.scopes


async def test_the_host_a_test_client_uses_can_be_allowed(inside: Inside) -> None:
    async with client(inside, allowed_hosts="testserver") as http:
        assert (await http.get("http://testserver/")).status_code == 200


@pytest.mark.parametrize(
    "headers", [[], [(b"host", b"localhost"), (b"host", b"evil.example")], [(b"host", b"\xff\xfe")]]
)
async def test_a_missing_or_ambiguous_host_is_refused(
    inside: Inside, headers: list[tuple[bytes, bytes]]
) -> None:
    sent = await drive(make_gate(inside), {"type": "http", "method": "GET", "path": "/", "headers": headers})
    assert sent[0]["status"] == 403
    assert b"host_not_allowed" in sent[1]["body"]


# Origins


@pytest.mark.parametrize("method", ["GET", "POST", "OPTIONS"])
@pytest.mark.parametrize("origin", ["null", "https://evil.example", "http://localhost:3000", ""])
async def test_a_foreign_origin_is_refused_with_any_method(
    open_server: httpx.AsyncClient, inside: Inside, method: str, origin: str
) -> None:
    headers = {"origin": origin, "access-control-request-method": "POST"}
    response = await open_server.request(method, "/api/v1/sessions", headers=headers)
    assert_refused(response, 403, "origin_not_allowed")
    assert "access-control-allow-origin" not in response.headers
    assert not inside.scopes


async def test_the_servers_own_pages_pass(open_server: httpx.AsyncClient) -> None:
    response = await open_server.post("/", headers={"origin": "http://localhost:8888"})
    assert response.status_code == 200
    assert "access-control-allow-origin" not in response.headers
    assert "vary" not in response.headers


async def test_pages_behind_a_proxy_that_ends_tls_pass(inside: Inside) -> None:
    async with client(inside, allowed_hosts="chat.example") as http:
        headers = {"host": "chat.example", "origin": "https://chat.example"}
        assert (await http.post("/", headers=headers)).status_code == 200


async def test_two_origins_in_one_request_are_refused(open_server: httpx.AsyncClient) -> None:
    headers = [("origin", "http://localhost:8888"), ("origin", "http://localhost:8888")]
    assert_refused(await open_server.get("/", headers=headers), 403, "origin_not_allowed")


# CORS


async def test_a_preflight_of_an_allowed_origin_is_answered_without_a_token(
    closed_server: httpx.AsyncClient, inside: Inside
) -> None:
    headers = {"origin": APP_ORIGIN, "access-control-request-method": "POST"}
    response = await closed_server.options("/api/v1/sessions/query", headers=headers)
    assert (response.status_code, response.content) == (204, b"")
    assert response.headers["access-control-allow-origin"] == APP_ORIGIN
    assert response.headers["access-control-allow-credentials"] == "true"
    assert response.headers["access-control-allow-methods"] == "GET, POST, OPTIONS"
    assert response.headers["access-control-allow-headers"] == (
        "Content-Type, Authorization, Last-Event-ID, Idempotency-Key, traceparent, tracestate, A2A-Version, "
        "A2A-Extensions"
    )
    assert int(response.headers["access-control-max-age"]) > 0
    assert response.headers["vary"] == "Origin"
    assert not inside.scopes


async def test_an_options_request_that_is_no_preflight_needs_a_token(
    closed_server: httpx.AsyncClient,
) -> None:
    response = await closed_server.options("/api/v1/sessions", headers={"origin": APP_ORIGIN})
    assert_refused(response, 401, "unauthenticated")


async def test_an_allowed_origin_may_read_answers_and_errors(closed_server: httpx.AsyncClient) -> None:
    for headers, status in ((bearer(ALICE), 200), (bearer("wrong"), 401)):
        response = await closed_server.get("/", headers={"origin": APP_ORIGIN, **headers})
        assert response.status_code == status
        assert response.headers["access-control-allow-origin"] == APP_ORIGIN
        assert response.headers["access-control-allow-credentials"] == "true"
        assert "Retry-After" in response.headers["access-control-expose-headers"]
        assert response.headers["vary"] == "Origin"


async def test_answers_vary_by_origin_also_for_those_who_sent_none(closed_server: httpx.AsyncClient) -> None:
    assert (await closed_server.get("/healthz")).headers["vary"] == "Origin"


async def test_what_the_application_varies_by_is_kept() -> None:
    async with client(Inside({"vary": "Accept-Encoding"}), allowed_origins=APP_ORIGIN) as http:
        assert (await http.get("/")).headers.get_list("vary") == ["Accept-Encoding", "Origin"]


# Who is calling


@pytest.mark.parametrize("headers", [{}, bearer("whatever"), {"authorization": "Basic eDp5"}])
async def test_without_tokens_everybody_is_local(
    open_server: httpx.AsyncClient, inside: Inside, headers: dict[str, str]
) -> None:
    await open_server.get("/api/v1/sessions", headers=headers)
    assert inside.principal == "local"


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER", "Bearer  "])
async def test_a_bearer_token_names_the_principal(
    closed_server: httpx.AsyncClient, inside: Inside, scheme: str
) -> None:
    response = await closed_server.get("/", headers={"authorization": f"{scheme} {BOB}"})
    assert (response.status_code, inside.principal) == (200, "bob")


async def test_the_login_cookie_names_the_principal(closed_server: httpx.AsyncClient, inside: Inside) -> None:
    response = await closed_server.get("/", headers=cookie_for(ALICE))
    assert (response.status_code, inside.principal) == (200, "alice")


async def test_a_good_cookie_counts_beside_a_stale_one(
    closed_server: httpx.AsyncClient, inside: Inside
) -> None:
    stale, good = cookie_for(BOB, expires=NOW - 1)["cookie"], cookie_for(ALICE)["cookie"]
    await closed_server.get("/", headers=[("cookie", stale), ("cookie", good)])
    assert inside.principal == "alice"


async def test_the_bearer_token_goes_before_the_cookie(
    closed_server: httpx.AsyncClient, inside: Inside
) -> None:
    await closed_server.get("/", headers=bearer(BOB) | cookie_for(ALICE))
    assert inside.principal == "bob"


@pytest.mark.parametrize(
    "headers",
    [
        {},
        bearer("wrong") | cookie_for(ALICE),
        bearer("") | cookie_for(ALICE),
        {"authorization": ""} | cookie_for(ALICE),
        {"authorization": f"Basic {ALICE}"},
        {"authorization": ALICE},
        bearer(f"{ALICE} x"),
        {"cookie": f"{COOKIE_NAME}={ALICE}"},
        {"cookie": f"x{cookie_for(ALICE)['cookie']}".replace(COOKIE_NAME, "other")},
        cookie_for(ALICE, expires=NOW),
        cookie_for(ALICE, tokens=f"mallory={ALICE}"),
    ],
)
@pytest.mark.parametrize("path", ["/", "/api/v1/sessions", "/healthz/", "/api/v1/healthx", "/login/x"])
async def test_anyone_else_is_unauthenticated(
    closed_server: httpx.AsyncClient, inside: Inside, path: str, headers: dict[str, str]
) -> None:
    response = await closed_server.get(path, headers=headers)
    assert_refused(response, 401, "unauthenticated")
    assert response.headers["www-authenticate"] == "Bearer"
    assert not inside.scopes


async def test_two_authorization_headers_are_refused(closed_server: httpx.AsyncClient) -> None:
    headers = [("authorization", f"Bearer {ALICE}"), ("authorization", f"Bearer {BOB}")]
    assert_refused(await closed_server.get("/", headers=headers), 401, "unauthenticated")


@pytest.mark.parametrize(
    "query", [f"token={ALICE}", f"access_token={ALICE}", f"authorization=Bearer {ALICE}"]
)
async def test_a_query_string_lets_nobody_in(closed_server: httpx.AsyncClient, query: str) -> None:
    assert_refused(await closed_server.get(f"/?{query}"), 401, "unauthenticated")


@pytest.mark.parametrize("path", [*sorted(PUBLIC_PATHS), "/assets/app.js"])
@pytest.mark.parametrize("headers", [{}, bearer("wrong"), cookie_for(ALICE, expires=NOW)])
async def test_a_public_path_asks_for_nothing(
    closed_server: httpx.AsyncClient, inside: Inside, path: str, headers: dict[str, str]
) -> None:
    assert (await closed_server.get(path, headers=headers)).status_code == 200
    assert inside.principal is None


async def test_a_public_path_still_learns_who_is_calling(
    closed_server: httpx.AsyncClient, inside: Inside
) -> None:
    await closed_server.get("/healthz", headers=bearer(ALICE))
    assert inside.principal == "alice"


async def test_a_state_that_requests_share_is_kept_but_not_written_to(inside: Inside) -> None:
    shared = {"pool": "the pool"}
    scope = http_scope(state=shared)
    await drive(make_gate(inside), scope)
    assert scope["state"] == {"pool": "the pool", "principal": "local"}
    assert shared == {"pool": "the pool"}


# Headers of every answer


@pytest.mark.parametrize(
    ("path", "cache_control"),
    [
        ("/api/v1/sessions", "no-store"),
        ("/api/v1/health", "no-store"),
        ("/a2a", "no-store"),
        ("/assets/a.js", None),
    ],
)
async def test_what_is_not_public_is_not_stored(
    open_server: httpx.AsyncClient, path: str, cache_control: str | None
) -> None:
    headers = (await open_server.get(path)).headers
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    assert headers.get("cache-control") == cache_control


async def test_what_the_application_set_itself_stays() -> None:
    own = {"Cache-Control": "no-cache", "Referrer-Policy": "same-origin", "X-Content-Type-Options": "nosniff"}
    async with client(Inside(own)) as http:
        headers = (await http.get("/api/v1/sessions")).headers
    assert {name: headers.get_list(name) for name in own} == {name: [value] for name, value in own.items()}


async def test_each_part_of_a_stream_goes_out_as_it_comes(inside: Inside) -> None:
    sent = await drive(make_gate(inside), http_scope())
    assert [message.get("body") for message in sent] == [None, b"one ", b"two"]


# WebSockets, and what is neither


def http_scope(**more: Any) -> Scope:
    return {"type": "http", "method": "GET", "path": "/", "headers": [(b"host", b"localhost")], **more}


def socket_scope(headers: dict[str, str], **more: Any) -> Scope:
    raw = [(name.encode(), value.encode()) for name, value in ({"host": "localhost:8888"} | headers).items()]
    return {"type": "websocket", "scheme": "ws", "path": "/ws", "headers": raw, **more}


async def drive(gate: Gate, scope: Scope) -> list[Message]:
    sent: list[Message] = []

    async def receive() -> Message:
        raise AssertionError("the gate reads nothing")

    async def send(message: Message) -> None:
        sent.append(message)

    await gate(scope, receive, send)
    return sent


@pytest.mark.parametrize(
    "headers",
    [
        bearer(ALICE),
        cookie_for(ALICE),
        cookie_for(ALICE) | {"origin": "http://localhost:8888"},
        bearer(ALICE) | {"origin": APP_ORIGIN},
    ],
)
async def test_a_known_caller_opens_a_socket(inside: Inside, headers: dict[str, str]) -> None:
    gate = make_gate(inside, tokens=TOKENS, allowed_origins=APP_ORIGIN)
    assert await drive(gate, socket_scope(headers)) == [{"type": "websocket.accept"}]
    assert inside.principal == "alice"


REFUSED_SOCKETS = [
    ({"host": "evil.example"}, 403, "host_not_allowed"),
    (cookie_for(ALICE) | {"origin": "https://evil.example"}, 403, "origin_not_allowed"),
    (cookie_for(ALICE) | {"origin": "null"}, 403, "origin_not_allowed"),
    ({}, 401, "unauthenticated"),
    (bearer("wrong") | cookie_for(ALICE), 401, "unauthenticated"),
]


@pytest.mark.parametrize(("headers", "status", "code"), REFUSED_SOCKETS)
async def test_a_socket_is_refused_with_a_status_where_the_server_can(
    inside: Inside, headers: dict[str, str], status: int, code: str
) -> None:
    scope = socket_scope(headers, extensions={"websocket.http.response": {}})
    start, body = await drive(make_gate(inside, tokens=TOKENS), scope)
    assert (start["type"], start["status"]) == ("websocket.http.response.start", status)
    assert ((b"www-authenticate", b"Bearer") in start["headers"]) == (status == 401)
    assert body["type"] == "websocket.http.response.body"
    assert f'"code":"{code}"'.encode() in body["body"]
    assert not inside.scopes


@pytest.mark.parametrize("more", [{}, {"extensions": None}, {"extensions": {}}])
@pytest.mark.parametrize(("headers", "_status", "code"), REFUSED_SOCKETS)
async def test_a_socket_is_closed_before_it_is_accepted_where_the_server_cannot(
    inside: Inside, headers: dict[str, str], _status: int, code: str, more: dict[str, Any]
) -> None:
    sent = await drive(make_gate(inside, tokens=TOKENS), socket_scope(headers, **more))
    assert sent == [{"type": "websocket.close", "code": 1008, "reason": code}]
    assert not inside.scopes


async def test_a_foreign_page_opens_no_socket_on_a_server_without_tokens(inside: Inside) -> None:
    sent = await drive(make_gate(inside), socket_scope({"origin": "https://evil.example"}))
    assert [message["type"] for message in sent] == ["websocket.close"]


async def test_the_lifespan_passes_untouched() -> None:
    seen: list[Scope] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append(scope)

    policy, principals = Policy.of(Settings()), Principals.parse(TOKENS)
    await drive(
        Gate(app, policy=policy, principals=principals, is_public=lambda _: False), {"type": "lifespan"}
    )
    assert seen == [{"type": "lifespan"}]
