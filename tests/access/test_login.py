"""Logging in and out, by form and by JSON, with the gate in front as in the real server."""

import base64
import hashlib
import json
import re
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import urljoin, urlsplit

import httpx
import pytest
from fastapi import FastAPI, Request
from hypothesis import example, given
from hypothesis import strategies as st

from app.access.gate import Gate
from app.access.login import LARGEST_BODY, local_path, login_router
from app.access.policy import Policy
from app.access.principals import COOKIE_NAME, Principals
from app.settings import Settings

ALICE = "alice-token-+&=0123456789"
TOKENS = f"alice@example.org={ALICE}"
NOW = 1_800_000_000


def server(**settings: Any) -> httpx.AsyncClient:
    chosen = Settings(allowed_hosts="chat.example", cookie_lifetime=60, **settings)
    principals = Principals.parse(chosen.tokens)
    api = FastAPI()
    api.include_router(login_router(principals, cookie_lifetime=chosen.cookie_lifetime, now=lambda: NOW))

    @api.get("/whoami")
    async def whoami(request: Request) -> str:
        name: str = request.state.principal
        return name

    gate = Gate(
        api, policy=Policy.of(chosen), principals=principals, is_public=lambda _: False, now=lambda: NOW
    )
    return httpx.AsyncClient(transport=httpx.ASGITransport(gate), base_url="http://localhost:8888")


@pytest.fixture
async def http() -> AsyncIterator[httpx.AsyncClient]:
    async with server(tokens=TOKENS) as client:
        yield client


@pytest.fixture
async def open_http() -> AsyncIterator[httpx.AsyncClient]:
    async with server() as client:
        yield client


async def test_a_person_logs_in_and_out_again(http: httpx.AsyncClient) -> None:
    assert (await http.get("/whoami")).status_code == 401
    welcome = await http.post("/login", data={"token": f" {ALICE}\r\n"})
    assert (welcome.status_code, welcome.headers["location"]) == (303, "/")
    assert (await http.get("/whoami")).json() == "alice@example.org"
    goodbye = await http.post("/logout", data={"any": "form"})
    assert (goodbye.status_code, goodbye.headers["location"]) == (303, "/login")
    assert (await http.get("/whoami")).status_code == 401


async def test_a_program_logs_in_and_out_again(http: httpx.AsyncClient) -> None:
    welcome = await http.post("/login", json={"token": ALICE})
    assert (welcome.status_code, welcome.json()) == (200, {"principal": "alice@example.org"})
    assert (await http.get("/whoami")).status_code == 200
    goodbye = await http.post("/logout")
    assert (goodbye.status_code, goodbye.json()) == (200, {"principal": None})
    assert (await http.get("/whoami")).status_code == 401


async def test_the_cookie_is_for_this_site_and_no_script(http: httpx.AsyncClient) -> None:
    cookie = (await http.post("/login", json={"token": ALICE})).headers["set-cookie"]
    value, *attributes = cookie.split("; ")
    assert value.startswith(f"{COOKIE_NAME}=v1.alice@example.org.{NOW + 60}.")
    assert attributes == ["Max-Age=60", "Path=/", "HttpOnly", "SameSite=Strict"]


@pytest.mark.parametrize(
    ("url", "headers"),
    [
        ("https://localhost:8888/login", {}),
        ("http://chat.example/login", {"x-forwarded-proto": "https"}),
        ("http://chat.example/login", {"x-forwarded-proto": "HTTPS, http"}),
    ],
)
async def test_the_cookie_is_secure_when_it_came_by_https(
    http: httpx.AsyncClient, url: str, headers: dict[str, str]
) -> None:
    response = await http.post(url, json={"token": ALICE}, headers=headers)
    assert response.headers["set-cookie"].endswith("; Secure")
    response = await http.post(url.replace("login", "logout"), headers=headers)
    assert response.headers["set-cookie"] == (
        f"{COOKIE_NAME}=; Max-Age=0; Path=/; HttpOnly; SameSite=Strict; Secure"
    )


async def test_a_wrong_token_brings_the_page_again(http: httpx.AsyncClient) -> None:
    response = await http.post("/login", data={"token": "wrong", "next": "/a?b=1&c=2"})
    assert response.status_code == 401
    assert response.headers["www-authenticate"] == "Bearer"
    assert '<p role="alert">The token is not known here.</p>' in response.text
    assert 'name="next" type="hidden" value="/a?b=1&amp;c=2"' in response.text
    assert "set-cookie" not in response.headers


async def test_a_wrong_token_in_json_is_refused_in_json(http: httpx.AsyncClient) -> None:
    response = await http.post("/login", json={"token": "Zoë"})
    assert (response.status_code, response.json()["code"]) == (401, "unauthenticated")
    assert response.headers["www-authenticate"] == "Bearer"
    assert "set-cookie" not in response.headers


