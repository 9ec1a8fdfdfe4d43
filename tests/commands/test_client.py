from collections.abc import Iterator

import pytest

from app.commands.client import SESSIONS, Server, server_url
from app.commands.failures import CommandFailed, ConnectionLost, NoServer, NotTarko, Refused
from tests.commands.scripted_server import Reply, ScriptedServer, answers, refuses, streams


@pytest.mark.parametrize(
    ("given", "environment", "url"),
    [
        (None, {}, "http://127.0.0.1:8888"),
        (None, {"TARKO_PORT": "9000"}, "http://127.0.0.1:9000"),
        (None, {"TARKO_PORT": "9000", "TARKO_URL": "https://a.example/"}, "https://a.example"),
        ("b.example:1", {"TARKO_URL": "https://a.example"}, "http://b.example:1"),
        ("http://[::1]:80", {}, "http://[::1]"),
    ],
)
def test_where_the_server_is(given: str | None, environment: dict[str, str], url: str) -> None:
    assert server_url(given, environment) == url


@pytest.mark.parametrize("text", ["ftp://a", "http://", "http://a:b"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(CommandFailed, match="is no address") as refusal:
        server_url(text, {})
    assert refusal.value.code == "bad_url"


@pytest.fixture
def client(server: ScriptedServer) -> Iterator[Server]:
    with Server(server.url, "secret-token") as client:
        yield client


def test_a_token_is_sent(server: ScriptedServer, client: Server) -> None:
    server.script(SESSIONS, answers({}))
    client.get(SESSIONS)
    assert server.requests[0].headers["authorization"] == "Bearer secret-token"


@pytest.mark.parametrize("token", ["tök", "a b", "a\n"])
def test_a_token_that_no_header_can_carry_is_refused_without_being_told(token: str) -> None:
    with pytest.raises(CommandFailed) as refusal:
        Server("http://a", token)
    assert refusal.value.code == "bad_token"
    assert token not in str(refusal.value)


def test_a_proxy_of_the_environment_is_not_asked_for_this_machine(
    server: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    server.script(SESSIONS, answers({}))
    with Server(server.url) as client:
        assert client.get(SESSIONS) == "{}"


def test_an_error_of_the_protocol_keeps_its_words_and_its_code(
    server: ScriptedServer, client: Server
) -> None:
    server.script("/x", refuses(409, "session_busy", "A turn runs.", **{"Retry-After": "3"}))
    with pytest.raises(Refused, match=r"^A turn runs\.$") as refusal:
        client.post("/x", {})
    assert (refusal.value.code, refusal.value.http_status, refusal.value.retry_after) == (
        "session_busy",
        409,
        3,
    )
    assert not refusal.value.is_temporary


@pytest.mark.parametrize("reply", [refuses(401, "unauthenticated", "A token is needed."), Reply(status=401)])
def test_a_missing_token_is_explained(server: ScriptedServer, client: Server, reply: Reply) -> None:
    server.script("/x", reply)
    with pytest.raises(Refused, match=r"set TARKO_TOKEN, or use --token") as refusal:
        client.get("/x")
    assert refusal.value.code == "unauthenticated"


def test_a_gateway_without_its_server_is_a_temporary_refusal(server: ScriptedServer, client: Server) -> None:
    server.script("/x", Reply(b"<h1>Bad gateway</h1>", 502, {"Retry-After": "Wed, 21 Oct 2026 07:28:00 GMT"}))
    with pytest.raises(Refused) as refusal:
        client.get("/x")
    assert refusal.value.is_temporary
    assert refusal.value.retry_after is None


@pytest.mark.parametrize("reply", [Reply(b"<html>", 404), Reply(b"<html>"), answers([]), Reply(status=302)])
def test_a_stranger_is_told_from_a_tarko_server(server: ScriptedServer, client: Server, reply: Reply) -> None:
    server.script("/x", reply)
    with pytest.raises(NotTarko, match="is the address right"):
        client.post("/x", {})


def test_a_page_is_no_event_stream(server: ScriptedServer, client: Server) -> None:
    server.script("/x", Reply(b"<html>", headers={"Content-Type": "text/html"}))
    with pytest.raises(NotTarko, match="does not answer with events"), client.stream("GET", "/x") as frames:
        next(frames)


def test_a_refused_stream_is_read_to_its_error(server: ScriptedServer, client: Server) -> None:
    server.script("/x", refuses(503, "server_shutdown", "Stopping.", **{"Retry-After": "2"}))
    with pytest.raises(Refused, match="Stopping") as refusal, client.stream("POST", "/x", body={"a": 1}):
        pass
    assert refusal.value.retry_after == 2
    assert server.requests[0].json == {"a": 1}


def test_a_broken_stream_is_a_lost_connection(server: ScriptedServer, client: Server) -> None:
    server.script("/x", streams(b"id: 1\ndata: {}\n\nid: 2\nda", cut=True))
    seen: list[str] = []
    with pytest.raises(ConnectionLost), client.stream("GET", "/x") as frames:
        seen += (frame.id for frame in frames)
    assert seen == ["1"]


def test_nobody_at_the_address_is_told_with_what_to_do() -> None:
    with Server("http://127.0.0.1:1") as client, pytest.raises(NoServer, match="`tarko-server serve`"):
        client.get("/x")


def test_any_text_can_be_sent(server: ScriptedServer, client: Server) -> None:
    server.script("/x", answers({}))
    client.post("/x", {"query": "\ud800 é"})
    assert server.requests[0].json == {"query": "\ud800 é"}