async def test_the_page_works_under_its_own_strict_policy(http: httpx.AsyncClient) -> None:
    response = await http.get("/login")
    policy = response.headers["content-security-policy"]
    style = re.search(r"<style>(.*)</style>", response.text, re.DOTALL)
    assert style is not None
    style_hash = base64.b64encode(hashlib.sha256(style[1].encode()).digest()).decode()
    assert f"style-src 'sha256-{style_hash}'" in policy
    assert policy.startswith("default-src 'none';")
    assert "frame-ancestors 'none'" in policy
    assert "<script" not in response.text
    assert not re.search(r"(src|href)=|style=", response.text)
    assert response.headers["cache-control"] == "no-store"


async def test_browsers_send_the_pages_form_with_its_origin(http: httpx.AsyncClient) -> None:
    """Under `no-referrer`, the gate's default, they would send `Origin: null`."""
    assert (await http.get("/login")).headers.get_list("referrer-policy") == ["same-origin"]


async def test_a_foreign_page_logs_nobody_in(http: httpx.AsyncClient) -> None:
    response = await http.post("/login", data={"token": ALICE}, headers={"origin": "https://evil.example"})
    assert response.status_code == 403


@pytest.mark.parametrize("target", ["/", "/chat?s=1#end", "/a//b"])
async def test_a_local_next_is_followed(http: httpx.AsyncClient, target: str) -> None:
    page = await http.get("/login", params={"next": target})
    assert f'value="{target}"' in page.text
    response = await http.post("/login", data={"token": ALICE, "next": target})
    assert response.headers["location"] == target


FOREIGN_TARGETS = [
    "",
    "chat",
    "//evil.example",
    "/\\evil.example",
    "https://evil.example",
    "/\t/evil.example",
    "\t//evil.example",
    "/\r\nset-cookie: a=b",
    "/ /evil.example",
    "/ä",
]


@pytest.mark.parametrize("target", FOREIGN_TARGETS)
async def test_any_other_next_leads_home(http: httpx.AsyncClient, target: str) -> None:
    assert 'value="/"' in (await http.get("/login", params={"next": target})).text
    response = await http.post("/login", data={"token": ALICE, "next": target})
    assert response.headers["location"] == "/"


async def test_next_cannot_write_into_the_page(http: httpx.AsyncClient) -> None:
    page = await http.get("/login", params={"next": '/"><script>$message'})
    assert 'value="/&quot;&gt;&lt;script&gt;$message"' in page.text


@given(st.one_of(st.text(), st.text(st.sampled_from("/\\.:@?# \t\r\nae")).map(lambda end: f"/{end}")))
@example("/.//evil.example")
def test_next_never_leaves_the_server(target: str) -> None:
    path = local_path(target)
    # What a browser does before it resolves an address: drops tabs and line ends, reads `\` as `/`.
    seen = re.sub(r"[\t\r\n]", "", path.strip()).replace("\\", "/")
    assert urlsplit(urljoin("http://localhost:8888/login", seen)).netloc == "localhost:8888"
    assert path in (target, "/")


@pytest.mark.parametrize(
    ("content_type", "body", "message"),
    [
        ("application/json", b"{", "not JSON"),
        ("application/json", b"[" * 8000, "not JSON"),
        ("application/json", b"[]", "JSON object"),
        ("application/json; charset=utf-8", b'{"token": 1}', "JSON object"),
        ("application/x-www-form-urlencoded", b"&".join([b"a=1"] * 17), "at most 16 fields"),
        ("text/plain", ALICE.encode(), "got 'text/plain'"),
        ("", b"", "got 'no type'"),
    ],
)
async def test_a_login_that_is_none_is_a_bad_request(
    http: httpx.AsyncClient, content_type: str, body: bytes, message: str
) -> None:
    response = await http.post("/login", content=body, headers={"content-type": content_type})
    assert (response.status_code, response.json()["code"]) == (400, "bad_request")
    assert message in response.json()["error"]


@pytest.mark.parametrize("body", [b"", b"token", b"token=", b"token=%ff%00", b"\xff=\xff"])
async def test_a_form_without_a_good_token_brings_the_page_again(
    http: httpx.AsyncClient, body: bytes
) -> None:
    headers = {"content-type": "application/x-www-form-urlencoded"}
    assert (await http.post("/login", content=body, headers=headers)).status_code == 401


async def test_a_login_may_be_eight_kibibytes_long_and_no_longer(http: httpx.AsyncClient) -> None:
    for size, status in ((LARGEST_BODY, 401), (LARGEST_BODY + 1, 413)):
        body = json.dumps({"token": "x" * (size - len('{"token": ""}'))}).encode()
        assert len(body) == size
        response = await http.post("/login", content=body, headers={"content-type": "application/json"})
        assert response.status_code == status


async def test_without_tokens_there_is_nothing_to_log_in_to(open_http: httpx.AsyncClient) -> None:
    page = await open_http.get("/login", params={"next": "/chat"})
    assert (page.status_code, page.headers["location"]) == (303, "/chat")
    by_form = await open_http.post("/login", data={"token": "any"})
    assert (by_form.status_code, by_form.headers["location"]) == (303, "/")
    by_json = await open_http.post("/login", json={"token": "any"})
    assert by_json.json() == {"principal": "local"}
    assert "set-cookie" not in by_json.headers
